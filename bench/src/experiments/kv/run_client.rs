//! Simulates the calls of `kv` through the client, with the simulator as upstream. There are so
//! many callers that the engine is never idle. When a caller's call has ended, the caller makes the
//! next call of the list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::config::{Config, Pool, Predict, Target};
use tidegate::{Gate, Lane, Transport};
use tidegate_sim::engine::EngineConfig;
use tidegate_sim::{SimConfig, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::time::{Instant, sleep, sleep_until};

use super::workload::Workload;
use super::{FROM, MAX_TOKENS, Outcome, RunCounts, UNTIL};
use crate::Fallible;
use crate::client_call::{URL, call};
use crate::trace_lengths::Work;
use crate::virtual_time;

/// The number of callers. Some always wait, even with the largest cache.
const CALLERS: usize = 200;

/// The time at the start in which only one caller makes calls. A gate reads the metrics of its
/// replicas from the first call on, so it knows them when the other callers begin.
const ALONE: Duration = Duration::from_secs(2);

/// The pool's only replica.
const REPLICA: &str = "http://replica.test";

/// How the gate knows the memory of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemorySource {
    /// The memory size is configured, and the gate knows nothing of the prefix cache.
    Configured,
    /// The replica of a pool reports memory size and prefix cache.
    Reported,
}

/// Simulates one run through the client, and returns its figures.
pub(super) fn play(
    engine: &EngineConfig,
    known: MemorySource,
    workload: Workload,
    calls: &[Work],
    seed: u64,
) -> Fallible<Outcome> {
    let config = SimConfig { workers: 1, engine: engine.clone(), attempt_log: 0, ..SimConfig::calibrated() };
    let capacity = u64::from(engine.num_blocks) * u64::from(engine.block_size);
    virtual_time::run(seed, async {
        let simulator = Simulator::new(config)?;
        let target = Target::new("sim").predict(Predict::Off);
        // Memory must bind, and not slots.
        let target = match known {
            MemorySource::Configured => target.url(URL).cap(CALLERS).kv_tokens(capacity),
            MemorySource::Reported => target.url(URL).pool(Pool::new([REPLICA]).cap(CALLERS)),
        };
        let gate = Gate::over(
            Config::builder().target(target).build()?,
            simulator_transport(&simulator, Duration::ZERO),
        )?;
        let start = Instant::now();
        let calls: Arc<[Work]> = calls.into();
        let next = Arc::new(AtomicUsize::new(0));
        let counts = Arc::new(Mutex::new(RunCounts::default()));
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let (client, calls, next, counts) =
                (Transport::new(gate.client()), calls.clone(), next.clone(), counts.clone());
            callers.spawn(async move {
                if caller > 0 {
                    sleep(ALONE).await;
                }
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let Some(work) = calls.get(id) else { break };
                    let messages = workload.messages(id as u64, work);
                    let request = work.ask_with(messages, "a", Lane::Standard, MAX_TOKENS, true);
                    let seen = call(client.clone(), request).await;
                    if seen.ok {
                        counts.lock().done(start.elapsed(), *work);
                    }
                }
            });
        }
        sleep_until(start + FROM).await;
        let before = simulator.stats().preemptions;
        sleep_until(start + UNTIL).await;
        let stats = simulator.stats();
        callers.shutdown().await;
        let mut counts = counts.lock();
        (counts.cold, counts.preemptions) = (before, stats.preemptions - before);
        Ok(counts.outcome(stats.peak_kv))
    })
}
