//! Conclusions from the engine's own metrics: whether the engine queues calls, how many it runs at
//! once, and whether its KV cache is full.

use super::evidence::Evidence;
use super::noise::NOTABLE;
use crate::search_result::EngineUse;

/// The engine has a queue at a cap if at least this share of the cap, and at least
/// [`MIN_WAITING`] calls, wait in the engine on average.
const MIN_WAITING_SHARE: f64 = 0.2;
/// Minimum mean number of calls that wait in the engine for it to have a queue.
const MIN_WAITING: f64 = 2.0;
/// Mean share of the KV cache in use from which on the cache counts as full.
const FULL_KV_USAGE: f64 = 0.85;
/// The KV cache also counts as full if more than this share of the attempts is preempted.
const PREEMPTED_SHARE: f64 = 0.03;

/// The queue of an engine that has more calls than it can run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EngineQueue {
    /// Lowest accepted cap at which calls wait in the engine.
    pub(super) cap: usize,
    /// Number of calls that the engine runs at once while others wait.
    pub(super) running: usize,
    /// Mean number of calls that wait in the engine at `cap`.
    pub(super) waiting: f64,
    /// Whether the KV cache is full at `cap`.
    pub(super) is_kv_full: bool,
    /// Highest cap that can be the knee. A few more calls than the engine runs keep its slots in
    /// use while a call is replaced by the next one. If the KV cache is full, the number of calls
    /// that the engine runs varies, so that the knee may be higher.
    pub(super) highest_knee: usize,
}

fn has_queue(cap: usize, engine: &EngineUse) -> bool {
    engine.waiting >= (MIN_WAITING_SHARE * cap as f64).max(MIN_WAITING)
}

impl Evidence {
    /// Returns the engine's queue at the lowest accepted cap that has one, or `None` if the engine
    /// queues no calls or reports no metrics.
    pub(super) fn engine_queue(&self) -> Option<EngineQueue> {
        let queued = || {
            self.accepted()
                .filter_map(|summary| Some((summary.cap, summary.engine?)))
                .filter(|(cap, engine)| has_queue(*cap, engine))
        };
        let (cap, lowest) = queued().min_by_key(|(cap, _)| *cap)?;
        let mut running: Vec<f64> = queued().map(|(_, engine)| engine.running).collect();
        running.sort_by(f64::total_cmp);
        let running = running.get(running.len() / 2)?.round().max(1.0) as usize;
        let is_kv_full = self.is_kv_full_from(cap) == Some(true);
        let highest_knee =
            if is_kv_full { cap.min(running + (running / 4).max(1)) } else { running + (running / 8).max(1) };
        Some(EngineQueue { cap, running, waiting: lowest.waiting, is_kv_full, highest_knee })
    }

    /// Returns `true` if the only step at `cap` had no call waiting in the engine. A throughput
    /// that does not rise then has another cause, for example another program.
    pub(super) fn is_idle_engine_slow(&self, cap: usize) -> bool {
        let mut steps = self.accepted().filter(|summary| summary.cap == cap);
        let first = steps.next().and_then(|summary| summary.engine);
        first.is_some_and(|engine| engine.waiting < MIN_WAITING) && steps.next().is_none()
    }

    /// Returns `true` if the steps are noisy and no call waited in the engine at `cap`. A goodput
    /// that seems to rise no further then proves little.
    pub(super) fn may_hide_a_rise(&self, cap: usize) -> bool {
        let engine =
            self.accepted().filter(|summary| summary.cap == cap).last().and_then(|summary| summary.engine);
        self.noise() >= NOTABLE && engine.is_some_and(|engine| engine.waiting < MIN_WAITING)
    }

    /// Returns the highest value of a metric in the accepted steps at or above `cap`, or `None` if
    /// it is unknown.
    pub(super) fn engine_from(&self, cap: usize, of: impl Fn(&EngineUse) -> Option<f64>) -> Option<f64> {
        let engines =
            self.accepted().filter(|summary| summary.cap >= cap).filter_map(|summary| summary.engine);
        engines.filter_map(|engine| of(&engine)).reduce(f64::max)
    }

    /// Returns `true` if the engine's KV cache is full in the accepted steps at or above `cap`, or
    /// `None` if the engine reports no metrics there.
    pub(super) fn is_kv_full_from(&self, cap: usize) -> Option<bool> {
        let mut known = self
            .accepted()
            .filter(|summary| summary.cap >= cap)
            .filter_map(|summary| Some((summary, summary.engine?)))
            .peekable();
        known.peek()?;
        Some(known.any(|(summary, engine)| {
            let share = engine.preemptions.unwrap_or(0) as f64 / summary.attempts.max(1) as f64;
            share > PREEMPTED_SHARE || engine.kv_usage.is_some_and(|usage| usage >= FULL_KV_USAGE)
        }))
    }
}
