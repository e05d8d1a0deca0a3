//! The compared controllers of the budget (the maximum number of calls in flight): a constant, the
//! post's controller, and Tidegate's limit.

use std::time::{Duration, Instant};

use tidegate::config::AdaptiveConfig;
use tidegate::policy::adaptive::{CallKind, Ended};

use super::TARGET;
use crate::experiments::adaptive::contender::{self, Contender, Sent, Terms};
use crate::experiments::adaptive::peers::published_aimd::Aimd;

/// A controller of the budget (the maximum number of calls in flight). Times count from the start
/// of the run.
pub(super) trait Controller {
    /// Returns the maximum number of calls in flight at all workers together.
    fn budget(&self) -> usize;
    /// Returns the maximum number of calls that may await their first token. Default: no limit.
    fn awaiting(&self) -> usize {
        usize::MAX
    }
    fn sent(&mut self, _now: Duration, _id: u64, _prompt: u64, _in_flight: usize) {}
    /// Reports a first token. `user` is the TTFT since the call arrived at the gateway.
    fn first_token(&mut self, _now: Duration, _id: u64, _user: Duration) {}
    fn ended(&mut self, _now: Duration, _id: u64) {}
    /// Returns the time of the next [`Controller::tick`]. `None` if no tick is needed.
    fn next_tick(&self) -> Option<Duration> {
        None
    }
    fn tick(&mut self, _now: Duration, _queued: usize, _in_flight: usize) {}
}

/// A controller with a constant budget: the maximum number of calls in flight at all workers
/// together. It stands for the published gateway with its controller off.
pub(super) struct Static(pub(super) usize);

impl Controller for Static {
    fn budget(&self) -> usize {
        self.0
    }
}

impl Controller for Aimd {
    fn budget(&self) -> usize {
        self.budget()
    }

    fn first_token(&mut self, now: Duration, _id: u64, user: Duration) {
        self.first_token(now, user);
    }

    fn next_tick(&self) -> Option<Duration> {
        Some(self.next_tick())
    }

    fn tick(&mut self, now: Duration, queued: usize, in_flight: usize) {
        self.tick(now, queued, in_flight);
    }
}

/// Tidegate's adaptive limit. As in the gate, it measures the upstream's TTFT, without the wait at
/// the gateway.
pub(super) struct Ours {
    policy: contender::Ours,
    origin: Instant,
}

impl Ours {
    const CEILING: usize = 256;

    /// Creates the limit with default settings and a TTFT objective of 2 s, of which the gateway's
    /// queue may take 1 s.
    pub(super) fn new() -> Self {
        Self::with(AdaptiveConfig::default(), Self::CEILING)
    }

    /// Creates the limit with default settings, and a maximum of `max` calls.
    pub(super) fn up_to(max: usize) -> Self {
        Self::with(AdaptiveConfig::default(), max)
    }

    /// Creates the limit with an initial value of `start` calls. The maximum of the limit is raised
    /// to `start` if it is lower.
    pub(super) fn starting_at(start: usize) -> Self {
        Self::with(AdaptiveConfig { start, ..AdaptiveConfig::default() }, start.max(Self::CEILING))
    }

    pub(super) fn with(adaptive: AdaptiveConfig, max: usize) -> Self {
        let origin = tokio::time::Instant::now().into_std();
        let terms = Terms { objective: TARGET, wait: TARGET / 2, ceiling: max };
        Self { policy: contender::Ours::new(&terms, adaptive, origin), origin }
    }
}

impl Controller for Ours {
    fn budget(&self) -> usize {
        self.policy.limit()
    }

    fn awaiting(&self) -> usize {
        self.policy.awaiting()
    }

    fn sent(&mut self, now: Duration, id: u64, prompt: u64, in_flight: usize) {
        let kind = CallKind { input: prompt, output: 0, streams: true };
        // Our limit does not use the time that a call waited at the gateway.
        self.policy.sent(self.origin + now, Sent { id, kind, waited: Duration::ZERO, in_flight });
    }

    fn first_token(&mut self, now: Duration, id: u64, _user: Duration) {
        self.policy.first_token(self.origin + now, id);
    }

    fn ended(&mut self, now: Duration, id: u64) {
        self.policy.ended(self.origin + now, id, Ended::Completed { output: 0 });
    }

    fn next_tick(&self) -> Option<Duration> {
        self.policy.next_wake().map(|at| at.saturating_duration_since(self.origin))
    }

    fn tick(&mut self, now: Duration, _queued: usize, _in_flight: usize) {
        self.policy.tick(self.origin + now);
    }
}
