//! The queue of the engine behind an upstream, from the running and waiting calls that the engine
//! reports.
//!
//! # Algorithm
//!
//! A call that arrives between two steps of an engine waits for the next one, so a report may count
//! waiting calls although the batch has room. As in CoDel, the minimum over several reports is the
//! *standing queue*. While there is one and the number of running calls does not grow, the engine's
//! batch is full, and that number is its size. More slots would only move calls from the local
//! queue, which is ordered by priority and tenant, to the engine's, which is not.
//!
//! If the number of running calls grows, the waiting calls are a burst of prompts that the engine
//! has not read yet. They say nothing about how many answers it can write at the same time.
//!
//! The clients of one engine see the same queue, and each cuts its own calls by the same factor, so
//! that together they fit.
//!
//! Reports that count fewer calls than this client has in flight are ignored: they come from one of
//! several engines behind the same address.
//!
//! # Source
//!
//! K. Nichols, V. Jacobson, *Controlling queue delay* (2012), for the minimum over an interval.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_protocol::vllm::EngineMetrics;

use crate::push_bounded;

/// Number of consecutive reports with waiting calls that show a standing queue.
const REPORTS: usize = 3;
/// Number of reports that are remembered. Their maxima are the size of the batch, and the calls
/// that the engine has at the same time: when several calls end together, a single report counts
/// fewer.
const REMEMBERED: usize = 10;
/// Age beyond which a report is not used.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// Time for which the size of the batch limits growth after a standing queue was last seen. The
/// size can grow, for example when memory becomes free.
const BATCH_KNOWN_FOR: Duration = Duration::from_secs(30);
/// Length of the standing queue that is permitted without an objective, as a share of the batch.
/// With a few waiting calls the batch stays full in the time from the end of a call until the next
/// one arrives.
const QUEUE_SHARE: f64 = 1.0 / 16.0;
/// The same share with an objective, which decides how long calls may wait in the engine. This is
/// only a bound.
const QUEUE_SHARE_WITH_OBJECTIVE: f64 = 0.25;
/// Minimum share of this client's calls in flight that an engine must report to be the only one.
const MIN_REPORTED_SHARE: f64 = 0.75;
/// Number of calls by which a report may fall short in any case, because they are on their way.
const UNDERWAY: f64 = 2.0;

/// The latest reports of the engine, and the size of its batch if that is known.
#[derive(Debug)]
pub(super) struct EngineQueue {
    /// The permitted length of the standing queue, as a share of the batch.
    share: f64,
    /// The last reports with the time of their arrival, at most [`REMEMBERED`], the newest last.
    reports: VecDeque<(Instant, EngineMetrics)>,
    /// The size of the batch, and when it was last seen to be full. `None` before that.
    batch: Option<(Instant, f64)>,
}

impl EngineQueue {
    /// Creates a queue that is not known yet. `has_objective` is `true` if latencies have an
    /// objective.
    pub(super) fn new(has_objective: bool) -> Self {
        let share = if has_objective { QUEUE_SHARE_WITH_OBJECTIVE } else { QUEUE_SHARE };
        Self { share, reports: VecDeque::new(), batch: None }
    }

    /// Adds a report that has just arrived, while `in_flight` calls of this client are in flight.
    ///
    /// Returns the number of calls that this client may have in flight if the standing queue is
    /// longer than permitted, otherwise `None`.
    pub(super) fn observe(&mut self, now: Instant, in_flight: usize, engine: &EngineMetrics) -> Option<f64> {
        if self.reports.back().is_some_and(|(at, _)| is_stale(now, *at)) {
            self.reports.clear();
        }
        if calls(engine) + UNDERWAY < MIN_REPORTED_SHARE * in_flight as f64 {
            self.reports.clear();
            return None;
        }
        push_bounded(&mut self.reports, REMEMBERED, (now, *engine));
        let standing = self.standing().filter(|standing| *standing >= 1.0 && !self.is_growing())?;
        let batch = self.highest(|engine| engine.running);
        self.batch = Some((now, batch));
        let permitted = self.permitted(batch);
        let excess = standing >= permitted + 1.0;
        excess.then(|| in_flight as f64 * (batch + permitted) / (batch + standing))
    }

    /// Returns `true` if enough recent reports show how long the engine's queue is.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        self.reports.len() >= REPORTS && self.reports.back().is_some_and(|(at, _)| !is_stale(now, *at))
    }

    /// Returns `true` if more calls run now than in the oldest of the last [`REPORTS`] reports.
    fn is_growing(&self) -> bool {
        let mut latest = self.reports.iter().rev().map(|(_, engine)| engine.running);
        let now = latest.next().unwrap_or(0.0);
        latest.nth(REPORTS - 2).is_some_and(|before| now > before)
    }

    /// Returns the number of slots by which the limit may grow. Infinite if the size of the batch
    /// is not known.
    pub(super) fn room(&self, now: Instant) -> f64 {
        let batch = self.batch.filter(|(at, _)| now.saturating_duration_since(*at) <= BATCH_KNOWN_FOR);
        match batch {
            Some((_, batch)) if self.is_known(now) => {
                (batch + self.permitted(batch) - self.highest(calls)).max(0.0)
            }
            _ => f64::INFINITY,
        }
    }

    /// Returns the minimum queue of the last [`REPORTS`] reports, or `None` if they are too few.
    fn standing(&self) -> Option<f64> {
        let waiting = self.reports.iter().rev().take(REPORTS).map(|(_, engine)| engine.waiting);
        (self.reports.len() >= REPORTS).then(|| waiting.fold(f64::INFINITY, f64::min))
    }

    /// Returns the permitted length of the standing queue of an engine with a batch of this size.
    fn permitted(&self, batch: f64) -> f64 {
        (self.share * batch).max(1.0)
    }

    /// Returns the maximum of a number over the remembered reports, at least 1.
    fn highest(&self, of: fn(&EngineMetrics) -> f64) -> f64 {
        self.reports.iter().map(|(_, engine)| of(engine)).fold(1.0, f64::max)
    }
}

/// Returns the number of calls of all clients that the engine has.
fn calls(engine: &EngineMetrics) -> f64 {
    engine.running + engine.waiting
}

fn is_stale(now: Instant, at: Instant) -> bool {
    now.saturating_duration_since(at) > STALE_AFTER
}
