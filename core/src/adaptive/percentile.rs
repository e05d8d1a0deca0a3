//! The detector of the posts: a percentile over a window, looked at in ticks, with a dead band, and a hold after each cut.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config;
use crate::duration;

/// No more calls than this are remembered, however many a window has.
const MAX_SAMPLES: usize = 16_384;

/// What a tick says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PercentileVerdict {
    /// Below the band.
    Below,
    /// In it, or held after a cut, or nothing was seen.
    Within,
    /// Above it, with the class of the call that is at the percentile.
    Above(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Percentile {
    settings: config::Percentile,
    /// When each answer came, of which class, and what it took, as a multiple of what is late.
    window: VecDeque<(Instant, usize, f64)>,
    tick_at: Instant,
    /// Ticks that are held yet.
    held_ticks: u32,
}

impl Percentile {
    pub(super) fn new(settings: config::Percentile, now: Instant) -> Self {
        Self {
            tick_at: duration::after(now, settings.tick),
            settings,
            window: VecDeque::new(),
            held_ticks: 0,
        }
    }

    pub(super) fn observe(&mut self, now: Instant, class: usize, multiple: f64) {
        if self.window.len() == MAX_SAMPLES {
            self.window.pop_front();
        }
        self.window.push_back((now, class, multiple));
    }

    /// The next tick.
    pub(super) fn tick_at(&self) -> Instant {
        self.tick_at
    }

    /// A tick is due.
    pub(super) fn tick(&mut self, now: Instant) -> PercentileVerdict {
        // Ticks that nobody asked for are gone.
        self.tick_at = duration::after(now, self.settings.tick.max(Duration::from_millis(1)));
        let age = |at: Instant| now.saturating_duration_since(at);
        while self.window.front().is_some_and(|(at, ..)| age(*at) > self.settings.window) {
            self.window.pop_front();
        }
        let held = self.held_ticks > 0;
        self.held_ticks = self.held_ticks.saturating_sub(1);
        let Some((class, at)) = self.quantile() else { return PercentileVerdict::Within };
        if at > 1.0 + self.settings.band && !held {
            self.held_ticks = self.settings.hold;
            PercentileVerdict::Above(class)
        } else if at < 1.0 - self.settings.band {
            PercentileVerdict::Below
        } else {
            PercentileVerdict::Within
        }
    }

    /// How near it is to the top of the band: at 1 the limit is cut.
    pub(super) fn evidence(&self) -> f64 {
        self.quantile().map_or(0.0, |(_, at)| at / (1.0 + self.settings.band))
    }

    /// Returns the class of the call at the percentile, and what it took as a multiple of what is
    /// late. `None`: nothing was seen.
    fn quantile(&self) -> Option<(usize, f64)> {
        let mut seen: Vec<_> = self.window.iter().map(|(_, class, multiple)| (*class, *multiple)).collect();
        let last = seen.len().checked_sub(1)?;
        let place = (last as f64 * self.settings.quantile).ceil() as usize;
        let (_, at, _) = seen.select_nth_unstable_by(place.min(last), |a, b| a.1.total_cmp(&b.1));
        Some(*at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// One that begins at a moment, and moments by their seconds since.
    fn percentile() -> (Percentile, impl Fn(u64) -> Instant + Copy) {
        let zero = epoch();
        (Percentile::new(config::Percentile::default(), zero), move |s| zero + Duration::from_secs(s))
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
        assert_eq!(percentile.tick(at(5)), PercentileVerdict::Within, "nothing was seen");
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
