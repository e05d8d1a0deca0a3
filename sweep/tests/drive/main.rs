//! Tests of whole sweeps in virtual time, through a gate, against in-process servers.

#![allow(clippy::unwrap_used)]

mod preflight;
mod results;
mod resume;
mod shutdown;
mod spending_ceilings;
mod upstream;

use std::future::Future;

use tidegate_sweep::{Lengths, MixOptions, SearchSettings, Sweep, SweepError, SweepOptions, SweepOutcome};
use tidegate_test_servers::run_paused;
use tokio::sync::watch;

use self::upstream::{OUTPUT, Upstream};

/// Returns options with short prompts and answers, and caps up to 32.
fn options() -> SweepOptions {
    SweepOptions {
        url: "http://server:8000".to_owned(),
        model: "sim".to_owned(),
        mix: MixOptions::Synthetic {
            input: Lengths { mean: 40, spread: 0.3 },
            output: Lengths { mean: OUTPUT, spread: 0.0 },
        },
        search: SearchSettings { max_cap: 32, ..SearchSettings::default() },
        ..SweepOptions::default()
    }
}

/// Runs a future on this thread with tokio's clock paused, and with a fixed seed for the jitter of
/// retries. Returns its output.
fn run_paused_seeded<T>(what: impl Future<Output = T>) -> T {
    fastrand::seed(7);
    run_paused(what).unwrap()
}

async fn run(sweep: Sweep, upstream: &Upstream) -> Result<SweepOutcome, SweepError> {
    let (_stop, stopped) = watch::channel(false);
    sweep.run(upstream.transport(), |_| {}, stopped).await
}

fn sweep(options: SweepOptions, upstream: &Upstream) -> SweepOutcome {
    run_paused_seeded(run(Sweep::new(options).unwrap(), upstream)).unwrap()
}

/// A temporary directory, which is removed on drop.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
