//! How fast a replica is beside the others of its pool, learned from our own first tokens: one of three times the time is to have a third of the calls.
//!
//! Time to first token over the work that stood before it, in means that forget, beside the same of the whole pool. A few calls say little, so each replica begins
//! with [`DOUBT`] calls of the pool's own speed.

use std::time::Duration;

/// What of the old remains with each call: a replica's mean is over about ten of them.
const KEPT: f64 = 0.9;
/// So many calls of the pool's speed each replica begins with.
const DOUBT: f64 = 2.0;
/// A replica is never believed to be further from the pool's than this.
const FURTHEST: f64 = 8.0;

/// Time and work, decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speed {
    seconds: f64,
    work: f64,
}

impl Speed {
    /// So much work, in tokens, took so long.
    pub(super) fn learn(&mut self, work: f64, took: Duration) {
        self.seconds = self.seconds * KEPT + took.as_secs_f64();
        self.work = self.work * KEPT + work;
    }
}

/// The pool's own, over all that is known of its replicas: what each of them is measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    rate: f64,
    doubt: f64,
}

impl Pooled {
    /// `None`: nothing is known yet.
    pub(super) fn of(replicas: impl Iterator<Item = Speed>) -> Option<Self> {
        let (mut seconds, mut work, mut known) = (0.0, 0.0, 0.0);
        for speed in replicas.filter(|speed| speed.work > 0.0) {
            seconds += speed.seconds;
            work += speed.work;
            known += 1.0;
        }
        let rate = seconds / work;
        let doubt = DOUBT * (1.0 - KEPT) * work / known;
        (rate.is_finite() && rate > 0.0).then_some(Self { rate, doubt })
    }

    /// How many times as long a replica takes for the same work.
    pub(super) fn slowness(&self, of: Speed) -> f64 {
        let own = (of.seconds + self.rate * self.doubt) / (of.work + self.doubt);
        (own / self.rate).clamp(1.0 / FURTHEST, FURTHEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_as_slow_is_seen_within_some_calls_and_forgotten_again() {
        let mut all = [Speed::default(); 4];
        assert!(Pooled::of(all.into_iter()).is_none());
        let mut play = |slow: u64, calls: usize| {
            for _ in 0..calls {
                all[0].learn(1_000.0, Duration::from_millis(100 * slow));
                all[1..].iter_mut().for_each(|speed| speed.learn(1_000.0, Duration::from_millis(100)));
            }
            let pooled = Pooled::of(all.into_iter()).unwrap();
            pooled.slowness(all[0]) / pooled.slowness(all[1])
        };
        let (one, many) = (play(3, 1), play(3, 30));
        assert!((1.5..3.0).contains(&one), "{one}");
        assert!((2.3..3.01).contains(&many), "{many}");
        let after = play(1, 40);
        assert!((0.95..1.1).contains(&after), "{after}");
    }

    #[test]
    fn it_is_never_believed_to_be_much_worse() {
        let mut slow = Speed::default();
        let mut quick = Speed::default();
        quick.learn(1_000.0, Duration::from_millis(1));
        (0..50).for_each(|_| slow.learn(1.0, Duration::from_secs(1_000)));
        let pooled = Pooled::of([quick, slow].into_iter()).unwrap();
        assert!(pooled.slowness(slow) <= FURTHEST && pooled.slowness(quick) >= 1.0 / FURTHEST);
    }
}
