//! Measures the rate that a rate limit lets through.
//!
//! A rate limit with saved credit (a bucket) hides an excess of x for 1/x of its size, so the share
//! of failures at a cap shows nothing until the credit is used up. Exact is the time between two
//! moments without credit: the amount accepted in between equals the rate times that time, whatever
//! the caps were. Such moments are rejections because of a rate, and times in which the gate held
//! calls back for one. Accepted calls are those that have ended plus those that are open.

use crate::observation::{
    AttemptObservation, BlockedBy, CallObservation, FailureCause, LoadSample, ReportedRate,
};

/// Rejections within this time, in seconds, count as one moment.
const MOMENT_S: f64 = 0.25;
/// Maximum number of calls kept.
const MAX_KEPT_CALLS: usize = 20_000;

/// Number of calls in a stretch whose rate is compared with others.
const STRETCH_CALLS: f64 = 20.0;

/// A moment without credit, and the number of open calls.
#[derive(Clone, Copy, Debug)]
struct Empty {
    at: f64,
    open: usize,
}

/// An accepted call that has ended.
#[derive(Clone, Copy, Debug)]
struct Taken {
    sent: f64,
    ended: f64,
    tokens: f64,
}

/// The rate between two such moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ObservedRate {
    pub(super) calls: f64,
    /// Calls per second.
    pub(super) per_second: f64,
    /// Input and output tokens per second.
    pub(super) tokens: f64,
}

#[derive(Debug, Default)]
pub(super) struct RateHistory {
    taken: Vec<Taken>,
    tokens: f64,
    empty: Vec<Empty>,
    /// Limits per minute that response headers reported.
    pub(super) requests_told: Option<f64>,
    pub(super) tokens_told: Option<f64>,
}

impl RateHistory {
    pub(super) fn attempt(&mut self, seen: &AttemptObservation) {
        if seen.failure.as_ref().is_some_and(|failure| failure.cause == FailureCause::Limited) {
            let taken = seen.position.saturating_sub(1);
            // Calls that are rejected together each counted the ones after them as open.
            if let Some(last) = self.empty.last_mut().filter(|last| seen.ended_at - last.at < MOMENT_S) {
                last.open = last.open.min(taken);
            }
            self.nothing_left(seen.ended_at, taken);
        }
        let limit = |told: Option<ReportedRate>| told.and_then(|told| told.limit);
        self.requests_told = limit(seen.rates.requests).or(self.requests_told);
        self.tokens_told = limit(seen.rates.tokens).or(self.tokens_told);
    }

    pub(super) fn pulse(&mut self, pulse: &LoadSample) {
        let held = matches!(pulse.held_by, Some(BlockedBy::Requests | BlockedBy::Tokens));
        if held && pulse.waiting > 0 && pulse.in_flight < pulse.cap {
            self.nothing_left(pulse.at, pulse.in_flight);
        }
    }

    pub(super) fn call(&mut self, seen: &CallObservation) {
        if seen.failure.is_some() || self.taken.len() >= MAX_KEPT_CALLS {
            return;
        }
        let tokens = (seen.input_tokens + seen.output_tokens) as f64;
        self.tokens += tokens;
        // The slot time is that of the last attempt, except for the round trips of rejections.
        let sent = seen.ended_at - seen.slot_seconds;
        self.taken.push(Taken { sent, ended: seen.ended_at, tokens });
    }

    fn nothing_left(&mut self, at: f64, open: usize) {
        if self.empty.last().is_none_or(|last| at - last.at >= MOMENT_S) {
            self.empty.push(Empty { at, open });
        }
    }

    /// Returns the rate between the first moment without credit since `since` and the last one.
    pub(super) fn paced(&self, since: f64) -> Option<ObservedRate> {
        let first = self.empty.iter().find(|empty| empty.at >= since)?;
        self.between(*first, *self.empty.last()?)
    }

    fn between(&self, first: Empty, last: Empty) -> Option<ObservedRate> {
        let seconds = last.at - first.at;
        if seconds <= MOMENT_S {
            return None;
        }
        // Calls open at the end began before or during the stretch. Only their number matters.
        let ended =
            self.taken.iter().filter(|taken| taken.ended > first.at && taken.ended <= last.at).count();
        let calls = (ended + last.open) as f64 - first.open as f64;
        let begun = || self.taken.iter().filter(|taken| taken.sent > first.at && taken.sent <= last.at);
        let sizes = begun().map(|taken| taken.tokens).sum::<f64>();
        let tokens = sizes + (calls - begun().count() as f64) * self.mean_tokens();
        (calls > 0.0 && tokens > 0.0).then_some(ObservedRate {
            calls,
            per_second: calls / seconds,
            tokens: tokens / seconds,
        })
    }

    /// Returns the mean tokens per call.
    pub(super) fn mean_tokens(&self) -> f64 {
        self.tokens / self.taken.len().max(1) as f64
    }

    /// Returns the relative variances of the call rate and the token rate over stretches between
    /// moments without credit, or `None` with fewer than six stretches. The limited rate has the
    /// lower variance.
    pub(super) fn spreads(&self, since: f64) -> Option<(f64, f64)> {
        let mut ends = self.empty.iter().filter(|empty| empty.at >= since);
        let mut from = *ends.next()?;
        let mut rates: Vec<(f64, f64)> = Vec::new();
        for &empty in ends {
            let Some(paced) = self.between(from, empty).filter(|paced| paced.calls >= STRETCH_CALLS) else {
                continue;
            };
            rates.push((paced.per_second, paced.tokens));
            from = empty;
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

    fn call(sent: f64, seconds: f64, tokens: u64) -> CallObservation {
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
            engine: None,
        }
    }

    #[test]
    fn burst_before_the_first_empty_moment_is_excluded() {
        let mut tape = RateHistory::default();
        // Forty calls at once use up the credit. From then on, two calls per second are accepted,
        // each of two seconds.
        tape.pulse(&held(0.0, 40));
        let burst = (0..40).map(|i| call(-1.0, 1.5 + 0.1 * f64::from(i), 100));
        let paced = (0..100).map(|i| call(0.5 + 0.5 * f64::from(i), 2.0, 100));
        let mut ends: Vec<CallObservation> =
            burst.chain(paced).filter(|call| call.ended_at <= 40.0).collect();
        ends.sort_by(|a, b| a.ended_at.total_cmp(&b.ended_at));
        ends.iter().for_each(|call| tape.call(call));
        tape.pulse(&held(40.0, 4));
        let paced = tape.paced(0.0).expect("two moments");
        assert!((paced.per_second - 2.0).abs() < 0.06, "{paced:?}");
        assert!((paced.tokens - 400.0).abs() < 12.0, "{paced:?}");
        assert_eq!(tape.paced(1.0), None, "one moment is no stretch");
    }
}
