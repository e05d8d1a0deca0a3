//! What decides how many calls may be with the workers: nobody, the post's controller, or ours.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tidegate::adaptive::{Ended, Kind, Limit, Sample, Settings};
use tidegate::config::AdaptiveConfig;
use tidegate_sim::scenario::quantile;

use super::{TARGET, WORKERS};

/// Times are since the start of the run.
pub(super) trait Controller {
    /// Calls that may be with the workers, all of them together.
    fn budget(&self) -> usize;
    /// Of these, how many may await their first token.
    fn awaiting(&self) -> usize {
        usize::MAX
    }
    fn sent(&mut self, _now: Duration, _id: u64, _prompt: u64) {}
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

/// How the post's controller descends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Descent {
    /// `cap //= 2`
    Halving,
    /// `cap -= step` (AISD)
    Step(usize),
}

/// What the post's controller takes for demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Demand {
    /// Some queue is not empty.
    Queued,
    /// Some queue is not empty, or something is in flight.
    QueuedOrInFlight,
}

/// The post's settings, under the post's names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) cap_per_worker: usize,
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) band: f64,
    pub(super) cooldown_ticks: u32,
    pub(super) descent: Descent,
    pub(super) demand: Demand,
}

impl Post {
    const TICK: Duration = Duration::from_secs(5);
    const WINDOW: Duration = Duration::from_secs(30);

    /// As it was deployed first. Its floor was not told; it speaks of a climb from 2.
    pub(super) const FIRST: Self = Self {
        cap_per_worker: 64,
        min: 2,
        max: 128,
        band: 0.0,
        cooldown_ticks: 0,
        descent: Descent::Halving,
        demand: Demand::QueuedOrInFlight,
    };
    /// "The final config".
    pub(super) const FINAL: Self =
        Self { min: 16, band: 0.2, cooldown_ticks: 3, descent: Descent::Step(4), ..Self::FIRST };

    pub(super) fn build(self) -> Aimd {
        Aimd {
            cap: self.cap_per_worker.clamp(self.min, self.max),
            settings: self,
            seen: VecDeque::new(),
            hold: 0,
            next: Self::TICK,
        }
    }
}

/// The post's controller as it was: a p99 of *user* TTFT, with the wait at the gateway in it. The core judges upstream TTFT alone, and can
/// and should not do this.
pub(super) struct Aimd {
    settings: Post,
    cap: usize,
    /// When each first token came, and how long its user had waited for it.
    seen: VecDeque<(Duration, Duration)>,
    hold: u32,
    next: Duration,
}

impl Aimd {
    /// Exact, where the post reads a histogram. Without a first token in the window it has nothing to go by.
    fn p99(&mut self, now: Duration) -> Option<f64> {
        let since = now.saturating_sub(Post::WINDOW);
        while self.seen.front().is_some_and(|&(at, _)| at < since) {
            self.seen.pop_front();
        }
        let mut ttft: Vec<f64> = self.seen.iter().map(|(_, ttft)| ttft.as_secs_f64()).collect();
        (!ttft.is_empty()).then(|| quantile(&mut ttft, 0.99))
    }
}

impl Controller for Aimd {
    fn budget(&self) -> usize {
        self.cap * WORKERS
    }

    fn first_token(&mut self, now: Duration, _id: u64, user: Duration) {
        self.seen.push_back((now, user));
    }

    fn next_tick(&self) -> Option<Duration> {
        Some(self.next)
    }

    fn tick(&mut self, now: Duration, queued: usize, in_flight: usize) {
        self.next = now + Post::TICK;
        let Post { min, max, band, cooldown_ticks, descent, demand, .. } = self.settings;
        let held = self.hold > 0;
        self.hold = self.hold.saturating_sub(1);
        let Some(p99) = self.p99(now) else { return };
        let target = TARGET.as_secs_f64();
        let wanted = queued > 0 || (demand == Demand::QueuedOrInFlight && in_flight > 0);
        if p99 > target * (1.0 + band) {
            // The descent alone waits for the window to be flushed; the climb does not.
            if !held {
                let lower = match descent {
                    Descent::Halving => self.cap / 2,
                    Descent::Step(step) => self.cap.saturating_sub(step),
                };
                self.cap = lower.max(min);
                self.hold = cooldown_ticks;
            }
        } else if p99 < target * (1.0 - band) && wanted {
            self.cap = (self.cap + 1).min(max);
        }
    }
}

/// Ours, as the gate drives it: told of nothing but the upstream.
pub(super) struct Ours {
    limit: Limit,
    origin: Instant,
    calls: HashMap<u64, Sample>,
}

impl Ours {
    const CEILING: usize = 256;

    /// Default settings, and the target of 2 s of which half is the queue's.
    pub(super) fn new() -> Self {
        Self::with(AdaptiveConfig::default(), Self::CEILING)
    }

    /// Begins elsewhere than by default. A ceiling below the start would be an error of the configuration.
    pub(super) fn starting_at(start: usize) -> Self {
        Self::with(AdaptiveConfig { start, ..AdaptiveConfig::default() }, start.max(Self::CEILING))
    }

    pub(super) fn with(adaptive: AdaptiveConfig, max: usize) -> Self {
        let origin = tokio::time::Instant::now().into_std();
        let settings = Settings { max, objective: Some(TARGET / 2), latency: None, tpot: None, adaptive };
        Self { limit: Limit::new(&settings, origin), origin, calls: HashMap::new() }
    }
}

impl Controller for Ours {
    fn budget(&self) -> usize {
        self.limit.slots()
    }

    fn awaiting(&self) -> usize {
        self.limit.awaiting()
    }

    fn sent(&mut self, now: Duration, id: u64, prompt: u64) {
        let kind = Kind { input: prompt, output: 0, streams: true };
        self.calls.insert(id, self.limit.sent(self.origin + now, kind));
    }

    fn first_token(&mut self, now: Duration, id: u64, _user: Duration) {
        if let Some(sample) = self.calls.get_mut(&id) {
            self.limit.first_token(self.origin + now, sample);
        }
    }

    fn ended(&mut self, now: Duration, id: u64) {
        if let Some(sample) = self.calls.remove(&id) {
            self.limit.ended(self.origin + now, sample, Ended::Completed { output: 0 });
        }
    }

    fn next_tick(&self) -> Option<Duration> {
        self.limit.next_wake().map(|at| at.saturating_duration_since(self.origin))
    }

    fn tick(&mut self, now: Duration, _queued: usize, _in_flight: usize) {
        self.limit.tick(self.origin + now);
    }
}
