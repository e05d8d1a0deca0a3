//! The relative speed of replicas, learned from first tokens: a replica that takes three times as
//! long gets a third of the calls.
//!
//! The speed is the time to first token divided by the work before it, in decaying means, relative
//! to the pool. Because a few calls say little, each replica starts with [`DOUBT`] calls at the
//! pool's speed.

use std::time::{Duration, Instant};

/// The half-life of observations, so that a slow replica is tried again.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// The weight that older calls keep with each call: the mean is over about ten calls.
const KEPT: f64 = 0.9;
/// The number of calls at the pool's speed that each replica starts with.
const DOUBT: f64 = 2.0;
/// The maximum factor between a replica's speed and the pool's.
const FURTHEST: f64 = 8.0;

/// Decayed sums of time and work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    seconds: f64,
    work: f64,
    at: Option<Instant>,
}

impl Speed {
    /// Records that `work`, in tokens, took that long.
    pub(super) fn learn(&mut self, now: Instant, work: f64, took: Duration) {
        let faded = self.faded(now);
        self.seconds = faded.seconds * KEPT + took.as_secs_f64();
        self.work = faded.work * KEPT + work;
        self.at = Some(now);
    }

    fn faded(self, now: Instant) -> Self {
        let age = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let left = 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64());
        Self { seconds: self.seconds * left, work: self.work * left, at: self.at }
    }
}

/// The speed of the whole pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    rate: f64,
    doubt: f64,
}

impl Pooled {
    /// Returns the pool's speed, or `None` if nothing is known.
    pub(super) fn of(replicas: impl Iterator<Item = Speed>) -> Option<Self> {
        let known = replicas.filter(|speed| speed.work > 0.0);
        let (seconds, work, count) = known.fold((0.0, 0.0, 0.0), |(seconds, work, count), speed| {
            (seconds + speed.seconds, work + speed.work, count + 1.0)
        });
        let rate = seconds / work;
        let doubt = DOUBT * (1.0 - KEPT) * work / count;
        (rate.is_finite() && rate > 0.0).then_some(Self { rate, doubt })
    }

    /// Returns how many times as long a replica takes for the same work.
    pub(super) fn slowness(&self, now: Instant, of: Speed) -> f64 {
        let of = of.faded(now);
        let own = (of.seconds + self.rate * self.doubt) / (of.work + self.doubt);
        (own / self.rate).clamp(1.0 / FURTHEST, FURTHEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_as_slow_is_seen_within_some_calls_and_forgotten_again() {
        let now = crate::testing::epoch();
        let mut all = [Speed::default(); 4];
        assert!(Pooled::of(all.into_iter()).is_none());
        let mut play = |slow: u64, calls: usize| {
            for _ in 0..calls {
                all[0].learn(now, 1_000.0, Duration::from_millis(100 * slow));
                all[1..].iter_mut().for_each(|speed| speed.learn(now, 1_000.0, Duration::from_millis(100)));
            }
            let pooled = Pooled::of(all.into_iter()).unwrap();
            let ratio = |now| pooled.slowness(now, all[0]) / pooled.slowness(now, all[1]);
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
    fn it_is_never_believed_to_be_much_worse() {
        let now = crate::testing::epoch();
        let mut slow = Speed::default();
        let mut quick = Speed::default();
        quick.learn(now, 1_000.0, Duration::from_millis(1));
        (0..50).for_each(|_| slow.learn(now, 1.0, Duration::from_secs(1_000)));
        let pooled = Pooled::of([quick, slow].into_iter()).unwrap();
        assert!(pooled.slowness(now, slow) <= FURTHEST && pooled.slowness(now, quick) >= 1.0 / FURTHEST);
    }
}
