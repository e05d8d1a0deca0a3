//! Runs one complete sweep (the search, the code that makes its calls, and the gate) in virtual
//! time.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tidegate_sweep::{
    MixOptions, SearchSettings, StepResult, Sweep, SweepCeilings, SweepOptions, SweepOutcome,
};
use tokio::sync::watch;

use super::server::{Running, Server};
use crate::client_call::URL;
use crate::trace_lengths::Work;
use crate::{Fallible, virtual_time};

/// The number of calls after which a sweep is stopped. [`LONGEST_S`] is the limit in virtual
/// seconds. A sweep that reaches one of them counts as endless.
const MOST_CALLS: usize = 20_000;
const LONGEST_S: f64 = 7_200.0;

/// The answer of a sweep with its cost, and the number of calls that the server answered.
pub(crate) struct SweepResult {
    pub(crate) outcome: SweepOutcome,
    /// The number of calls that the server answered.
    pub(crate) served: u64,
}

/// Runs a sweep against `server`, and returns its answer. `engine_metrics` is the option of the
/// command line: `true` for an engine, and `false` for a provider, which has no metrics.
pub(crate) fn play(
    server: &Server,
    works: &Arc<[Work]>,
    settings: &SearchSettings,
    seed: u64,
    engine_metrics: bool,
    mut on_step: impl FnMut(&StepResult) + Send,
) -> Fallible<SweepResult> {
    let lines = Lines::write(works, seed)?;
    virtual_time::run(seed, async {
        let Running { simulator, transport, cpu } = server.start()?;
        let options = SweepOptions {
            url: URL.to_owned(),
            model: "sim".to_owned(),
            mix: MixOptions::Lines { path: lines.0.clone(), output: None },
            search: settings.clone(),
            seed,
            engine_metrics,
            ceilings: SweepCeilings {
                calls: Some(MOST_CALLS),
                seconds: Some(LONGEST_S),
                ..SweepCeilings::default()
            },
            ..SweepOptions::default()
        };
        let mut sweep = Sweep::new(options)?;
        if let Some(cpu) = cpu {
            sweep = sweep.cpu(cpu);
        }
        // Kept open, because nothing stops the sweep.
        let (_stop, stopped) = watch::channel(false);
        let outcome = sweep
            .run(
                transport,
                |progress| {
                    if let Some(step) = &progress.step_ended {
                        on_step(step);
                    }
                },
                stopped,
            )
            .await?;
        let stats = simulator.stats();
        let served =
            stats.tenants.values().filter_map(|tenant| tenant.statuses.get(&200)).copied().sum::<u64>();
        Ok(SweepResult { outcome, served })
    })
}

/// A temporary file with the calls, as a user would give it to `tidegate sweep`. With the file, the
/// calls have the same lengths as those of the oracle. The file is removed on drop.
struct Lines(PathBuf);

impl Lines {
    fn write(works: &[Work], seed: u64) -> Fallible<Self> {
        let thread = std::thread::current().id();
        let name = format!("tidegate-bench-sweep-{}-{thread:?}-{seed}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        let line = |work: &Work| {
            let body = json!({
                "messages": [{"role": "user", "content": "tide".repeat(work.prompt as usize)}],
                "max_tokens": work.output,
            });
            format!("{body}\n")
        };
        std::fs::write(&path, works.iter().map(line).collect::<String>())?;
        Ok(Self(path))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // A remaining file does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}
