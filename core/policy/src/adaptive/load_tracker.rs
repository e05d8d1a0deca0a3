//! Tracks the calls in flight and when the limits were full.

use std::time::{Duration, Instant};

/// Time span of a recent maximum: it covers the last one to two spans.
const RECENT_SPAN: Duration = Duration::from_secs(5);
/// Factor on the remembered peak per call.
const PEAK_DECAY: f64 = 0.9995;
/// Factor on the remembered peak per cut that would go below [`CALM_SHARE`] of it.
const PEAK_CUT_FACTOR: f64 = 0.75;
/// A call sent while at most this share of the peak, or at most [`FEW_CALLS`], was in flight met no
/// congestion caused by this client.
const CALM_SHARE: f64 = 0.25;
pub(super) const FEW_CALLS: usize = 2;

/// Counts of the calls in flight, their recent maxima, and the times at which the limits were full.
#[derive(Debug, Default)]
pub(super) struct LoadTracker {
    pub(super) in_flight: usize,
    /// Streaming calls without a first token.
    pub(super) awaiting: usize,
    /// Streaming calls after their first token.
    decoding: usize,
    /// Time since which at least one call has been awaiting its first token.
    awaiting_since: Option<Instant>,
    /// Maximum number of calls in flight, decaying with each call.
    peak: f64,
    /// Recent maxima of the calls in flight and of the calls served.
    recent_max: RecentMax,
    recent_served: RecentMax,
    /// Recent maximum of the calls in flight when an accepted call was sent.
    recent_accepted: RecentMax,
    /// Last times at which all slots were used, and at which the first-token limit was reached.
    slots_full_at: Option<Instant>,
    first_token_limit_full_at: Option<Instant>,
}

impl LoadTracker {
    /// Handles the sending of a call.
    pub(super) fn on_sent(&mut self, now: Instant, streams: bool) {
        self.in_flight += 1;
        self.recent_max.observe(now, self.in_flight);
        if streams {
            self.awaiting += 1;
            self.awaiting_since.get_or_insert(now);
        }
        self.peak = (self.peak * PEAK_DECAY).max(self.in_flight as f64);
    }

    /// Handles a call that no longer awaits its first token.
    pub(super) fn on_awaiting_ended(&mut self) {
        self.awaiting -= 1;
        self.awaiting_since = self.awaiting_since.filter(|_| self.awaiting > 0);
    }

    /// Handles the first token of an awaiting call.
    pub(super) fn on_first_token(&mut self, now: Instant) {
        self.on_awaiting_ended();
        self.decoding += 1;
        self.recent_served.observe(now, self.served_now().unwrap_or(0));
    }

    /// Handles the end of a call. `decoding` is `true` if its first token had arrived.
    pub(super) fn on_ended(&mut self, decoding: bool) {
        self.in_flight -= 1;
        self.decoding -= usize::from(decoding);
    }

    /// Records that the upstream accepted a call sent as the `at`-th call in flight.
    pub(super) fn on_accepted(&mut self, now: Instant, at: usize) {
        self.recent_accepted.observe(now, at);
    }

    /// Records whether the limits are full. Call this after a call is sent and before a call ends.
    pub(super) fn update_full(&mut self, now: Instant, slots: usize, first_token_limit: usize) {
        if self.in_flight >= slots {
            self.slots_full_at = Some(now);
        }
        if self.awaiting >= first_token_limit {
            self.first_token_limit_full_at = Some(now);
        }
    }

    /// Returns `true` if all slots were used at some time after `after`.
    pub(super) fn were_slots_full_since(&self, after: Instant) -> bool {
        self.slots_full_at.is_some_and(|at| at > after)
    }

    /// Returns `true` if the first-token limit was reached at some time after `after`.
    pub(super) fn was_first_token_limit_full_since(&self, after: Instant) -> bool {
        self.first_token_limit_full_at.is_some_and(|at| at > after)
    }

    /// Returns `true` if a call that was sent at `since` as the `at`-th call in flight, and is
    /// answered now, met no congestion caused by this client.
    pub(super) fn is_uncongested(&self, since: Instant, at: usize) -> bool {
        let at = at.max(self.in_flight) as f64;
        at <= (FEW_CALLS as f64).max(CALM_SHARE * self.peak)
            || !(self.were_slots_full_since(since) || self.was_first_token_limit_full_since(since))
    }

    /// Returns the number of slots to cut to: `to`, but at least a quarter of the peak.
    ///
    /// A few calls at that low level refresh the baselines before the next cut goes deeper.
    pub(super) fn limit_cut(&mut self, to: f64) -> f64 {
        let least = CALM_SHARE * self.peak;
        if to < least {
            self.peak *= PEAK_CUT_FACTOR;
        }
        to.max(least)
    }

    /// Returns the recent maximum of calls in flight.
    pub(super) fn recent_max(&mut self, now: Instant) -> usize {
        self.recent_max.max(now).max(self.in_flight)
    }

    /// Returns how long calls have been awaiting their first token without interruption.
    pub(super) fn awaiting_for(&self, now: Instant) -> Duration {
        self.awaiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns the number of calls that the upstream serves now: those past their first token.
    ///
    /// Calls whose first token cannot be observed count with the same share. Returns `None` if no
    /// first token can be observed.
    pub(super) fn served_now(&self) -> Option<usize> {
        (self.in_flight * self.decoding).checked_div(self.awaiting + self.decoding)
    }

    /// Returns the recent maximum of calls served at once.
    pub(super) fn recent_served(&mut self, now: Instant) -> Option<usize> {
        let of_late = self.recent_served.max(now);
        self.served_now().map(|served| served.max(of_late))
    }

    /// Returns the recent maximum of calls in flight at which the upstream accepted a call.
    pub(super) fn recent_accepted(&mut self, now: Instant) -> usize {
        self.recent_accepted.max(now)
    }
}

/// Maximum of a number over the last one to two [`RECENT_SPAN`]s.
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
