//! How many attempts succeeded a second, lately: the pace at which a target is opened again.

use std::time::{Duration, Instant};

const SECONDS: usize = 10;

/// Counts events in one-second bins over the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    origin: Option<Instant>,
    bins: [u32; SECONDS],
    /// The second, since `origin`, that the newest bin stands for.
    second: u64,
}

impl Throughput {
    /// Counts one event.
    pub(crate) fn count(&mut self, now: Instant) {
        self.turn(now);
        if let Some(bin) = self.bins.get_mut(self.second as usize % SECONDS) {
            *bin += 1;
        }
    }

    /// Events a second over the window, or over the time since the first event where that is shorter (but at least one second).
    pub(crate) fn rate(&mut self, now: Instant) -> f64 {
        self.turn(now);
        let Some(origin) = self.origin else { return 0.0 };
        let elapsed = now.saturating_duration_since(origin).as_secs_f64();
        // The newest bin is only partly filled.
        let window = elapsed.clamp(1.0, (SECONDS - 1) as f64 + elapsed.fract());
        f64::from(self.bins.iter().sum::<u32>()) / window
    }

    fn turn(&mut self, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        let second = now.saturating_duration_since(origin).as_secs();
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for k in 1..=passed {
            if let Some(bin) = self.bins.get_mut((self.second + k) as usize % SECONDS) {
                *bin = 0;
            }
        }
        // After a long silence the bins were all cleared, whichever they stand for.
        self.second = self.second.max(second);
    }
}

/// When `count` events are due on a ramp that starts at `rate` a second and doubles every `doubling`.
///
/// The ramp's integral is `rate * doubling / ln 2 * (2^(t / doubling) - 1)`; this is its inverse.
pub(crate) fn ramp_due(count: f64, rate: f64, doubling: Duration) -> Duration {
    let doubling = doubling.as_secs_f64();
    let t = doubling * (1.0 + count * std::f64::consts::LN_2 / (rate * doubling)).log2();
    Duration::try_from_secs_f64(t).unwrap_or(Duration::MAX)
}

/// How many events are due on that ramp after `elapsed`.
pub(crate) fn ramp_earned(elapsed: Duration, rate: f64, doubling: Duration) -> f64 {
    let doubling = doubling.as_secs_f64();
    rate * doubling / std::f64::consts::LN_2 * ((elapsed.as_secs_f64() / doubling).exp2() - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn a_steady_rate_is_seen_as_it_is() {
        let start = epoch();
        let mut seen = Throughput::default();
        for k in 0..600 {
            seen.count(start + Duration::from_millis(50 * k));
        }
        let rate = seen.rate(start + Duration::from_secs(30));
        assert!((19.0..=21.0).contains(&rate), "{rate}");
    }

    #[test]
    fn silence_is_forgotten_after_the_window() {
        let start = epoch();
        let mut seen = Throughput::default();
        seen.count(start);
        assert_eq!(seen.rate(start + Duration::from_secs(60)), 0.0);
    }

    #[test]
    fn due_and_earned_are_each_others_inverse() {
        for count in [0.0, 1.0, 17.0, 4000.0] {
            let due = ramp_due(count, 20.0, super::super::DOUBLING);
            assert!((ramp_earned(due, 20.0, super::super::DOUBLING) - count).abs() < 1e-3);
        }
    }

    #[test]
    fn a_ramp_lets_at_most_one_and_a_half_seconds_worth_into_its_first_second() {
        let within = (1..)
            .take_while(|&n| ramp_due(f64::from(n), 20.0, super::super::DOUBLING) <= Duration::from_secs(1));
        let count = within.count();
        assert!((20..=30).contains(&count), "{count}");
    }
}
