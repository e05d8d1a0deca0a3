//! Stops a run in which nothing works any more: a wrong key, a model that does not exist, no credit left, a server that is gone.
//!
//! Such failures say nothing of the line that they are told to. So they are held back while they follow one another, and are the lines' own only once something
//! works again; where they go on, the run ends, and has not spoiled a hundred thousand lines. What was held back was not written, and is asked for again.

use crate::output::{LineOutcome, ProviderResponse, Record};

/// See the module.
#[derive(Debug)]
pub(super) struct FailureStreak<T> {
    most: usize,
    any_good: bool,
    held: Vec<T>,
}

/// What to do with records.
#[derive(Debug, PartialEq)]
pub(super) enum StreakDecision<T> {
    /// Write these.
    Write(Vec<T>),
    /// Nothing yet.
    Hold,
    /// Nothing works.
    Stop,
}

impl<T> FailureStreak<T> {
    /// Stops after so many failures in a row; 0: never.
    pub(super) fn new(most: usize) -> Self {
        Self { most, any_good: false, held: Vec::new() }
    }

    /// Takes what has ended.
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

    /// What is still held back: at the end it is the lines' own.
    pub(super) fn rest(&mut self) -> Vec<T> {
        std::mem::take(&mut self.held)
    }
}

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureSource {
    /// None: an answer.
    None,
    /// The request's own, unless nothing has worked yet.
    Request,
    /// Not the request's.
    Provider,
}

impl FailureSource {
    pub(super) fn of(record: &Record) -> Self {
        match &record.outcome {
            LineOutcome::Answered(ProviderResponse { status: 200..400, .. }) => Self::None,
            // The key, the account, its rate; the rest of what a client may do wrong is in the request.
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
            "of one that works it is the line's own"
        );
        assert_eq!(streak.put(5, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.put(6, FailureSource::Provider), StreakDecision::Hold);
        assert_eq!(streak.put(7, FailureSource::Provider), StreakDecision::Stop);
        assert_eq!(streak.rest(), [5, 6, 7]);
        let mut never = FailureStreak::new(0);
        assert!((0..100).all(|n| never.put(n, FailureSource::Provider) == StreakDecision::Write(vec![n])));
    }
}
