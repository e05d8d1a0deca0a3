//! Faults of one of two replicas during a run.

use std::time::Duration;

use tidegate_sim::Faults;
use tidegate_sim::faults::{Outage, OutageMode};
use tokio::time::{Instant, sleep};

use super::super::load::{Call, End};
use super::super::managed_servers::{Signal, signal};
use super::super::server_metrics::sample;
use super::placement::Placement;
use super::play::{Replicas, Trace, replay};
use crate::Fallible;

/// The earliest and the latest time of the fault, and the time for which a stopped process does
/// nothing, as shares of the run.
const EARLIEST: f64 = 0.25;
const LATEST: f64 = 0.5;
const STOPPED: f64 = 0.35;
/// The fault comes as soon as the replica has this many calls.
const CALLS: f64 = 3.0;
/// The interval in which the replica's calls are counted before the fault.
const LOOKS: Duration = Duration::from_millis(50);
/// The time that a replica has to return after a run.
const RETURNS_WITHIN: Duration = Duration::from_secs(300);

/// What happens to one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and a new start.
    Killed,
    /// SIGSTOP, and later SIGCONT.
    Stopped,
    /// SIGTERM, and a new start.
    Terminated,
}

/// The results of a run with a fault.
pub(super) struct FaultRun {
    pub(super) calls: Vec<Call>,
    /// The number of calls at the replica just before the fault.
    pub(super) hit: f64,
}

impl FaultRun {
    /// Returns the number of calls that did not get an answer although they had no first byte.
    pub(super) fn needless(&self) -> f64 {
        self.lost(|call| call.ttft.is_none())
    }

    /// Returns the number of streams that did not end after they had begun.
    pub(super) fn truncated(&self) -> f64 {
        self.lost(|call| call.ttft.is_some())
    }

    fn lost(&self, which: fn(&Call) -> bool) -> f64 {
        self.calls.iter().filter(|call| call.end != End::Answered && which(call)).count() as f64
    }
}

impl Fault {
    pub(super) const ALL: [Self; 3] = [Self::Killed, Self::Stopped, Self::Terminated];

    /// Returns the name in figures and tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Fault::Killed => "kill -9",
            Fault::Stopped => "SIGSTOP",
            Fault::Terminated => "SIGTERM",
        }
    }
}

/// Plays `trace` through the pool, applies `fault` to the last replica, and returns once that
/// replica answers again.
pub(super) async fn play(replicas: &Replicas, fault: Fault, trace: &Trace) -> Fallible<FaultRun> {
    let wire = replicas.wire()?;
    let url = replicas.urls().pop().ok_or("no replica")?;
    let faulty = async {
        let latest = Instant::now() + trace.lasts.mul_f64(LATEST);
        sleep(trace.lasts.mul_f64(EARLIEST)).await;
        let hit = loop {
            let now = sample(&wire, &url).await?;
            let calls = now.running + now.waiting;
            if calls >= CALLS || Instant::now() >= latest {
                break calls;
            }
            sleep(LOOKS).await;
        };
        strike(replicas, &url, fault, trace.lasts.mul_f64(STOPPED)).await?;
        Fallible::Ok(hit)
    };
    let (calls, hit) = tokio::try_join!(replay(replicas, Placement::Pool, trace), faulty)?;
    let by = Instant::now() + RETURNS_WITHIN;
    while sample(&wire, &url).await.is_err() {
        if Instant::now() > by {
            return Err(format!("{url} has not returned within {} s", RETURNS_WITHIN.as_secs()).into());
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(FaultRun { calls, hit })
}

async fn strike(replicas: &Replicas, url: &str, fault: Fault, stopped: Duration) -> Fallible<()> {
    match replicas {
        Replicas::Vllm(_) => match fault {
            Fault::Killed => send(url, Signal::Kill).await,
            Fault::Terminated => send(url, Signal::Term).await,
            Fault::Stopped => {
                send(url, Signal::Stop).await?;
                sleep(stopped).await;
                send(url, Signal::Cont).await
            }
        },
        Replicas::Simulated(simulators) => {
            let simulator = simulators.last().ok_or("no replica")?;
            let outage = |from: f64, until: f64, mode| Outage {
                from_s: from * stopped.as_secs_f64(),
                until_s: until * stopped.as_secs_f64(),
                mode,
            };
            let outages = match fault {
                Fault::Killed => vec![outage(0.0, 1.0, OutageMode::Kill)],
                Fault::Stopped => vec![outage(0.0, 1.0, OutageMode::Hang)],
                // vLLM hangs after SIGTERM while it has calls.
                Fault::Terminated => {
                    vec![outage(0.0, 0.5, OutageMode::Hang), outage(0.5, 1.0, OutageMode::Kill)]
                }
            };
            Ok(simulator.set_faults(Faults { outages, ..Faults::default() })?)
        }
    }
}

/// Requests a signal from `run.py`. The runtime goes on meanwhile.
async fn send(url: &str, what: Signal) -> Fallible<()> {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || signal(&url, what)).await?
}
