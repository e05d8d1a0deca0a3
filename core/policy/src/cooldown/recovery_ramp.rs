//! The rate of successes before a cool-down, and the growing rate at which attempts are admitted
//! after it.

use std::time::{Duration, Instant};

/// Period over which events are counted, in seconds.
const SECONDS: usize = 10;
/// Minimum number of events within the last ten seconds from which a rate is calculated. Fewer
/// events say more about the demand than about the target.
const MIN_KNOWN: u32 = 8;
/// Time within which the rate of admitted attempts doubles during a ramp.
const DOUBLING: Duration = Duration::from_secs(2);
/// Maximum delay of an attempt in a ramp with a known rate, compared with a ramp with an unknown
/// rate.
const MAX_LAG: Duration = Duration::from_secs(1);

/// A counter of events, such as successes, over the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    origin: Option<Instant>,
    bins: [u32; SECONDS],
    /// The second of the newest bin, counted from `origin`.
    second: u64,
}

impl Throughput {
    pub(crate) fn count(&mut self, now: Instant) {
        self.rotate(now);
        self.bins[self.second as usize % SECONDS] += 1;
    }

    /// Returns the events per second over the last ten seconds, or since the first event if that is
    /// later, but over at least one second. `None` if there were fewer than [`MIN_KNOWN`] events.
    pub(crate) fn rate(&mut self, now: Instant) -> Option<f64> {
        self.rotate(now);
        let count = self.bins.iter().sum::<u32>();
        let origin = self.origin.filter(|_| count >= MIN_KNOWN)?;
        let elapsed = now.saturating_duration_since(origin).as_secs_f64();
        // The newest bin is only partly filled.
        let window = elapsed.clamp(1.0, (SECONDS - 1) as f64 + elapsed.fract());
        Some(f64::from(count) / window)
    }

    fn rotate(&mut self, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        let second = now.saturating_duration_since(origin).as_secs();
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for second in self.second + 1..=self.second + passed {
            self.bins[second as usize % SECONDS] = 0;
        }
        // After a long silence the bins were all cleared, whichever they stand for.
        self.second = self.second.max(second);
    }
}

/// The rate at which attempts are admitted after a cool-down. It doubles every [`DOUBLING`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ramp {
    /// The known start rate in events per second. `None` if the start rate is unknown or at least
    /// `cold`.
    known: Option<f64>,
    /// The start rate in events per second if `known` is `None`. Otherwise, each event is due at
    /// most [`MAX_LAG`] later than in a ramp that starts at this rate.
    cold: f64,
}

impl Ramp {
    /// Creates a ramp that starts at the `known` rate, or at `cold` if that is unknown. Both are in
    /// events per second.
    ///
    /// If the known rate is lower than `cold`, each event is due at most [`MAX_LAG`] later than in
    /// a ramp that starts at `cold`.
    pub(crate) fn new(known: Option<f64>, cold: f64) -> Self {
        Self { known: known.filter(|known| *known < cold), cold: known.unwrap_or(cold).max(cold) }
    }

    /// Returns the time from the start of the ramp to the time at which `count` events are due.
    pub(crate) fn due(&self, count: f64) -> Duration {
        let cold = due(count, self.cold);
        self.known.map_or(cold, |known| due(count, known).min(MAX_LAG.saturating_add(cold)))
    }

    /// Returns the number of events that are due `elapsed` after the start of the ramp.
    pub(crate) fn earned(&self, elapsed: Duration) -> f64 {
        match self.known {
            Some(known) => earned(elapsed, known).max(earned(elapsed.saturating_sub(MAX_LAG), self.cold)),
            None => earned(elapsed, self.cold),
        }
    }
}

/// Returns the time after which `count` events are due at a rate that starts at `rate` per second
/// and doubles every [`DOUBLING`]. The inverse of [`earned`].
fn due(count: f64, rate: f64) -> Duration {
    let doubling = DOUBLING.as_secs_f64();
    let t = doubling * (1.0 + count * std::f64::consts::LN_2 / (rate * doubling)).log2();
    Duration::try_from_secs_f64(t).unwrap_or(Duration::MAX)
}

/// Returns the number of events due after `elapsed` at a rate that starts at `rate` per second and
/// doubles every [`DOUBLING`]: `rate * doubling / ln 2 * (2^(elapsed / doubling) - 1)`.
fn earned(elapsed: Duration, rate: f64) -> f64 {
    let doubling = DOUBLING.as_secs_f64();
    rate * doubling / std::f64::consts::LN_2 * ((elapsed.as_secs_f64() / doubling).exp2() - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn constant_rate_is_measured() {
        let start = epoch();
        let mut seen = Throughput::default();
        for k in 0..600 {
            seen.count(start + Duration::from_millis(50 * k));
        }
        let rate = seen.rate(start + Duration::from_secs(30)).expect("known");
        assert!((19.0..=21.0).contains(&rate), "{rate}");
    }

    #[test]
    fn rate_is_unknown_after_silence_or_few_events() {
        let start = epoch();
        let mut seen = Throughput::default();
        for k in 0..20 {
            seen.count(start + Duration::from_secs(2 * k));
        }
        assert_eq!(seen.rate(start + Duration::from_secs(40)), None);
        assert_eq!(seen.rate(start + Duration::from_secs(100)), None);
    }

    #[test]
    fn due_is_the_inverse_of_earned() {
        for ramp in [Ramp::new(None, 20.0), Ramp::new(Some(1.0), 20.0), Ramp::new(Some(50.0), 20.0)] {
            for count in [0.0, 1.0, 17.0, 4000.0] {
                let earned = ramp.earned(ramp.due(count));
                assert!((earned - count).abs() < 1e-3, "{ramp:?}: {earned} of {count}");
            }
        }
    }

    #[test]
    fn first_second_of_ramp_admits_at_most_1_5_seconds_worth() {
        for (known, cold) in [(20.0, 1.0), (20.0, 250.0)] {
            let ramp = Ramp::new(Some(known), cold);
            let within = (1..).take_while(|&n| ramp.due(f64::from(n)) < Duration::from_secs(1));
            let count = within.count();
            assert!((20..=30).contains(&count), "{count}");
        }
    }

    #[test]
    fn ramp_lags_the_cold_ramp_by_at_most_max_lag() {
        let cold = Ramp::new(None, 16.0);
        for known in [0.01, 1.0, 8.0, 15.9, 16.0, 400.0] {
            let ramp = Ramp::new(Some(known), 16.0);
            for count in 0..2_000 {
                let (due, latest) = (ramp.due(f64::from(count)), cold.due(f64::from(count)) + MAX_LAG);
                assert!(due <= latest, "{known}/s: {count} at {due:?}, cold at {latest:?}");
            }
        }
    }
}
