//! Stops a run in which nothing works any more: a wrong key, an unknown model, no credit, or a
//! server that is down.
//!
//! Such failures are not caused by the lines. Records of consecutive failures are therefore held
//! back, and are written only once something works again. If the failures continue, the run stops
//! without having marked the remaining lines as failed. Held records were not written, so the next
//! run sends their lines again.

use crate::output::{LineOutcome, ProviderResponse, Record};

/// Holds back the records of consecutive failures.
#[derive(Debug)]
pub(super) struct FailureStreak<T> {
    most: usize,
    any_good: bool,
    held: Vec<T>,
}

/// What to do with records.
#[derive(Debug, PartialEq)]
pub(super) enum StreakDecision<T> {
    /// Write these records.
    Write(Vec<T>),
    /// Write nothing yet.
    Hold,
    /// Stop the run.
    Stop,
}

impl<T> FailureStreak<T> {
    /// Returns a streak that stops the run after `most` consecutive failures; 0 disables it.
    pub(super) fn new(most: usize) -> Self {
        Self { most, any_good: false, held: Vec::new() }
    }

    /// Handles an ended call.
    pub(super) fn put(&mut self, thing: T, blame: FailureSource) -> StreakDecision<T> {
        let counts = match blame {
            FailureSource::None => false,
            FailureSource::Request => !self.any_good,
            FailureSource::Provider => true,
        };
        self.any_good |= blame == FailureSource::None;
        if counts && self.most > 0 {
            self.held.push(thing);
            return if self.held.len() >= self.most { StreakDecision::Stop } else { StreakDecision::Hold };
        }
        let mut all = std::mem::take(&mut self.held);
        all.push(thing);
        StreakDecision::Write(all)
    }

    /// Returns the records that are held back. At the end of a run they are written.
    pub(super) fn take_held(&mut self) -> Vec<T> {
        std::mem::take(&mut self.held)
    }
}

/// The source of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureSource {
    /// No failure.
    None,
    /// The request, unless nothing has worked yet.
    Request,
    /// The provider.
    Provider,
}

impl FailureSource {
    pub(super) fn of(record: &Record) -> Self {
        match &record.outcome {
            LineOutcome::Answered(ProviderResponse { status: 200..400, .. }) => Self::None,
            // These statuses concern the key, the account or its rate. Other client errors concern
            // the request.
            LineOutcome::Answered(ProviderResponse { status: 401 | 402 | 403 | 407 | 408 | 429, .. }) => {
                Self::Provider
            }
            LineOutcome::Answered(ProviderResponse { status: 400..500, .. }) => Self::Request,
            LineOutcome::Answered(_) => Self::Provider,
            LineOutcome::Failed(fault) if fault.code == "too_large" || fault.code == "request" => {
                Self::Request
            }
            LineOutcome::Failed(_) => Self::Provider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_releases_held_failures() {
        let mut streak = FailureStreak::new(3);
        assert_eq!(streak.put(1, FailureSource::Request), StreakDecision::Hold);
        assert_eq!(streak.put(2, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.put(3, FailureSource::None), StreakDecision::Write(vec![1, 2, 3]));
        assert_eq!(
            streak.put(4, FailureSource::Request),
            StreakDecision::Write(vec![4]),
            "after a success, it is the line's own failure"
        );
        assert_eq!(streak.put(5, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.put(6, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.put(7, FailureSource::Provider), StreakDecision::Stop);
        assert_eq!(streak.take_held(), [5, 6, 7]);
        let mut never = FailureStreak::new(0);
        assert!((0..100).all(|n| never.put(n, FailureSource::Provider) == StreakDecision::Write(vec![n])));
    }
}
