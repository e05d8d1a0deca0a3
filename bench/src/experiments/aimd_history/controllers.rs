//! What decides how many calls may be with the workers: nobody, the post's controller, or ours.

use std::time::{Duration, Instant};

use tidegate::adaptive::{CallKind, Ended};
use tidegate::config::AdaptiveConfig;

use super::TARGET;
use crate::experiments::adaptive::contender::{self, Contender, Sent, Terms};
use crate::experiments::adaptive::peers::post::Aimd;

/// Times are since the start of the run.
pub(super) trait Controller {
    /// Calls that may be with the workers, all of them together.
    fn budget(&self) -> usize;
    /// Of these, how many may await their first token.
    fn awaiting(&self) -> usize {
        usize::MAX
    }
    fn sent(&mut self, _now: Duration, _id: u64, _prompt: u64, _in_flight: usize) {}
    /// `user`: since the call came to the gateway, so with its wait there.
    fn first_token(&mut self, _now: Duration, _id: u64, _user: Duration) {}
    fn ended(&mut self, _now: Duration, _id: u64) {}
    /// When it wants to be asked next.
    fn next_tick(&self) -> Option<Duration> {
        None
    }
    fn tick(&mut self, _now: Duration, _queued: usize, _in_flight: usize) {}
}

/// A static budget: the post's gateway with its controller off.
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

/// Ours, as the gate drives it: told of nothing but the upstream.
pub(super) struct Ours {
    policy: contender::Ours,
    origin: Instant,
}

impl Ours {
    const CEILING: usize = 256;

    /// Default settings, and the target of 2 s of which half is the queue's.
    pub(super) fn new() -> Self {
        Self::with(AdaptiveConfig::default(), Self::CEILING)
    }

    /// With room to climb as far as the post's.
    pub(super) fn up_to(max: usize) -> Self {
        Self::with(AdaptiveConfig::default(), max)
    }

    /// Begins elsewhere than by default. A ceiling below the start would be an error of the configuration.
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
        // It does not look at what a call has waited here.
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
