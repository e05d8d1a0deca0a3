//! The relative speed of replicas, learned from times to first token: a replica that takes three
//! times as long for the same work gets about a third of the calls.
//!
//! A replica's speed is a decaying mean of the time to first token, divided by a decaying mean of
//! the work before it (in prompt tokens), and compared with the same ratio of the whole pool.
//! Because a few calls say little, each replica starts with [`PRIOR_CALLS`] calls at the pool's
//! speed.

use std::time::{Duration, Instant};

/// Half-life of observations. Old ones are forgotten so that a slow replica is tried again.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Factor by which the weight of older calls decays with each call, so that the mean covers about
/// ten calls.
const DECAY: f64 = 0.9;
/// Number of assumed calls at the pool's speed that each replica starts with.
const PRIOR_CALLS: f64 = 2.0;
/// Maximum ratio between a replica's speed and the pool's, in either direction.
const MAX_RATIO: f64 = 8.0;

/// The speed of one replica, as decayed sums of time and work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    /// Sum of the times to first token, in seconds.
    seconds: f64,
    /// Sum of the work before these first tokens, in prompt tokens.
    work: f64,
    /// When the sums were last updated, or `None` if nothing was observed.
    at: Option<Instant>,
}

impl Speed {
    /// Records a first token that took the time `took` after `work` prompt tokens of work.
    pub(super) fn observe(&mut self, now: Instant, work: f64, took: Duration) {
        let decayed = self.decayed(now);
        self.seconds = decayed.seconds * DECAY + took.as_secs_f64();
        self.work = decayed.work * DECAY + work;
        self.at = Some(now);
    }

    /// Returns the sums as they have decayed until `now`.
    fn decayed(self, now: Instant) -> Self {
        let age = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let left = 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64());
        Self { seconds: self.seconds * left, work: self.work * left, at: self.at }
    }
}

/// The speed of the whole pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSpeed {
    /// Seconds per prompt token of work.
    rate: f64,
    /// Work of the [`PRIOR_CALLS`] calls that each replica starts with, in prompt tokens.
    prior_work: f64,
}

impl PoolSpeed {
    /// Returns the pool's speed from those of its replicas, or `None` if no first token was
    /// observed.
    pub(super) fn from_replicas(replicas: impl Iterator<Item = Speed>) -> Option<Self> {
        let known = replicas.filter(|speed| speed.work > 0.0);
        let (seconds, work, count) = known.fold((0.0, 0.0, 0.0), |(seconds, work, count), speed| {
            (seconds + speed.seconds, work + speed.work, count + 1.0)
        });
        let rate = seconds / work;
        let prior_work = PRIOR_CALLS * (1.0 - DECAY) * work / count;
        (rate.is_finite() && rate > 0.0).then_some(Self { rate, prior_work })
    }

    /// Returns the time that a replica with the speed `of` takes for some work, as a multiple of
    /// the pool's mean time for the same work: above 1 for slow replicas.
    pub(super) fn slowness(&self, now: Instant, of: Speed) -> f64 {
        let of = of.decayed(now);
        let own = (of.seconds + self.rate * self.prior_work) / (of.work + self.prior_work);
        (own / self.rate).clamp(1.0 / MAX_RATIO, MAX_RATIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_is_learned_within_some_calls_and_forgotten_later() {
        let now = crate::testing::epoch();
        let mut all = [Speed::default(); 4];
        assert!(PoolSpeed::from_replicas(all.into_iter()).is_none());
        let mut play = |slow: u64, calls: usize| {
            for _ in 0..calls {
                all[0].observe(now, 1_000.0, Duration::from_millis(100 * slow));
                all[1..].iter_mut().for_each(|speed| speed.observe(now, 1_000.0, Duration::from_millis(100)));
            }
            let pool = PoolSpeed::from_replicas(all.into_iter()).unwrap();
            let ratio = |now| pool.slowness(now, all[0]) / pool.slowness(now, all[1]);
            (ratio(now), ratio(now + 6 * HALF_LIFE))
        };
        let ((one, _), (many, aged)) = (play(3, 1), play(3, 30));
        assert!((1.5..3.0).contains(&one), "{one}");
        assert!((2.3..3.01).contains(&many), "{many}");
        assert!((1.0..1.4).contains(&aged), "nothing was seen for long: {aged}");
        let (after, _) = play(1, 40);
        assert!((0.95..1.1).contains(&after), "{after}");
    }

    #[test]
    fn slowness_is_limited() {
        let now = crate::testing::epoch();
        let mut slow = Speed::default();
        let mut quick = Speed::default();
        quick.observe(now, 1_000.0, Duration::from_millis(1));
        (0..50).for_each(|_| slow.observe(now, 1.0, Duration::from_secs(1_000)));
        let pool = PoolSpeed::from_replicas([quick, slow].into_iter()).unwrap();
        assert!(pool.slowness(now, slow) <= MAX_RATIO && pool.slowness(now, quick) >= 1.0 / MAX_RATIO);
    }
}
