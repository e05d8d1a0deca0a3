//! Simulates one run: each arrival is a call through a contender to two simulated engines.

use std::sync::Arc;
use std::time::Duration;

use tidegate::config::{Config, Target};
use tidegate::{Gate, Lane, Transport};
use tidegate_sim::scenario::quantile;
use tidegate_sim::{SimConfig, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::workload::{Arrival, Workload};
use crate::Fallible;
use crate::client_call::{URL, call_with};
use crate::experiments::noisy_neighbour;
use crate::virtual_time;

/// The `max_tokens` of each call.
const MAX_TOKENS: u32 = 256;
/// The URL of a single engine, whose metrics a gate reads because the host is private.
const LOCAL_URL: &str = "http://localhost";

/// What stands between the callers and the engines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contender {
    /// A gate in which nothing is configured except the wait.
    Gate,
    /// No bound.
    Off,
    /// A gate with the caps and the wait of the post.
    PostCaps,
    /// Bounds on each tenant that bursts: on its calls in flight, and on those of them that await
    /// their first token. No gate has them; they are the best that fixed numbers can do.
    Bounds { in_flight: usize, awaiting: usize },
}

impl Contender {
    pub(super) fn name(self) -> String {
        match self {
            Self::Gate => "tenants' names only".to_owned(),
            Self::Off => "off".to_owned(),
            Self::PostCaps => "the post's caps".to_owned(),
            Self::Bounds { in_flight, awaiting } => format!("{in_flight} in flight, {awaiting} awaiting"),
        }
    }

    /// Returns the configuration of the gate. `wait` is the wait of [`Contender::Gate`].
    fn config(self, url: &str, wait: Duration) -> Fallible<Config> {
        match self {
            Self::Gate => Ok(Config::builder().target(Target::new("sim").url(url).wait(wait)).build()?),
            Self::PostCaps => noisy_neighbour::config(true),
            Self::Off | Self::Bounds { .. } => noisy_neighbour::config(false),
        }
    }
}

/// What became of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) tenant: usize,
    /// The time from the arrival to the first token in seconds, or `None` if the call failed.
    pub(super) ttft: Option<f64>,
}

/// The outcomes of all calls of one run.
#[derive(Clone, Debug)]
pub(super) struct RunResult(pub(super) Vec<Outcome>);

impl RunResult {
    /// Returns the 99th percentile of the TTFT of a tenant's calls in milliseconds. A failed call
    /// counts as infinitely late.
    pub(super) fn p99_ms(&self, tenant: usize) -> f64 {
        let of = self.0.iter().filter(|outcome| outcome.tenant == tenant);
        let mut ttfts: Vec<f64> = of.map(|outcome| outcome.ttft.unwrap_or(f64::INFINITY) * 1e3).collect();
        quantile(&mut ttfts, 0.99)
    }

    /// Returns the highest [`RunResult::p99_ms`] of the tenants that do not burst.
    pub(super) fn worst_p99_ms(&self, workload: &Workload) -> f64 {
        let steady = workload.tenants.iter().enumerate().filter(|(_, load)| !load.bursts);
        steady.map(|(tenant, _)| self.p99_ms(tenant)).fold(0.0, f64::max)
    }

    /// Returns how many calls of tenants that burst were served.
    pub(super) fn served(&self, workload: &Workload) -> f64 {
        let bursts = |outcome: &&Outcome| {
            outcome.ttft.is_some() && workload.tenants.get(outcome.tenant).is_some_and(|load| load.bursts)
        };
        self.0.iter().filter(bursts).count() as f64
    }
}

/// Simulates the calls of a workload with `seed`. `wait` is the maximum time that a call may wait
/// for the gate or for the bounds.
pub(super) fn play(
    contender: Contender,
    workload: &Workload,
    wait: Duration,
    seed: u64,
) -> Fallible<RunResult> {
    virtual_time::run(seed, async {
        let config = SimConfig { attempt_log: 0, workers: workload.engines, ..SimConfig::calibrated() };
        let simulator = Simulator::new(config)?;
        let is_local = contender == Contender::Gate && workload.engines == 1;
        let url = if is_local { LOCAL_URL } else { URL };
        let gate = Gate::over(contender.config(url, wait)?, simulator_transport(&simulator, Duration::ZERO))?;
        let bounds: Vec<Option<Arc<Bounds>>> =
            workload.tenants.iter().map(|load| Bounds::of(contender).filter(|_| load.bursts)).collect();
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for arrival in workload.draw(seed) {
            let (client, bounds) =
                (Transport::new(gate.client()), bounds.get(arrival.tenant).cloned().flatten());
            let name = workload.tenants.get(arrival.tenant).map_or("", |load| load.name);
            tasks.spawn(async move {
                sleep_until(start + arrival.at).await;
                Outcome { tenant: arrival.tenant, ttft: ask(client, url, name, arrival, bounds, wait).await }
            });
        }
        Ok(RunResult(tasks.join_all().await))
    })
}

/// Makes a call, and returns the seconds to its first token. Returns `None` if the call failed.
async fn ask(
    client: Transport,
    url: &'static str,
    tenant: &str,
    arrival: Arrival,
    bounds: Option<Arc<Bounds>>,
    wait: Duration,
) -> Option<f64> {
    let arrived = Instant::now();
    let mut request = arrival.work.request(tenant, Lane::Standard, MAX_TOKENS);
    *request.uri_mut() = format!("{url}{}", request.uri().path()).parse().ok()?;
    let mut permits = match bounds {
        Some(bounds) => Some(timeout_at(arrived + wait, bounds.acquire()).await.ok()?),
        None => None,
    };
    let queued = arrived.elapsed();
    let first = || {
        if let Some((awaiting, _)) = &mut permits {
            *awaiting = None;
        }
    };
    let seen = call_with(client, request, first).await;
    seen.first.filter(|_| seen.ok).map(|first| (queued + first).as_secs_f64())
}

/// The bounds of one tenant. Calls get both permits in the order of their arrival.
#[derive(Debug)]
struct Bounds {
    in_flight: Arc<Semaphore>,
    awaiting: Arc<Semaphore>,
}

type Permit = Option<tokio::sync::OwnedSemaphorePermit>;

impl Bounds {
    fn of(contender: Contender) -> Option<Arc<Self>> {
        let Contender::Bounds { in_flight, awaiting } = contender else { return None };
        let permits = |count| Arc::new(Semaphore::new(count));
        Some(Arc::new(Self { in_flight: permits(in_flight), awaiting: permits(awaiting) }))
    }

    /// Returns a permit to await the first token, and one to be in flight.
    async fn acquire(&self) -> (Permit, Permit) {
        let awaiting = self.awaiting.clone().acquire_owned().await.ok();
        (awaiting, self.in_flight.clone().acquire_owned().await.ok())
    }
}
