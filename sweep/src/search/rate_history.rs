//! Measures the rate that a rate limit accepts.
//!
//! A rate limit with saved credit (a token bucket) accepts more than its rate at first, so the
//! share of failures at a cap says nothing about the rate until the credit is used up. The
//! measurement therefore uses moments without credit: rejections because of the rate, and times at
//! which the gate kept calls waiting because of the rate limit. Between two such moments, the
//! accepted amount divided by the time is the rate, whatever the caps were. Accepted calls are
//! those that have ended plus those that are still open.

use crate::observation::{
    AttemptObservation, BlockedBy, CallObservation, FailureCause, LoadSample, ReportedRate,
};

/// Moments without credit that are less than this time apart, in seconds, count as one moment.
const SAME_MOMENT_S: f64 = 0.25;
/// Maximum number of answered calls that are recorded. Later calls are ignored.
const MAX_RECORDED_CALLS: usize = 20_000;

/// Minimum number of calls accepted between two moments without credit for
/// [`RateHistory::variances`] to use the time between them.
const STRETCH_CALLS: f64 = 20.0;

/// A moment at which the rate limit had no credit left, in seconds since the sweep began, with the
/// number of calls that were open then.
#[derive(Clone, Copy, Debug)]
struct Exhaustion {
    at: f64,
    open: usize,
}

/// An answered call: its times in seconds since the sweep began, and the sum of its input and
/// output tokens.
#[derive(Clone, Copy, Debug)]
struct AcceptedCall {
    sent: f64,
    ended: f64,
    tokens: f64,
}

/// The rates at which the server accepted calls and tokens between two moments without credit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ObservedRate {
    /// Number of calls accepted between the two moments.
    pub(super) calls: f64,
    /// Accepted calls per second.
    pub(super) per_second: f64,
    /// Input and output tokens of the accepted calls per second.
    pub(super) tokens: f64,
}

#[derive(Debug, Default)]
pub(super) struct RateHistory {
    accepted: Vec<AcceptedCall>,
    tokens: f64,
    exhaustions: Vec<Exhaustion>,
    /// Requests per minute that response headers reported last, or `None` if none did.
    pub(super) reported_rpm: Option<f64>,
    /// Tokens per minute that response headers reported last, or `None` if none did.
    pub(super) reported_tpm: Option<f64>,
}

impl RateHistory {
    pub(super) fn on_attempt(&mut self, seen: &AttemptObservation) {
        if seen.failure.as_ref().is_some_and(|failure| failure.cause == FailureCause::Limited) {
            let accepted = seen.position.saturating_sub(1);
            // Calls that are rejected together each counted the ones after them as open.
            if let Some(last) =
                self.exhaustions.last_mut().filter(|last| seen.ended_at - last.at < SAME_MOMENT_S)
            {
                last.open = last.open.min(accepted);
            }
            self.record_exhaustion(seen.ended_at, accepted);
        }
        let limit = |reported: Option<ReportedRate>| reported.and_then(|reported| reported.limit);
        self.reported_rpm = limit(seen.rates.requests).or(self.reported_rpm);
        self.reported_tpm = limit(seen.rates.tokens).or(self.reported_tpm);
    }

    pub(super) fn on_load_sample(&mut self, sample: &LoadSample) {
        let held = matches!(sample.held_by, Some(BlockedBy::Requests | BlockedBy::Tokens));
        if held && sample.waiting > 0 && sample.in_flight < sample.cap {
            self.record_exhaustion(sample.at, sample.in_flight);
        }
    }

    pub(super) fn on_call(&mut self, seen: &CallObservation) {
        if seen.failure.is_some() || self.accepted.len() >= MAX_RECORDED_CALLS {
            return;
        }
        let tokens = (seen.input_tokens + seen.output_tokens) as f64;
        self.tokens += tokens;
        // The slot time is that of the last attempt, except for the round trips of rejections.
        let sent = seen.ended_at - seen.slot_seconds;
        self.accepted.push(AcceptedCall { sent, ended: seen.ended_at, tokens });
    }

    fn record_exhaustion(&mut self, at: f64, open: usize) {
        if self.exhaustions.last().is_none_or(|last| at - last.at >= SAME_MOMENT_S) {
            self.exhaustions.push(Exhaustion { at, open });
        }
    }

    /// Returns the rate between the first moment without credit at or after `since`, in seconds
    /// since the sweep began, and the last such moment. Returns `None` with fewer than two moments,
    /// or if no call was accepted between them.
    pub(super) fn observed_rate(&self, since: f64) -> Option<ObservedRate> {
        let first = self.exhaustions.iter().find(|moment| moment.at >= since)?;
        self.between(*first, *self.exhaustions.last()?)
    }

    fn between(&self, first: Exhaustion, last: Exhaustion) -> Option<ObservedRate> {
        let seconds = last.at - first.at;
        if seconds <= SAME_MOMENT_S {
            return None;
        }
        // Calls open at the end began before or during the stretch. Only their number matters.
        let ended = self
            .accepted
            .iter()
            .filter(|accepted| accepted.ended > first.at && accepted.ended <= last.at)
            .count();
        let calls = (ended + last.open) as f64 - first.open as f64;
        let begun =
            || self.accepted.iter().filter(|accepted| accepted.sent > first.at && accepted.sent <= last.at);
        let sizes = begun().map(|accepted| accepted.tokens).sum::<f64>();
        let tokens = sizes + (calls - begun().count() as f64) * self.mean_tokens();
        (calls > 0.0 && tokens > 0.0).then_some(ObservedRate {
            calls,
            per_second: calls / seconds,
            tokens: tokens / seconds,
        })
    }

    /// Returns the mean number of input and output tokens together of an answered call. 0 without
    /// calls.
    pub(super) fn mean_tokens(&self) -> f64 {
        self.tokens / self.accepted.len().max(1) as f64
    }

    /// Returns how steady the calls per second and the tokens per second have been since the time
    /// `since`: the relative variance of each, over the stretches between two moments without
    /// credit. The rate that the server limits has the lower variance. Returns `None` with fewer
    /// than six stretches of at least [`STRETCH_CALLS`] calls.
    pub(super) fn variances(&self, since: f64) -> Option<(f64, f64)> {
        let mut moments = self.exhaustions.iter().filter(|moment| moment.at >= since);
        let mut from = *moments.next()?;
        let mut rates: Vec<(f64, f64)> = Vec::new();
        for &moment in moments {
            let Some(rate) = self.between(from, moment).filter(|rate| rate.calls >= STRETCH_CALLS) else {
                continue;
            };
            rates.push((rate.per_second, rate.tokens));
            from = moment;
        }
        if rates.len() < 6 {
            return None;
        }
        let n = rates.len() as f64;
        let spread = |of: fn(&(f64, f64)) -> f64| {
            let mean = rates.iter().map(of).sum::<f64>() / n;
            rates.iter().map(|rate| (of(rate) / mean - 1.0).powi(2)).sum::<f64>() / (n - 1.0)
        };
        Some((spread(|rate| rate.0), spread(|rate| rate.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended_call(sent: f64, seconds: f64, tokens: u64) -> CallObservation {
        CallObservation {
            work: 0,
            step: 0,
            queued_at: sent,
            admitted_at: sent,
            ended_at: sent + seconds,
            slot_seconds: seconds,
            attempts: 1,
            ttft: None,
            tpot: None,
            longest_pause: None,
            input_tokens: 100,
            output_tokens: tokens,
            counted: true,
            failure: None,
        }
    }

    fn held(at: f64, in_flight: usize) -> LoadSample {
        LoadSample {
            at,
            cap: 50,
            in_flight,
            waiting: 5,
            held_by: Some(BlockedBy::Tokens),
            client_cpu: None,
            client_lag: 0.0,
            machine_cpu: None,
            engine: None,
            sent: 0,
        }
    }

    #[test]
    fn burst_before_the_first_empty_moment_is_excluded() {
        let mut history = RateHistory::default();
        // Forty calls at once use up the credit. From then on, two calls per second are accepted,
        // each of two seconds.
        history.on_load_sample(&held(0.0, 40));
        let burst = (0..40).map(|i| ended_call(-1.0, 1.5 + 0.1 * f64::from(i), 100));
        let rate = (0..100).map(|i| ended_call(0.5 + 0.5 * f64::from(i), 2.0, 100));
        let mut ends: Vec<CallObservation> = burst.chain(rate).filter(|call| call.ended_at <= 40.0).collect();
        ends.sort_by(|a, b| a.ended_at.total_cmp(&b.ended_at));
        ends.iter().for_each(|call| history.on_call(call));
        history.on_load_sample(&held(40.0, 4));
        let rate = history.observed_rate(0.0).expect("two moments");
        assert!((rate.per_second - 2.0).abs() < 0.06, "{rate:?}");
        assert!((rate.tokens - 400.0).abs() < 12.0, "{rate:?}");
        assert_eq!(history.observed_rate(1.0), None, "one moment is no stretch");
    }
}
