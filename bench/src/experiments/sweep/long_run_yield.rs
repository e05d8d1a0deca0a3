//! Measures the long-run yield of a configuration: its goodput and failures, with so many callers
//! that some always wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::config::Config;
use tidegate::{Gate, Transport};
use tidegate_sim::Simulator;
use tokio::time::Instant;

use super::drawn_calls;
use super::server::{Running, Server};
use crate::client_call::call;
use crate::trace_lengths::Work;
use crate::{Fallible, virtual_time};

/// The number of calls that are measured after the warm-up.
const COUNTED: usize = 1_200;
/// The maximum duration of a measurement, in virtual time. It ends then, even if fewer calls were
/// measured.
const LONGEST: Duration = Duration::from_secs(3_000);

/// The name of the configured target, which is also the model name of a sweep.
pub(crate) const TARGET: &str = "sim";

/// The long-run yield of a configuration: goodput, failures, and load of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Yield {
    /// Completed calls per second.
    pub(crate) goodput: f64,
    /// The share of attempts that were rejected or failed, from 0 to 1.
    pub(crate) failed: f64,
    /// The share of time in which the client was busy, from 0 to 1. 0 if it is not measured.
    pub(crate) busy: f64,
}

/// The share of time in which the client is busy above which it counts as overloaded, because it
/// reads answers long after their arrival. The sweep has the same threshold.
const HOLDS: f64 = 0.95;

impl Yield {
    /// Returns `true` if at most 1 % of attempts fail and the client is not overloaded.
    ///
    /// A sweep accepts a cap with which 0.5 % of attempts fail, and rejects one with 3 %. The
    /// threshold here lies in between.
    pub(crate) fn is_stable(&self) -> bool {
        self.failed <= 0.01 && self.busy <= HOLDS
    }
}

/// Measures the long-run yield of a configuration in front of `server`. `lines` is the
/// configuration as TOML text, with a target at [`URL`](crate::client_call::URL). `cap` is the
/// target's maximum concurrency, and `works` has the calls, which are repeated.
pub(crate) fn measure_yield(
    server: &Server,
    lines: &str,
    cap: usize,
    works: &Arc<[Work]>,
) -> Fallible<Yield> {
    virtual_time::run(1, async {
        let Running { simulator, transport, mut cpu } = server.start()?;
        let mut busy = || cpu.as_mut().and_then(|cpu| cpu()).map_or(0.0, |usage| usage.process);
        let gate = Gate::over(Config::from_toml(lines)?, transport)?;
        let (next, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Events are costly only for a client that is slow to read them.
        let streams = !server.read_time.is_zero();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..cap + (cap / 4).max(8) {
            let (client, works) = (Transport::new(gate.client()), works.clone());
            let (next, done) = (next.clone(), done.clone());
            callers.spawn(async move {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed) % works.len().max(1);
                    let Some(work) = works.get(place) else { return };
                    let seen = call(client.clone(), drawn_calls::request(*work, streams)).await;
                    done.fetch_add(usize::from(seen.ok), Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        warm_up(server, &gate, cap).await?;
        until(&done, 2 * cap + 50, start).await;
        let (from, before, failed) = (Instant::now(), done.load(Ordering::Relaxed), failures(&simulator));
        // The measurement starts here.
        busy();
        until(&done, before + COUNTED, start).await;
        let calls = done.load(Ordering::Relaxed) - before;
        let after = failures(&simulator);
        let attempts = (after.0 - failed.0).max(1) as f64;
        let busy = busy();
        callers.shutdown().await;
        Ok(Yield {
            goodput: calls as f64 / from.elapsed().as_secs_f64(),
            failed: (after.1 - failed.1) as f64 / attempts,
            busy,
        })
    })
}

/// Waits until the server is in its long-run state. With a token rate, this is when the saved
/// tokens are spent. With a load that may only rise slowly, raises the cap slowly to `cap`.
async fn warm_up(server: &Server, gate: &Gate, cap: usize) -> Fallible<()> {
    let faults = &server.config.faults;
    if faults.token_rate.is_some() {
        tokio::time::sleep(Duration::from_secs(200)).await;
    }
    if let Some(growth) = faults.load_growth {
        for less in growth.at_once.min(cap)..=cap {
            gate.set_cap(TARGET, less)?;
            tokio::time::sleep(Duration::from_secs_f64(2.0 / growth.per_s)).await;
        }
    }
    Ok(())
}

async fn until(done: &AtomicUsize, count: usize, start: Instant) {
    while done.load(Ordering::Relaxed) < count && start.elapsed() < LONGEST {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the number of attempts so far, and the number of those without status 200.
fn failures(simulator: &Simulator) -> (u64, u64) {
    let stats = simulator.stats();
    let statuses = stats.tenants.values().flat_map(|tenant| &tenant.statuses);
    (stats.total_attempts, statuses.filter(|(status, _)| **status != 200).map(|(_, count)| count).sum())
}
