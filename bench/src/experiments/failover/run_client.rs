//! Runs one fault with one caller: calls arrive while one of four replicas fails and comes back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use serde_json::json;
use tidegate::{ErrorKind, RequestBody, Transport};
use tidegate_sim::scenario::Arrivals;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;

use super::callers::{Caller, POOL, Sent};
use super::server::Replica;
use crate::Fallible;
use crate::client_call::Ask;

/// Calls per second.
const RATE: f64 = 40.0;
/// The time of the fault, since the start of the run.
const GOES: Duration = Duration::from_secs(3);
/// How long calls continue to arrive after the replica is back.
const AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Killed,
    Hung,
}

impl Fault {
    /// Returns the name of the fault in figures and tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Killed => "killed",
            Fault::Hung => "hung",
        }
    }

    /// Returns the time from the fault until the replica is back.
    fn away(self) -> Duration {
        Duration::from_secs(match self {
            Fault::Killed => 5,
            // Longer than the timeout of streams.
            Fault::Hung => 15,
        })
    }
}

/// The figures of one run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) calls: f64,
    pub(super) completed: f64,
    /// The number of calls in flight at the replica when the fault begins.
    pub(super) hit: f64,
    /// The number of failed calls whose callers had not received any part of an answer.
    pub(super) needless: f64,
    /// The number of calls that failed in the middle of their answer with a truncation error.
    pub(super) truncated: f64,
    /// The number of calls that failed in the middle of their answer with another error, or whose
    /// answer ended early without an error.
    pub(super) otherwise: f64,
    /// The number of slots and calls that the gate and the replicas still count 0.5 s after all
    /// calls have ended. 0 if none is leaked.
    pub(super) leaked: f64,
    /// Seconds from the fault to the last call that was sent to the replica before its return. 0 if
    /// there was none.
    pub(super) out: f64,
    /// Seconds from the return of the replica to the first call that was sent to it. Infinite if
    /// there was none.
    pub(super) back: f64,
    /// The longest duration of a completed call, in seconds.
    pub(super) longest: f64,
}

/// How a call ended. `begun` is `true` if the caller received a part of an answer, `truncated` if
/// the call ended with a truncation error. `took` is the time since the call was made.
#[derive(Debug)]
struct Ended {
    ok: bool,
    begun: bool,
    truncated: bool,
    took: Duration,
}

/// Sends calls to four replicas through `caller`, applies `fault` to one of the replicas, and
/// returns the figures.
pub(super) async fn play(caller: Caller, fault: Fault, seed: u64) -> Fallible<Run> {
    let replicas: Vec<Replica> =
        join_all((0..4).map(|_| Replica::start())).await.into_iter().collect::<Fallible<_>>()?;
    let urls: Vec<String> = replicas.iter().map(Replica::url).collect();
    let sent = Arc::new(Sent::default());
    let (through, gate) = caller.over(&urls, &sent)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let victim = replicas.get(rng.usize(..replicas.len())).ok_or("no replica")?;
    let lasts = GOES + fault.away() + AFTER;
    let start = Instant::now();
    let mut calls = JoinSet::new();
    let times = Arrivals::Poisson.draw(&mut rng, Duration::ZERO, RATE, (RATE * lasts.as_secs_f64()) as usize);
    for (nth, at) in times.into_iter().enumerate() {
        // Half of the calls stream, for up to two seconds.
        let ask = Ask { tenant: "a", prompt: 8, output: rng.u32(8..=40), stream: rng.bool() };
        let through = through.clone();
        calls.spawn(async move {
            sleep_until(start + at).await;
            call(through, &ask, nth).await
        });
    }
    sleep_until(start + GOES).await;
    let gone = Instant::now();
    let hit = victim.in_flight();
    match fault {
        Fault::Killed => {
            victim.kill();
            sleep(fault.away()).await;
            victim.restart().await?;
        }
        Fault::Hung => {
            victim.hang(fault.away())?;
            sleep(fault.away()).await;
        }
    }
    let returned = Instant::now();
    let ended = calls.join_all().await;
    // Servers notice cancelled calls a little later.
    sleep(Duration::from_millis(500)).await;
    let there = sent.to(&victim.authority());
    let within = there.iter().filter(|at| (gone..returned).contains(*at)).max();
    let first = there.iter().filter(|at| **at >= returned).min();
    let count = |which: fn(&Ended) -> bool| ended.iter().filter(|ended| which(ended)).count() as f64;
    let held = gate.map_or(0, |gate| {
        let snapshot = gate.snapshot();
        let at_targets = snapshot.targets.values().map(|target| {
            target.in_flight
                + target.queue_depth
                + target.replicas.iter().map(|replica| replica.requests).sum::<usize>()
        });
        snapshot.active + at_targets.sum::<usize>()
    });
    let open: usize = replicas.iter().map(Replica::in_flight).sum();
    for replica in &replicas {
        replica.kill();
    }
    let longest = ended.iter().filter(|ended| ended.ok).map(|ended| ended.took).max();
    Ok(Run {
        calls: ended.len() as f64,
        completed: count(|ended| ended.ok),
        hit: hit as f64,
        needless: count(|ended| !ended.ok && !ended.begun),
        truncated: count(|ended| !ended.ok && ended.begun && ended.truncated),
        otherwise: count(|ended| !ended.ok && ended.begun && !ended.truncated),
        leaked: (held + open) as f64,
        out: within.map_or(0.0, |last| (*last - gone).as_secs_f64()),
        back: first.map_or(f64::INFINITY, |first| (*first - returned).as_secs_f64()),
        longest: longest.unwrap_or_default().as_secs_f64(),
    })
}

/// Returns a request whose prompt is unique. Calls with equal prompts would all be sent to the
/// replica that has the prompt cached.
fn request(ask: &Ask, nth: usize) -> Request<RequestBody> {
    let mut request = ask.request(POOL);
    let body = json!({
        "model": "sim",
        "messages": [{"role": "user", "content": format!("{nth}: hello")}],
        "max_tokens": ask.output,
        "stream": ask.stream,
    });
    *request.body_mut() = body.to_string().into_bytes().into();
    request
}

async fn call(through: Transport, ask: &Ask, nth: usize) -> Ended {
    let sent = Instant::now();
    let mut ended = Ended { ok: false, begun: false, truncated: false, took: Duration::ZERO };
    if let Ok(response) = through.oneshot(request(ask, nth)).await {
        let good = response.status().is_success();
        let mut body = response.into_body();
        let mut whole = !ask.stream;
        ended.ok = good;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let data = frame.data_ref();
                    ended.begun |= good && data.is_some_and(|data| !data.is_empty());
                    whole |= data.is_some_and(|data| data.ends_with(b"data: [DONE]\n\n"));
                }
                Err(error) => {
                    ended.ok = false;
                    ended.truncated = error.kind() == ErrorKind::Truncated;
                    break;
                }
            }
        }
        ended.ok &= whole;
    }
    ended.took = sent.elapsed();
    ended
}
