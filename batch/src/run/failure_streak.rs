//! Stops a run in which no call succeeds any more, for example because of a wrong key, an unknown
//! model, no credit, or a server that fails. While the server is down, calls wait and do not end;
//! see [`outage`](super::outage).
//!
//! Such failures are not caused by the lines. Therefore the records of consecutive failures are
//! *held*, which means that they are not written until a call succeeds. If the failures continue,
//! the run stops without writing the held records, and the next run sends their lines again.

use crate::output::{LineOutcome, ProviderResponse, Record};

/// Holds back the records of consecutive failures until a call succeeds or the run stops.
#[derive(Debug)]
pub(super) struct FailureStreak<T> {
    max_failures: usize,
    had_success: bool,
    held: Vec<T>,
}

/// What to do after a call has ended.
#[derive(Debug, PartialEq)]
pub(super) enum StreakDecision<T> {
    /// Write these records: those that were held back, then that of the ended call.
    Write(Vec<T>),
    /// Write nothing yet, because the record is held back with those of other failures.
    Hold,
    /// Stop the run, because there were too many consecutive failures.
    Stop,
}

impl<T> FailureStreak<T> {
    /// Returns a streak that stops the run at the `max_failures`th consecutive failure. With 0, it
    /// never stops the run, and holds no records. `had_success` tells whether a call of a previous
    /// run, which this run resumes, succeeded.
    pub(super) fn new(max_failures: usize, had_success: bool) -> Self {
        Self { max_failures, had_success, held: Vec::new() }
    }

    /// Adds the record `item` of an ended call, whose failure has the cause `source`. Returns
    /// whether to write records, to hold this one, or to stop the run.
    pub(super) fn push(&mut self, item: T, source: FailureSource) -> StreakDecision<T> {
        let counts = match source {
            FailureSource::None => false,
            FailureSource::Request => !self.had_success,
            FailureSource::Provider => true,
        };
        self.had_success |= source == FailureSource::None;
        if counts && self.max_failures > 0 {
            self.held.push(item);
            return if self.held.len() >= self.max_failures {
                StreakDecision::Stop
            } else {
                StreakDecision::Hold
            };
        }
        let mut all = std::mem::take(&mut self.held);
        all.push(item);
        StreakDecision::Write(all)
    }

    /// Removes and returns the held records, which are written when the input ends.
    pub(super) fn take_held(&mut self) -> Vec<T> {
        std::mem::take(&mut self.held)
    }
}

/// The probable cause of the failure of a call, or [`FailureSource::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureSource {
    /// The call did not fail.
    None,
    /// The request caused the failure. It counts as a consecutive failure only before the first
    /// success of the run and of the previous runs that it resumes.
    Request,
    /// The provider, the key or the account caused the failure. It counts as a consecutive failure.
    Provider,
}

impl FailureSource {
    pub(super) fn from_record(record: &Record) -> Self {
        match &record.outcome {
            LineOutcome::Answered(ProviderResponse { status: 200..300, .. }) => Self::None,
            // These statuses concern the key, the account or its rate. Other client errors concern
            // the request.
            LineOutcome::Answered(ProviderResponse { status: 401 | 402 | 403 | 407 | 408 | 429, .. }) => {
                Self::Provider
            }
            LineOutcome::Answered(ProviderResponse { status: 400..500, .. }) => Self::Request,
            // Server errors, and redirects, which are not followed.
            LineOutcome::Answered(_) => Self::Provider,
            LineOutcome::Failed(error) if error.code == "too_large" || error.code == "request" => {
                Self::Request
            }
            LineOutcome::Failed(_) => Self::Provider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Checksum;

    #[test]
    fn success_releases_held_failures() {
        let mut streak = FailureStreak::new(3, false);
        assert_eq!(streak.push(1, FailureSource::Request), StreakDecision::Hold);
        assert_eq!(streak.push(2, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.push(3, FailureSource::None), StreakDecision::Write(vec![1, 2, 3]));
        assert_eq!(
            streak.push(4, FailureSource::Request),
            StreakDecision::Write(vec![4]),
            "after a success, it is the line's own failure"
        );
        assert_eq!(streak.push(5, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.push(6, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.push(7, FailureSource::Provider), StreakDecision::Stop);
        assert_eq!(streak.take_held(), [5, 6, 7]);
        let mut never = FailureStreak::new(0, false);
        assert!((0..100).all(|n| never.push(n, FailureSource::Provider) == StreakDecision::Write(vec![n])));
    }

    #[test]
    fn only_a_status_of_success_is_no_failure() {
        let source = |status| {
            let answer = ProviderResponse::new(status, "", &bytes::Bytes::new());
            let outcome = LineOutcome::Answered(answer);
            FailureSource::from_record(&Record {
                line: 1,
                sum: Checksum(0),
                custom_id: String::new(),
                outcome,
            })
        };
        assert_eq!([200, 299].map(source), [FailureSource::None; 2]);
        assert_eq!([301, 304, 308, 401, 500].map(source), [FailureSource::Provider; 5]);
        assert_eq!([400, 404].map(source), [FailureSource::Request; 2]);
    }
}
