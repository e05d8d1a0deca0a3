//! The controller that the post "Adaptive Concurrency on a Multi-Tenant vLLM Gateway" published:
//! AIMD on the p99 of the *user's* TTFT, which includes the wait at the gateway.
//!
//! Tidegate's percentile mode applies the same rule to the upstream's TTFT.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tidegate::config::{AdaptiveConfig, Decrease, Detector, Percentile};
use tidegate::policy::adaptive::Ended;
use tidegate_sim::scenario::quantile;

use super::super::contender::{Contender, Sent, Terms};

/// How the controller decreases the cap (the maximum number of calls in flight at each worker).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Descent {
    /// Halves the cap: `cap //= 2`.
    Halving,
    /// Subtracts a number of calls: `cap -= step` (additive increase, subtractive decrease).
    Step(usize),
}

/// The condition that the controller regards as demand. It increases the cap only if there is
/// demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    /// At least one call is queued.
    Queued,
    /// At least one call is queued or in flight.
    QueuedOrInFlight,
}

/// The settings of the published controller, under their published names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) workers: usize,
    pub(crate) target: Duration,
    pub(crate) cap_per_worker: usize,
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) band: f64,
    pub(crate) cooldown_ticks: u32,
    pub(crate) descent: Descent,
    pub(crate) demand: Demand,
}

impl Post {
    const TICK: Duration = Duration::from_secs(5);
    const WINDOW: Duration = Duration::from_secs(30);

    /// The settings of the first deployment. Its lowest cap was not published, but the post
    /// mentions a climb from 2.
    pub(crate) const FIRST: Self = Self {
        workers: 2,
        target: Duration::from_secs(2),
        cap_per_worker: 64,
        min: 2,
        max: 128,
        band: 0.0,
        cooldown_ticks: 0,
        descent: Descent::Halving,
        demand: Demand::QueuedOrInFlight,
    };
    /// The settings that were published as the "final config".
    pub(crate) const FINAL: Self =
        Self { min: 16, band: 0.2, cooldown_ticks: 3, descent: Descent::Step(4), ..Self::FIRST };

    /// Returns the configuration with which Tidegate's adaptive limit follows the same rule. The
    /// numbers of calls in it are for all workers together instead of per worker, and the limit
    /// uses the upstream's TTFT.
    pub(crate) fn in_core(&self) -> AdaptiveConfig {
        AdaptiveConfig {
            start: self.cap_per_worker * self.workers,
            min: self.min * self.workers,
            detector: Detector::Percentile(Percentile {
                tick: Self::TICK,
                window: Self::WINDOW,
                band: self.band,
                hold: self.cooldown_ticks,
                ..Percentile::default()
            }),
            decrease: match self.descent {
                Descent::Halving => Decrease::Factor(0.5),
                Descent::Step(step) => Decrease::Step(step * self.workers),
            },
            // The post has no such bound.
            awaiting: Some(usize::from(u16::MAX)),
        }
    }

    pub(crate) fn build(self) -> Aimd {
        Aimd {
            cap: self.cap_per_worker.clamp(self.min, self.max),
            settings: self,
            seen: VecDeque::new(),
            cooldown_left: 0,
            next: Self::TICK,
        }
    }
}

/// The controller. Once per tick (5 s), it may change the cap: the maximum number of calls in
/// flight at each worker.
pub(crate) struct Aimd {
    settings: Post,
    cap: usize,
    /// For each first token in the rolling window, its time since the start of the run and the
    /// user's TTFT.
    seen: VecDeque<(Duration, Duration)>,
    cooldown_left: u32,
    next: Duration,
}

impl Aimd {
    /// Returns the exact p99 of the user's TTFT in the rolling window, in seconds. `None` without a
    /// first token in the window. The published controller estimates the p99 from a histogram
    /// instead.
    fn p99(&mut self, now: Duration) -> Option<f64> {
        let since = now.saturating_sub(Post::WINDOW);
        while self.seen.front().is_some_and(|&(at, _)| at < since) {
            self.seen.pop_front();
        }
        let mut ttft: Vec<f64> = self.seen.iter().map(|(_, ttft)| ttft.as_secs_f64()).collect();
        (!ttft.is_empty()).then(|| quantile(&mut ttft, 0.99))
    }

    /// Returns the maximum number of calls in flight at all workers together.
    pub(crate) fn budget(&self) -> usize {
        self.cap * self.settings.workers
    }

    /// Reports a first token. `user` is the TTFT since the call arrived at the gateway.
    pub(crate) fn first_token(&mut self, now: Duration, user: Duration) {
        self.seen.push_back((now, user));
    }

    pub(crate) fn next_tick(&self) -> Duration {
        self.next
    }

    pub(crate) fn tick(&mut self, now: Duration, queued: usize, in_flight: usize) {
        self.next = now + Post::TICK;
        let Post { min, max, band, cooldown_ticks, descent, demand, .. } = self.settings;
        let held = self.cooldown_left > 0;
        self.cooldown_left = self.cooldown_left.saturating_sub(1);
        let Some(p99) = self.p99(now) else { return };
        let target = self.settings.target.as_secs_f64();
        let has_demand = queued > 0 || (demand == Demand::QueuedOrInFlight && in_flight > 0);
        if p99 > target * (1.0 + band) {
            // The cool-down lets old samples leave the window. It delays decreases only.
            if !held {
                let lower = match descent {
                    Descent::Halving => self.cap / 2,
                    Descent::Step(step) => self.cap.saturating_sub(step),
                };
                self.cap = lower.max(min);
                self.cooldown_left = cooldown_ticks;
            }
        } else if p99 < target * (1.0 - band) && has_demand {
            self.cap = (self.cap + 1).min(max);
        }
    }
}

/// The published controller ([`Aimd`]) as a [`Contender`].
pub(super) struct AsPosted {
    law: Aimd,
    origin: Instant,
    waiting: usize,
    /// For each attempt in flight, when its call arrived. `None` once its first token has come.
    calls: HashMap<u64, Option<Instant>>,
}

impl AsPosted {
    /// Creates the controller with the post's final settings, except that it is for one worker, has
    /// the objective and the maximum of `terms`, and halves the cap, as in a later publication.
    /// That publication also has the maximum wait of 1 s that applies to all contenders.
    pub(super) fn new(terms: &Terms, now: Instant) -> Self {
        let settings = Post {
            workers: 1,
            target: terms.objective,
            max: terms.ceiling,
            descent: Descent::Halving,
            ..Post::FINAL
        };
        Self { law: settings.build(), origin: now, waiting: 0, calls: HashMap::new() }
    }
}

impl Contender for AsPosted {
    fn limit(&self) -> usize {
        self.law.budget()
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        self.calls.insert(sent.id, now.checked_sub(sent.waited));
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        if let Some(asked) = self.calls.get_mut(&id).and_then(Option::take) {
            self.law.first_token(now - self.origin, now.saturating_duration_since(asked));
        }
    }

    fn ended(&mut self, _now: Instant, id: u64, _how: Ended) {
        // The post has only a histogram of TTFT, without errors and without calls that do not
        // stream.
        self.calls.remove(&id);
    }

    fn queued(&mut self, _now: Instant, waiting: usize) {
        self.waiting = waiting;
    }

    fn next_wake(&self) -> Option<Instant> {
        Some(self.origin + self.law.next_tick())
    }

    fn tick(&mut self, now: Instant) {
        if now >= self.origin + self.law.next_tick() {
            self.law.tick(now - self.origin, self.waiting, self.calls.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cap after each of ten ticks, if there is one first token per tick and its TTFT
    /// is `ttft`.
    fn caps(settings: Post, ttft: Duration) -> Vec<usize> {
        let mut aimd = settings.build();
        let mut now = Duration::ZERO;
        let mut tick = || {
            now += Post::TICK;
            aimd.first_token(now, ttft);
            aimd.tick(now, 0, 1);
            aimd.cap
        };
        (0..10).map(|_| tick()).collect()
    }

    #[test]
    fn law_follows_the_published_controller() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(caps(Post::FIRST, seconds(2.1)), [32, 16, 8, 4, 2, 2, 2, 2, 2, 2]);
        // Within a fifth of the target nothing changes.
        assert_eq!(caps(Post::FINAL, seconds(2.1)), [64; 10]);
        // Three ticks between two decreases, none between two increases.
        assert_eq!(caps(Post::FINAL, seconds(2.5)), [60, 60, 60, 60, 56, 56, 56, 56, 52, 52]);
        assert_eq!(caps(Post::FINAL, seconds(1.5)), [65, 66, 67, 68, 69, 70, 71, 72, 73, 74]);
        // No call is queued.
        assert_eq!(caps(Post { demand: Demand::Queued, ..Post::FINAL }, seconds(1.5)), [64; 10]);
    }

    #[test]
    fn samples_older_than_the_window_are_dropped() {
        let mut aimd = Post::FINAL.build();
        aimd.first_token(Duration::from_secs(1), Duration::from_secs(9));
        assert_eq!(aimd.p99(Duration::from_secs(31)), Some(9.0));
        assert_eq!(aimd.p99(Duration::from_secs(32)), None);
    }
}
