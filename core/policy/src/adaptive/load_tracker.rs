//! Tracks the calls in flight, their recent maxima, the rate of first tokens, and when the limits
//! were full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::call_sample::Sent;
use crate::{ended_spans, push_bounded};

/// Length of one span of a [`RecentMax`], which covers the current and the previous span.
const RECENT_SPAN: Duration = Duration::from_secs(5);
/// Maximum number of first tokens that are remembered.
const MAX_EVENTS: usize = 64;
/// Factor by which the peak of calls in flight decays with each call that is sent.
const PEAK_DECAY: f64 = 0.9995;
/// Factor by which the recorded peak of calls in flight is lowered at each cut that reaches
/// [`CALM_SHARE`] of the peak (see [`LoadTracker::limit_cut`]).
const PEAK_CUT_FACTOR: f64 = 0.75;
/// If at most this share of the peak of calls in flight is in flight, a call is assumed to meet no
/// congestion caused by this client.
const CALM_SHARE: f64 = 0.25;
/// If at most this number of calls is in flight, a call is assumed to meet no congestion caused by
/// this client.
pub(super) const FEW_CALLS: usize = 2;

/// Counts of the calls in flight, their recent maxima, and the times at which the limits were full.
#[derive(Debug, Default)]
pub(super) struct LoadTracker {
    pub(super) in_flight: usize,
    /// Number of streaming calls without a first token.
    pub(super) awaiting: usize,
    /// Work before the first token of the calls that await it, in tokens of prefill.
    pub(super) awaiting_work: u64,
    /// Number of streaming calls after their first token.
    decoding: usize,
    /// Time since which at least one call has been awaiting its first token, or `None` if no call
    /// awaits it.
    awaiting_since: Option<Instant>,
    /// Maximum number of calls in flight. It decays with each call that is sent.
    peak: f64,
    /// Recent maximum of the calls in flight, counted whenever a call is sent.
    pub(super) recent_in_flight: RecentMax,
    /// Recent maximum of [`LoadTracker::served_now`].
    recent_served: RecentMax,
    /// Recent maximum of [`Sent::in_flight`] over the calls that the upstream accepted.
    pub(super) recent_accepted: RecentMax,
    pub(super) first_token_rate: FirstTokenRate,
    /// Last time at which all slots were used, or `None` if they never were.
    slots_full_at: Option<Instant>,
    /// Last time at which the first-token limit was reached, or `None` if it never was.
    first_token_limit_full_at: Option<Instant>,
}

impl LoadTracker {
    /// Counts a call that is sent as in flight, and as awaiting its first token if it `streams`.
    /// `work` is its work before the first token.
    pub(super) fn on_sent(&mut self, now: Instant, streams: bool, work: u64) {
        self.in_flight += 1;
        self.recent_in_flight.observe(now, self.in_flight);
        if streams {
            self.awaiting += 1;
            self.awaiting_work += work;
            self.awaiting_since.get_or_insert(now);
        }
        self.peak = (self.peak * PEAK_DECAY).max(self.in_flight as f64);
    }

    /// Removes a call with this `work` from the calls that await their first token.
    pub(super) fn on_awaiting_ended(&mut self, work: u64) {
        self.awaiting -= 1;
        self.awaiting_work -= work;
        self.awaiting_since = self.awaiting_since.filter(|_| self.awaiting > 0);
    }

    /// Moves a call with this `work` from those that await their first token to those that have
    /// received it, and records `now` in the rate of first tokens.
    pub(super) fn on_first_token(&mut self, now: Instant, work: u64) {
        self.first_token_rate.on_first_token(now);
        self.on_awaiting_ended(work);
        self.decoding += 1;
        self.recent_served.observe(now, self.served_now().unwrap_or(0));
    }

    /// Removes a call that has ended from the calls in flight and, if `had_first_token`, from the
    /// calls after their first token. For a call that awaits its first token, the caller must also
    /// call [`LoadTracker::on_awaiting_ended`].
    pub(super) fn on_ended(&mut self, had_first_token: bool) {
        self.in_flight -= 1;
        self.decoding -= usize::from(had_first_token);
    }

    /// If all `slots` are used, records `now` as the last time at which all slots were used. Does
    /// the same if the `first_token_limit` is reached. Call this after a call is sent and before a
    /// call ends.
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

    /// Returns `true` if a call that is answered now met no congestion caused by this client:
    /// neither limit was full while the call was in flight, or at most two calls or a quarter of
    /// the recent peak were in flight when it was sent and are in flight now.
    pub(super) fn is_uncongested(&self, sent: Sent) -> bool {
        let in_flight = sent.in_flight.max(self.in_flight) as f64;
        in_flight <= (FEW_CALLS as f64).max(CALM_SHARE * self.peak)
            || !(self.were_slots_full_since(sent.at) || self.was_first_token_limit_full_since(sent.at))
    }

    /// Returns the number of slots to cut to: `to`, but at least a quarter of the peak of calls in
    /// flight.
    ///
    /// At a quarter of the peak, calls refresh the baselines before the next cut goes deeper. If
    /// `reached` slots are at or below that minimum, the recorded peak is lowered, so that the next
    /// cut can go further.
    pub(super) fn limit_cut(&mut self, reached: f64, to: f64) -> f64 {
        let min = CALM_SHARE * self.peak;
        if reached <= min {
            self.peak *= PEAK_CUT_FACTOR;
        }
        to.max(min)
    }

    /// Returns how long at least one call has been awaiting its first token without interruption,
    /// or zero if no call awaits it.
    pub(super) fn awaiting_for(&self, now: Instant) -> Duration {
        self.awaiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns the number of calls that the upstream serves now, as opposed to queueing them.
    ///
    /// Streaming calls count as served after their first token. Of the calls whose first token
    /// cannot be observed, the same share is assumed to be served. Returns `None` if no streaming
    /// call is in flight.
    pub(super) fn served_now(&self) -> Option<usize> {
        (self.in_flight * self.decoding).checked_div(self.awaiting + self.decoding)
    }

    /// Returns the recent maximum of [`LoadTracker::served_now`], or `None` if no streaming call is
    /// in flight now.
    pub(super) fn recent_served(&mut self, now: Instant) -> Option<usize> {
        let recent = self.recent_served.max(now);
        self.served_now().map(|served| served.max(recent))
    }
}

/// The maximum of a number over the last 5 to 10 s: the current span of [`RECENT_SPAN`] and the one
/// before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentMax {
    /// End of the current span, or `None` before the first use.
    ends: Option<Instant>,
    /// Maximum of the numbers observed in the span before the current one.
    previous: usize,
    /// Maximum of the numbers observed in the current span.
    current: usize,
}

impl RecentMax {
    pub(super) fn observe(&mut self, now: Instant, number: usize) {
        self.rotate(now);
        self.current = self.current.max(number);
    }

    /// Returns the maximum, or 0 if no number was observed recently.
    pub(super) fn max(&mut self, now: Instant) -> usize {
        self.rotate(now);
        self.current.max(self.previous)
    }

    /// Starts a new span if the current one is over.
    fn rotate(&mut self, now: Instant) {
        let ends = self.ends.get_or_insert_with(|| now + RECENT_SPAN);
        let ended = ended_spans(ends, now, RECENT_SPAN);
        if ended > 0 {
            self.previous = if ended == 1 { self.current } else { 0 };
            self.current = 0;
        }
    }
}

/// The times of the most recent first tokens, from which their rate is computed.
#[derive(Debug, Default)]
pub(super) struct FirstTokenRate(VecDeque<Instant>);

impl FirstTokenRate {
    /// Records a first token that arrives now.
    pub(super) fn on_first_token(&mut self, now: Instant) {
        push_bounded(&mut self.0, MAX_EVENTS, now);
    }

    /// Returns the first tokens per second over the last `window`, or over the time since the
    /// oldest remembered one if that is shorter.
    pub(super) fn rate(&self, now: Instant, window: Duration) -> f64 {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let count = self.0.iter().rev().take_while(|at| age(at) < window).count();
        let span = if count == MAX_EVENTS { self.0.front().map_or(window, age) } else { window };
        count as f64 / span.as_secs_f64().max(1e-3)
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

    #[test]
    fn rate_covers_only_recent_first_tokens() {
        let zero = epoch();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut tokens = FirstTokenRate::default();
        assert_eq!(tokens.rate(at(0), Duration::from_secs(2)), 0.0);
        (0..10).for_each(|n| tokens.on_first_token(at(100 * n)));
        assert_eq!(tokens.rate(at(900), Duration::from_secs(2)), 5.0);
        assert_eq!(
            tokens.rate(at(60_000), Duration::from_secs(2)),
            0.0,
            "first tokens outside of the window do not count"
        );
        (0..1_000).for_each(|n| tokens.on_first_token(at(60_000 + n)));
        let rate = tokens.rate(at(61_000), Duration::from_secs(2));
        assert!((900.0..1_100.0).contains(&rate), "rate of the remembered ones: {rate}");
    }
}
