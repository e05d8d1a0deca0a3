//! Percentile detector: at each tick, compares a percentile of the latencies in a time window with
//! a dead band around the threshold. After a cut, no further cut follows for some ticks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::push_bounded;
use tidegate_protocol::duration;

/// Maximum number of latencies in the window, whatever its length in time.
const MAX_SAMPLES: usize = 16_384;

/// The result of evaluating the window at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PercentileVerdict {
    /// The percentile is below the dead band.
    Below,
    /// The percentile is within the dead band, above it so soon after a cut that it has no effect,
    /// or unknown because the window is empty.
    Within,
    /// The percentile is above the dead band. Contains the latency class of the call at the
    /// percentile.
    Above(usize),
}

/// The percentile detector: compares a percentile of the recent latencies with a dead band around
/// the threshold.
#[derive(Debug)]
pub(super) struct Percentile {
    settings: tidegate_config::Percentile,
    /// Each recent first token, or response that does not stream: its time, its latency class, and
    /// its latency as a multiple of the class's threshold.
    window: VecDeque<(Instant, usize, f64)>,
    /// Time of the next tick.
    pub(super) tick_at: Instant,
    /// Number of ticks left during which a percentile above the dead band has no effect.
    held_ticks: u32,
    /// The percentile at the last tick, as a multiple of the threshold. 0 before the first tick,
    /// and if the window was empty.
    last: f64,
}

impl Percentile {
    /// Creates a detector with an empty window. The first tick is one tick interval after `now`.
    pub(super) fn new(settings: tidegate_config::Percentile, now: Instant) -> Self {
        let tick_at = duration::after(now, settings.tick);
        Self { tick_at, settings, window: VecDeque::new(), held_ticks: 0, last: 0.0 }
    }

    /// Adds a first token, or a response that does not stream, to the window. `multiple` is its
    /// latency divided by the threshold of its class.
    pub(super) fn observe(&mut self, now: Instant, class: usize, multiple: f64) {
        push_bounded(&mut self.window, MAX_SAMPLES, (now, class, multiple));
    }

    /// Drops the latencies that are older than the window, schedules the next tick one interval
    /// from now, and returns how the percentile of the other latencies compares with the dead band.
    pub(super) fn tick(&mut self, now: Instant) -> PercentileVerdict {
        self.tick_at = duration::after(now, self.settings.tick.max(Duration::from_millis(1)));
        let age = |at: Instant| now.saturating_duration_since(at);
        while self.window.front().is_some_and(|(at, ..)| age(*at) > self.settings.window) {
            self.window.pop_front();
        }
        let held = self.held_ticks > 0;
        self.held_ticks = self.held_ticks.saturating_sub(1);
        let quantile = self.quantile();
        self.last = quantile.map_or(0.0, |(_, at)| at);
        let Some((class, at)) = quantile else { return PercentileVerdict::Within };
        if at > 1.0 + self.settings.band && !held {
            self.held_ticks = self.settings.hold;
            PercentileVerdict::Above(class)
        } else if at < 1.0 - self.settings.band {
            PercentileVerdict::Below
        } else {
            PercentileVerdict::Within
        }
    }

    /// Returns the percentile at the last tick, divided by the upper end of the dead band, or 0 if
    /// all latencies are older than the window. The limit is cut above 1.
    pub(super) fn evidence(&self, now: Instant) -> f64 {
        let age = |at: Instant| now.saturating_duration_since(at);
        // While no call is in flight, there are no ticks.
        let is_recent = self.window.back().is_some_and(|(at, ..)| age(*at) <= self.settings.window);
        if is_recent { self.last / (1.0 + self.settings.band) } else { 0.0 }
    }

    /// Returns the latency class of the call at the percentile, and its latency as a multiple of
    /// the class's threshold. Returns `None` for an empty window.
    fn quantile(&self) -> Option<(usize, f64)> {
        let mut seen: Vec<_> = self.window.iter().map(|(_, class, multiple)| (*class, *multiple)).collect();
        let last = seen.len().checked_sub(1)?;
        let rank = (last as f64 * self.settings.quantile).ceil() as usize;
        let (_, at, _) = seen.select_nth_unstable_by(rank.min(last), |a, b| a.1.total_cmp(&b.1));
        Some(*at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// Returns a detector, and a function from seconds since its creation to a time.
    fn percentile() -> (Percentile, impl Fn(u64) -> Instant + Copy) {
        let zero = epoch();
        (Percentile::new(tidegate_config::Percentile::default(), zero), move |s| {
            zero + Duration::from_secs(s)
        })
    }

    #[test]
    fn verdict_depends_on_band_around_objective() {
        for (multiple, verdict) in [
            (0.5, PercentileVerdict::Below),
            (0.9, PercentileVerdict::Within),
            (1.1, PercentileVerdict::Within),
            (1.3, PercentileVerdict::Above(0)),
        ] {
            let (mut percentile, at) = percentile();
            (0..100).for_each(|_| percentile.observe(at(1), 0, multiple));
            assert_eq!(percentile.tick(at(5)), verdict);
        }
        let (mut percentile, at) = percentile();
        assert_eq!(percentile.tick(at(5)), PercentileVerdict::Within, "the window is empty");
    }

    #[test]
    fn evidence_ends_with_the_window() {
        let (mut percentile, at) = percentile();
        (0..100).for_each(|_| percentile.observe(at(1), 0, 2.5));
        percentile.tick(at(5));
        let window = percentile.settings.window.as_secs();
        assert_eq!(percentile.evidence(at(1 + window)), 2.5 / (1.0 + percentile.settings.band));
        assert_eq!(percentile.evidence(at(2 + window)), 0.0, "no tick has removed the latencies");
    }

    #[test]
    fn verdict_is_held_after_a_cut() {
        let (mut percentile, at) = percentile();
        (0..100).for_each(|_| percentile.observe(at(1), 0, 9.0));
        let verdicts = [5, 10, 15, 20, 25].map(|s| percentile.tick(at(s)));
        assert_eq!(
            verdicts,
            [
                PercentileVerdict::Above(0),
                PercentileVerdict::Within,
                PercentileVerdict::Within,
                PercentileVerdict::Within,
                PercentileVerdict::Above(0)
            ]
        );
        assert_eq!(percentile.tick(at(60)), PercentileVerdict::Within, "the window is over");
    }
}
