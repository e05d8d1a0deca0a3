//! Who is in flight, and whether what bounds them was ever full.

use std::time::{Duration, Instant};

/// How long a highest number is remembered: between one such span and two.
const RECENT_SPAN: Duration = Duration::from_secs(5);
/// What is left of the peak with each call.
const PEAK_DECAY: f64 = 0.9995;
/// And with each cut that wanted to go deeper than a share of it.
const PEAK_CUT_FACTOR: f64 = 0.75;
/// A call that was sent while so few were in flight, as a share of the peak, or so few at all, met no congestion of ours.
const CALM_SHARE: f64 = 0.25;
pub(super) const FEW_CALLS: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LoadTracker {
    pub(super) in_flight: usize,
    /// Those that stream, and have no token yet.
    pub(super) awaiting: usize,
    /// Streaming calls whose first token has come.
    decoding: usize,
    /// Since when somebody awaits it.
    awaiting_since: Option<Instant>,
    /// The most that were in flight, fading.
    peak: f64,
    /// The most of late; and the most that were served.
    recent_max: RecentMax,
    recent_served: RecentMax,
    /// The most that were in flight when one was sent that the upstream took.
    recent_accepted: RecentMax,
    /// When the slots were last all taken, and the bound.
    slots_full_at: Option<Instant>,
    first_token_limit_full_at: Option<Instant>,
}

impl LoadTracker {
    pub(super) fn on_sent(&mut self, now: Instant, streams: bool) {
        self.in_flight += 1;
        self.recent_max.observe(now, self.in_flight);
        if streams {
            self.awaiting += 1;
            self.awaiting_since.get_or_insert(now);
        }
        self.peak = (self.peak * PEAK_DECAY).max(self.in_flight as f64);
    }

    pub(super) fn on_awaiting_ended(&mut self) {
        self.awaiting -= 1;
        self.awaiting_since = self.awaiting_since.filter(|_| self.awaiting > 0);
    }

    /// A call that awaited its first token has it.
    pub(super) fn on_first_token(&mut self, now: Instant) {
        self.on_awaiting_ended();
        self.decoding += 1;
        self.recent_served.observe(now, self.served_now().unwrap_or(0));
    }

    /// A call ended. `decoding`: after its first token.
    pub(super) fn on_ended(&mut self, decoding: bool) {
        self.in_flight -= 1;
        self.decoding -= usize::from(decoding);
    }

    /// A call that was sent as the `at`-th in flight was taken in by the upstream.
    pub(super) fn on_accepted(&mut self, now: Instant, at: usize) {
        self.recent_accepted.observe(now, at);
    }

    /// To be told after each call that is sent, and before each that ends.
    pub(super) fn update_full(&mut self, now: Instant, slots: usize, first_token_limit: usize) {
        if self.in_flight >= slots {
            self.slots_full_at = Some(now);
        }
        if self.awaiting >= first_token_limit {
            self.first_token_limit_full_at = Some(now);
        }
    }

    /// Whether the slots were all taken at some time after that.
    pub(super) fn were_slots_full_since(&self, after: Instant) -> bool {
        self.slots_full_at.is_some_and(|at| at > after)
    }

    /// Whether as many awaited their first token as may.
    pub(super) fn was_first_token_limit_full_since(&self, after: Instant) -> bool {
        self.first_token_limit_full_at.is_some_and(|at| at > after)
    }

    /// Whether a call that was sent then, as the `at`-th in flight, and is answered now, tells what such calls take when there is room.
    pub(super) fn is_uncongested(&self, since: Instant, at: usize) -> bool {
        let at = at.max(self.in_flight) as f64;
        at <= (FEW_CALLS as f64).max(CALM_SHARE * self.peak)
            || !(self.were_slots_full_since(since) || self.was_first_token_limit_full_since(since))
    }

    /// How far a cut may go: to a share of the peak, so that a few calls are sent at so low a level, and teach what they take there, before the next one goes
    /// deeper.
    pub(super) fn limit_cut(&mut self, to: f64) -> f64 {
        let least = CALM_SHARE * self.peak;
        if to < least {
            self.peak *= PEAK_CUT_FACTOR;
        }
        to.max(least)
    }

    /// The most that were in flight of late.
    pub(super) fn recent_max(&mut self, now: Instant) -> usize {
        self.recent_max.max(now).max(self.in_flight)
    }

    /// How long somebody has been awaiting a first token without a break.
    pub(super) fn awaiting_for(&self, now: Instant) -> Duration {
        self.awaiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns how many calls the upstream serves now: those that have had their first token. Of
    /// the calls whose first token cannot be seen, the same share. `None`: none can be seen.
    pub(super) fn served_now(&self) -> Option<usize> {
        (self.in_flight * self.decoding).checked_div(self.awaiting + self.decoding)
    }

    /// Returns the most calls that the upstream was seen to serve at once of late.
    pub(super) fn recent_served(&mut self, now: Instant) -> Option<usize> {
        let of_late = self.recent_served.max(now);
        self.served_now().map(|served| served.max(of_late))
    }

    /// How many it was seen to take in at once of late.
    pub(super) fn recent_accepted(&mut self, now: Instant) -> usize {
        self.recent_accepted.max(now)
    }
}

/// The highest number of late.
#[derive(Clone, Copy, Debug, Default)]
struct RecentMax {
    since: Option<Instant>,
    previous: usize,
    current: usize,
}

impl RecentMax {
    fn observe(&mut self, now: Instant, number: usize) {
        self.rotate(now);
        self.current = self.current.max(number);
    }

    fn max(&mut self, now: Instant) -> usize {
        self.rotate(now);
        self.current.max(self.previous)
    }

    fn rotate(&mut self, now: Instant) {
        let age = now.saturating_duration_since(*self.since.get_or_insert(now));
        if age >= RECENT_SPAN {
            self.previous = if age < 2 * RECENT_SPAN { self.current } else { 0 };
            self.current = 0;
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn recent_max_forgets_old_values() {
        let zero = epoch();
        let at = |s| zero + Duration::from_secs(s);
        let mut highest = RecentMax::default();
        highest.observe(at(0), 7);
        highest.observe(at(6), 3);
        assert_eq!(highest.max(at(6)), 7);
        assert_eq!(highest.max(at(11)), 3);
        assert_eq!(highest.max(at(60)), 0);
    }
}
