//! A provider in virtual time: the simulator as a transport, and lines to ask it.

#![allow(clippy::unwrap_used, dead_code)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidegate::config::{Config, Target};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_batch::{Batch, Found, Job, Lines, Options, Progress, Record, RunError};
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::{Faults, SimConfig, Simulator};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(crate) const BASE: &str = "http://provider.example/v1";

/// A server of which every step takes 20 ms, whatever it does.
pub(crate) fn simulator(faults: Faults) -> Simulator {
    let engine = EngineConfig {
        num_blocks: 1_000_000,
        max_num_seqs: 100_000,
        max_num_batched_tokens: 10_000_000,
        prefix_cache: false,
        step: StepCost {
            base_ms: 20.0,
            per_prompt_token_ms: 0.0,
            per_sequence_ms: 0.0,
            per_sequence_squared_ms: 0.0,
        },
        ..EngineConfig::default()
    };
    Simulator::new(SimConfig { workers: 1, engine, faults, ..SimConfig::calibrated() }).unwrap()
}

pub(crate) fn transport(simulator: &Simulator) -> Transport {
    let simulator = simulator.clone();
    Transport::new(tower::service_fn(move |request: Request<RequestBody>| {
        let simulator = simulator.clone();
        async move {
            let request = request.map(|body| body.bytes().cloned().unwrap_or_default());
            let answer = simulator.respond(request).await;
            let response = answer.map_err(|refused| Error::new(ErrorKind::Connect, refused.to_string()))?;
            Ok(response.map(|body| {
                ResponseBody::new(body.map_err(|broken| Error::new(ErrorKind::Transport, broken.to_string())))
            }))
        }
    }))
}

pub(crate) fn config(target: impl FnOnce(Target) -> Target) -> Config {
    Config::builder().target(target(Target::new("provider").url("http://provider.example"))).build().unwrap()
}

/// A run of these lines, all in memory.
pub(crate) struct Played {
    pub(crate) ran: Result<Progress, RunError>,
    pub(crate) records: Vec<Record>,
    pub(crate) seconds: f64,
}

impl Played {
    pub(crate) fn progress(&self) -> Progress {
        *self.ran.as_ref().unwrap()
    }
}

pub(crate) async fn play(
    batch: &Batch,
    options: Options,
    text: impl Into<Bytes>,
    found: Found,
    stop: watch::Receiver<bool>,
) -> Played {
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
            if let Job::Record(record) = job {
                into.lock().push(record);
            }
        }
    });
    let began = Instant::now();
    let ran = batch.run(options, found, lines, records, stop, |_| {}).await;
    let seconds = began.elapsed().as_secs_f64();
    writer.await.unwrap();
    let records = std::mem::take(&mut *written.lock());
    Played { ran, records, seconds }
}

pub(crate) fn options() -> Options {
    Options::to(BASE.parse().unwrap())
}

pub(crate) fn never() -> watch::Receiver<bool> {
    watch::channel(false).1
}

/// Runs in virtual time.
pub(crate) fn paused<T>(what: impl Future<Output = T>) -> T {
    fastrand::seed(7);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(what)
}

pub(crate) fn sleep(seconds: f64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs_f64(seconds))
}
