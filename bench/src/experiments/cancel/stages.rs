//! Cancels 100,000 calls at random moments, with random errors, stalls and cool-downs, in virtual
//! time. Checks that no slot, call or retry credit is lost.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use serde_json::json;
use tidegate::config::{Config, RateConfig, Retry, Target};
use tidegate::internals::{Admission, BudgetSet};
use tidegate::policy::schedule::{SchedulerSettings, Ticket};
use tidegate::{Error, Gate, RequestBody, Transport};
use tidegate_sim::faults::{RateLimitWindow, Stall};
use tidegate_sim::{Faults, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};

use crate::Fallible;
use crate::client_call::{Ask, URL};
use crate::report::Report;
use crate::unlimited_simulators::{STEADY_TOKENS, steady};
use crate::virtual_time;

pub(super) const SEED: u64 = 11;
const CANCELS: usize = 100_000;
const CAP: usize = 64;

/// Cancels the calls, checks that they leave no slots, calls or sequences at the gate or upstream,
/// and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    eprintln!("{CANCELS} cancels");
    let (stages, left) = virtual_time::run(SEED, storm())?;
    for (stage, count) in &stages {
        report.figure(format!("cancelled {stage}"), *count);
        if *stage != NAMES[6] {
            report.bar_as(format!("cancelled {stage}"), json!(count), ">", json!(0), *count > 0);
        }
    }
    for (what, left) in left {
        report.bar_as(format!("after the storm: {what}"), json!(left), "=", json!(0), left == 0);
    }
    let (granted, held) = virtual_time::run(SEED, at_grant())?;
    report.figure("cancelled at grant", granted);
    report.bar_as("cancelled at grant: slots and calls left", json!(held), "=", json!(0), held == 0);
    let lost = virtual_time::run(SEED, credits())?;
    report.bar_as("cancelled in backoff: retry credits lost", json!(lost), "=", json!(0), lost == 0.0);
    Ok(())
}

/// The stage that a call has reached, as an index into [`NAMES`]. The caller and the transport of
/// the call share it.
#[derive(Clone, Default)]
struct Stage(Arc<AtomicU8>);

const NAMES: [&str; 7] = [
    "in the queue",
    "before headers",
    "while the head is held",
    "mid-stream",
    "in backoff",
    "in a cool-down",
    "not at all: the call had ended",
];

impl Stage {
    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    fn name(&self) -> &'static str {
        NAMES.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or("unknown")
    }
}

/// Returns a transport that records the progress of each attempt in the [`Stage`] of its request.
fn noting(inner: Transport) -> Transport {
    Transport::new(service_fn(move |request: Request<RequestBody>| {
        let inner = inner.clone();
        let stage = request.extensions().get::<Stage>().cloned().unwrap_or_default();
        async move {
            stage.set(1);
            let result = inner.oneshot(request).await;
            stage.set(match &result {
                Ok(response) if response.status().is_success() => 2,
                Ok(response) if response.status() == 429 => 5,
                _ => 4,
            });
            result
        }
    }))
}

async fn storm() -> Fallible<(BTreeMap<&'static str, usize>, Vec<(&'static str, usize)>)> {
    let rate_limit_windows = (1..1_000)
        .map(|k| f64::from(k) * 20.0)
        .map(|from_s| RateLimitWindow { from_s, until_s: from_s + 1.0, retry_after: Some("1".to_owned()) })
        .collect();
    let stall = |probability| Some(Stall { probability, seconds: Some(0.7), after_tokens: 2 });
    let faults = Faults {
        seed: SEED,
        rate_limit_windows,
        error_500: 0.1,
        stall_before_headers: stall(0.2),
        stall_mid_stream: stall(0.2),
        ..Faults::default()
    };
    let simulator = Simulator::new(steady(Duration::from_millis(400), faults))?;
    let target = Target::new("sim").url(URL).cap(CAP);
    let transport = noting(simulator_transport(&simulator, Duration::from_millis(20)));
    let gate = Gate::over(Config::builder().target(target).build()?, transport)?;
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut stages: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut cancels = 0;
    while cancels < CANCELS {
        // About as much as the slots can serve, in bursts and lulls.
        let gap = if rng.f64() < 0.01 { 1.0 } else { 0.004 * rng.f64() };
        tokio::time::sleep(Duration::from_secs_f64(gap)).await;
        // From 1 ms to 4 s, later than the end of most calls, uniform in the logarithm.
        let patience = Duration::from_secs_f64(0.001 * 4_000f64.powf(rng.f64()));
        let gate = gate.clone();
        tasks.spawn(async move {
            let stage = Stage::default();
            let ended = tokio::time::timeout(patience, one(&gate, stage.clone())).await.is_ok();
            if ended { NAMES[6] } else { stage.name() }
        });
        while let Some(stage) = tasks.try_join_next() {
            let stage = stage?;
            *stages.entry(stage).or_default() += 1;
            cancels += usize::from(stage != NAMES[6]);
        }
    }
    tasks.shutdown().await;
    let seen = gate.snapshot();
    let target = seen.targets.values().next().ok_or("no target")?;
    let stats = simulator.stats();
    let left = vec![
        ("calls active", seen.active),
        ("slots held", target.in_flight),
        ("calls waiting", target.queue_depth),
        ("attempts in flight upstream", stats.in_flight),
        ("sequences running upstream", stats.running),
        ("sequences waiting upstream", stats.waiting),
    ];
    Ok((stages, left))
}

async fn one(gate: &Gate, stage: Stage) -> Result<(), Error> {
    let ask = Ask { tenant: "a", prompt: 8, output: STEADY_TOKENS, stream: true };
    let mut request = ask.request(URL);
    request.extensions_mut().insert(stage.clone());
    let mut body = gate.client().call(request).await?.into_body();
    stage.set(3);
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

/// Drops the futures of waiting calls after a slot was assigned to them and before they are polled
/// again. Returns how many of them had a slot, and how many slots and calls are left over at the
/// end.
async fn at_grant() -> Fallible<(usize, usize)> {
    let settings = SchedulerSettings::limited(1);
    let admission = Admission::new(
        "t".into(),
        &settings,
        BudgetSet::new(&RateConfig::default(), tokio::time::Instant::now().into_std()),
        None,
        "",
    );
    let mut held = admission.acquire(ticket()).await?;
    let mut granted = 0;
    for _ in 0..10_000 {
        let mut context = TaskContext::from_waker(Waker::noop());
        let mut next = Box::pin(admission.acquire(ticket()));
        if next.as_mut().poll(&mut context).is_ready() {
            return Err("a second slot of one".into());
        }
        // Assigns the slot to `next`, which is dropped before it is polled again.
        drop(held);
        granted += usize::from(admission.view().in_flight == 1);
        drop(next);
        held = pin!(admission.acquire(ticket())).await?;
    }
    drop(held);
    let view = admission.view();
    Ok((granted, view.in_flight + view.waiting))
}

fn ticket() -> Ticket {
    let now = Instant::now().into_std();
    Ticket::new("a".into(), now, now + Duration::from_secs(600))
}

/// Cancels calls during their backoff. Returns the number of retry credits (the retries that the
/// retry budget still allows) that were charged for retries that did not happen.
async fn credits() -> Fallible<f64> {
    const RESERVE: usize = 1_000;
    let simulator =
        Simulator::new(steady(Duration::from_millis(100), Faults { error_500: 1.0, ..Faults::default() }))?;
    let minute = Duration::from_secs(60);
    let retry = Retry::new().ratio(0.0).reserve(RESERVE as u32).max(minute).base(minute);
    let target = Target::new("sim").url(URL).cap(RESERVE).retry(retry);
    let gate = Gate::over(
        Config::builder().target(target).build()?,
        simulator_transport(&simulator, Duration::ZERO),
    )?;
    let balance = |gate: &Gate| gate.snapshot().targets.values().next().map_or(f64::NAN, |t| t.retry_budget);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..RESERVE {
        let gate = gate.clone();
        tasks.spawn(async move { one(&gate, Stage::default()).await });
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    if balance(&gate) >= RESERVE as f64 / 2.0 {
        return Err("too few were in backoff".into());
    }
    tasks.shutdown().await;
    // Calls with a drawn backoff shorter than this experiment made their retry and paid for it.
    let made = simulator.stats().total_attempts as f64 - RESERVE as f64;
    Ok(RESERVE as f64 - made - balance(&gate))
}
