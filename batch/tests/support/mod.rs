//! Helpers that execute batch runs against the simulator in virtual time.

#![allow(clippy::unwrap_used, dead_code)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate::Transport;
use tidegate::config::{Config, Target};
use tidegate_batch::{
    AnsweredLines, Batch, BatchOptions, BatchProgress, Lines, Record, RunError, Stop, WriteJob,
};
use tidegate_sim::{Faults, Simulator};
use tidegate_test_servers::{constant_steps, run_paused, simulator_transport};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(crate) const BASE: &str = "http://provider.example/v1";

/// Returns a simulator in which each step of the engine takes 20 ms.
pub(crate) fn simulator(faults: Faults) -> Simulator {
    Simulator::new(constant_steps(20.0, faults)).unwrap()
}

pub(crate) fn transport(simulator: &Simulator) -> Transport {
    simulator_transport(simulator, Duration::ZERO)
}

pub(crate) fn config(target: impl FnOnce(Target) -> Target) -> Config {
    Config::builder().target(target(Target::new("provider").url("http://provider.example"))).build().unwrap()
}

/// The result of a run, the records that it wrote, and its duration.
pub(crate) struct RunResult {
    pub(crate) ran: Result<BatchProgress, RunError>,
    pub(crate) records: Vec<Record>,
    pub(crate) seconds: f64,
}

impl RunResult {
    pub(crate) fn progress(&self) -> BatchProgress {
        *self.ran.as_ref().unwrap()
    }
}

pub(crate) async fn play(
    batch: &Batch,
    options: BatchOptions,
    text: impl Into<Bytes>,
    found: AnsweredLines,
    stop: watch::Receiver<Stop>,
) -> RunResult {
    let (send, lines) = mpsc::channel(64);
    let mut text = Lines::new(io::Cursor::new(text.into()), 1 << 20);
    tokio::spawn(async move {
        while let Some(line) = text.next_line().transpose() {
            if send.send(line).await.is_err() {
                return;
            }
        }
    });
    let (records, mut jobs) = mpsc::channel(64);
    let written: Arc<Mutex<Vec<Record>>> = Arc::default();
    let into = written.clone();
    let writer = tokio::spawn(async move {
        while let Some(job) = jobs.recv().await {
            if let WriteJob::Record(record) = job {
                into.lock().push(record);
            }
        }
    });
    let began = Instant::now();
    let ran = batch.run(options, found, lines, records, stop, |_| {}).await;
    let seconds = began.elapsed().as_secs_f64();
    writer.await.unwrap();
    let records = std::mem::take(&mut *written.lock());
    RunResult { ran, records, seconds }
}

pub(crate) fn options() -> BatchOptions {
    BatchOptions::new(BASE.parse().unwrap())
}

pub(crate) fn never() -> watch::Receiver<Stop> {
    watch::channel(Stop::No).1
}

/// Runs a future to its end in virtual time, with a fixed random seed.
pub(crate) fn paused<T>(what: impl Future<Output = T>) -> T {
    fastrand::seed(7);
    run_paused(what).unwrap()
}

pub(crate) fn sleep(seconds: f64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs_f64(seconds))
}
