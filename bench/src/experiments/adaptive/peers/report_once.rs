//! Adapts controllers that expect one latency per call to calls that stream.
//!
//! A stream is reported at its first token, with the TTFT as its latency. Other calls are reported
//! at their end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate::policy::adaptive::Ended;

use super::super::contender::{Contender, Sent};

/// How a call ended, in the categories that these controllers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedOutcome {
    /// The call was answered.
    Answered,
    /// The call was rejected with 429, 503 or 529, or had no token within the caller's patience.
    Overloaded,
    /// Any other error.
    Failed,
    /// The caller left before the first token.
    Cancelled,
}

impl ReportedOutcome {
    /// Returns the outcome of an attempt that ended without a first token, or that does not stream.
    pub(super) fn of(how: Ended) -> Self {
        match how {
            Ended::Completed { .. } => Self::Answered,
            Ended::Limited { .. } | Ended::Overloaded | Ended::TimedOut | Ended::DeadlinePassed => {
                Self::Overloaded
            }
            Ended::Failed => Self::Failed,
            Ended::Cancelled => Self::Cancelled,
        }
    }
}

/// An algorithm that computes a limit of the concurrent calls from the latencies of calls.
pub(super) trait LatencyAlgorithm {
    fn limit(&self) -> usize;

    /// Reports a call that has just got its first token or ended. `in_flight` includes the call.
    fn on_call(&mut self, outcome: ReportedOutcome, latency: Duration, in_flight: usize);
}

/// Runs a [`LatencyAlgorithm`] as a contender.
pub(super) struct SingleReport<L> {
    algorithm: L,
    /// Whether calls that do not stream are reported with a latency of zero. `true` for algorithms
    /// with an objective for first tokens, which would otherwise apply it to the duration of a
    /// whole answer.
    streams_only: bool,
    /// For each attempt in flight, when it was sent and whether it streams. `None` once it has been
    /// reported.
    calls: HashMap<u64, Option<(Instant, bool)>>,
}

impl<L: LatencyAlgorithm> SingleReport<L> {
    pub(super) fn new(algorithm: L) -> Self {
        Self { algorithm, streams_only: false, calls: HashMap::new() }
    }

    /// Creates a contender that reports calls that do not stream with a latency of zero, instead of
    /// the duration of the whole answer. `algorithm` must have an objective for first tokens.
    pub(super) fn first_tokens(algorithm: L) -> Self {
        Self { streams_only: true, ..Self::new(algorithm) }
    }

    fn report(&mut self, now: Instant, id: u64, outcome: ReportedOutcome) {
        let in_flight = self.calls.len();
        if let Some((sent, streams)) = self.calls.get_mut(&id).and_then(Option::take) {
            let judged = streams || !self.streams_only;
            let latency = if judged { now.saturating_duration_since(sent) } else { Duration::ZERO };
            self.algorithm.on_call(outcome, latency, in_flight);
        }
    }
}

impl<L: LatencyAlgorithm> Contender for SingleReport<L> {
    fn limit(&self) -> usize {
        self.algorithm.limit()
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        self.calls.insert(sent.id, Some((now, sent.kind.streams)));
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        self.report(now, id, ReportedOutcome::Answered);
    }

    fn ended(&mut self, now: Instant, id: u64, how: Ended) {
        self.report(now, id, ReportedOutcome::of(how));
        self.calls.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use tidegate::policy::adaptive::CallKind;

    use super::*;
    use crate::virtual_time::time_origin;

    #[derive(Default)]
    struct Recorded(Vec<(ReportedOutcome, u64, usize)>);

    impl LatencyAlgorithm for Recorded {
        fn limit(&self) -> usize {
            1
        }

        fn on_call(&mut self, outcome: ReportedOutcome, latency: Duration, in_flight: usize) {
            self.0.push((outcome, latency.as_secs(), in_flight));
        }
    }

    #[test]
    fn each_call_is_reported_once() {
        let mut limiter = SingleReport::new(Recorded::default());
        let at = |seconds| time_origin() + Duration::from_secs(seconds);
        for id in 0..4 {
            limiter.sent(
                at(id),
                Sent { id, kind: CallKind::default(), waited: Duration::ZERO, in_flight: id as usize + 1 },
            );
        }
        // A stream is reported at its first token, and is still in flight then.
        limiter.first_token(at(5), 0);
        limiter.ended(at(6), 1, Ended::Limited { by_rate: false });
        limiter.ended(at(9), 0, Ended::Completed { output: 9 });
        limiter.ended(at(10), 2, Ended::Cancelled);
        // A call that does not stream is reported at its end.
        limiter.ended(at(11), 3, Ended::Completed { output: 9 });
        let heard = [
            (ReportedOutcome::Answered, 5, 4),
            (ReportedOutcome::Overloaded, 5, 4),
            (ReportedOutcome::Cancelled, 8, 2),
            (ReportedOutcome::Answered, 8, 1),
        ];
        assert_eq!(limiter.algorithm.0, heard);
        // An algorithm with an objective for first tokens gets a zero latency for an answer that
        // does not stream.
        let mut limiter = SingleReport::first_tokens(Recorded::default());
        for (id, streams) in [(0, true), (1, false)] {
            let kind = CallKind { streams, ..CallKind::default() };
            limiter.sent(at(0), Sent { id, kind, waited: Duration::ZERO, in_flight: 1 });
            limiter.ended(at(5), id, Ended::Completed { output: 9 });
        }
        assert_eq!(
            limiter.algorithm.0,
            [(ReportedOutcome::Answered, 5, 1), (ReportedOutcome::Answered, 0, 1)]
        );
    }
}
