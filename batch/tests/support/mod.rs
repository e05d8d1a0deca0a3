//! Helpers that execute batch runs against the simulator in virtual time.

#![allow(clippy::unwrap_used, dead_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate::config::{Config, Target};
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tidegate_batch::{
    AnsweredLines, Batch, BatchOptions, BatchProgress, Lines, Prices, Record, RequestOverrides, RunError,
    Stop, WriteJob, survey,
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

/// Returns the lines of an input with these numbers as the messages.
pub(crate) fn lines(numbers: impl Iterator<Item = u64>) -> String {
    let line = |n| {
        format!(
            "{{\"custom_id\":\"c{n}\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{{\"model\":\"sim\",\"max_tokens\":8,\"messages\":[{{\"role\":\"user\",\"content\":\"{n}\"}}]}}}}\n"
        )
    };
    numbers.map(line).collect()
}

/// Returns the number of tokens that the requests of an input can use if each is sent once.
pub(crate) fn max_tokens(text: &str) -> u64 {
    let requests = Some((&RequestOverrides::default(), Prices::default()));
    let lines = Lines::new(text.as_bytes(), 1 << 20);
    let most = survey(lines, None, &AnsweredLines::default(), requests).unwrap().max_spend;
    most.input + most.output
}

/// Returns a response with this status and an empty JSON object as its body.
pub(crate) fn answer(status: u16) -> http::Response<ResponseBody> {
    answer_with(status, "{}")
}

/// Returns a response with this status and this JSON as its body.
pub(crate) fn answer_with(status: u16, body: &'static str) -> http::Response<ResponseBody> {
    let response = http::Response::builder().status(status).header("content-type", "application/json");
    response.body(ResponseBody::full(body)).unwrap()
}

/// Returns a transport that answers its requests with what `answer` returns for their numbers, from
/// 0, and the number of requests that it gets.
pub(crate) fn numbered(
    answer: impl Fn(u32) -> Result<http::Response<ResponseBody>, Error> + Clone + Send + Sync + 'static,
) -> (Transport, Arc<AtomicU32>) {
    let requests = Arc::new(AtomicU32::new(0));
    let count = requests.clone();
    let transport = Transport::new(tower::service_fn(move |_: http::Request<RequestBody>| {
        let result = answer(count.fetch_add(1, Ordering::Relaxed));
        async move { result }
    }));
    (transport, requests)
}

/// The result of a run, the records that it wrote, its duration in seconds, the longest outage that
/// its progress showed, in seconds, and its last progress, also if it failed.
pub(crate) struct RunResult {
    pub(crate) ran: Result<BatchProgress, RunError>,
    pub(crate) records: Vec<Record>,
    pub(crate) seconds: f64,
    pub(crate) longest_outage: f64,
    pub(crate) last: BatchProgress,
}

impl RunResult {
    pub(crate) fn progress(&self) -> BatchProgress {
        self.ran.as_ref().unwrap().clone()
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
    let mut longest_outage = 0.0f64;
    let mut last = BatchProgress::default();
    let on_progress = |progress: &BatchProgress| {
        longest_outage = longest_outage.max(progress.down_seconds.unwrap_or_default());
        last.clone_from(progress);
    };
    let ran = batch.run(options, found, lines, records, stop, on_progress).await;
    let seconds = began.elapsed().as_secs_f64();
    writer.await.unwrap();
    let records = std::mem::take(&mut *written.lock());
    RunResult { ran, records, seconds, longest_outage, last }
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
