//! Stops a run in which nothing works any more: a wrong key, a model that does not exist, no credit left, a server that is gone.
//!
//! Such failures say nothing of the line that they are told to. So they are held back while they follow one another, and are the lines' own only once something
//! works again; where they go on, the run ends, and has not spoiled a hundred thousand lines. What was held back was not written, and is asked for again.

use crate::output::{Answer, Outcome, Record};

/// See the module.
#[derive(Debug)]
pub(super) struct Streak<T> {
    most: usize,
    any_good: bool,
    held: Vec<T>,
}

/// What to do with records.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<T> {
    /// Write these.
    Write(Vec<T>),
    /// Nothing yet.
    Hold,
    /// Nothing works.
    Stop,
}

impl<T> Streak<T> {
    /// Stops after so many failures in a row; 0: never.
    pub(super) fn new(most: usize) -> Self {
        Self { most, any_good: false, held: Vec::new() }
    }

    /// Takes what has ended.
    pub(super) fn put(&mut self, thing: T, blame: Blame) -> Verdict<T> {
        let counts = match blame {
            Blame::None => false,
            Blame::Request => !self.any_good,
            Blame::Provider => true,
        };
        self.any_good |= blame == Blame::None;
        if counts && self.most > 0 {
            self.held.push(thing);
            return if self.held.len() >= self.most { Verdict::Stop } else { Verdict::Hold };
        }
        let mut all = std::mem::take(&mut self.held);
        all.push(thing);
        Verdict::Write(all)
    }

    /// What is still held back: at the end it is the lines' own.
    pub(super) fn rest(&mut self) -> Vec<T> {
        std::mem::take(&mut self.held)
    }
}

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// None: an answer.
    None,
    /// The request's own, unless nothing has worked yet.
    Request,
    /// Not the request's.
    Provider,
}

impl Blame {
    pub(super) fn of(record: &Record) -> Self {
        match &record.outcome {
            Outcome::Answered(Answer { status: 200..400, .. }) => Self::None,
            // The key, the account, its rate; the rest of what a client may do wrong is in the request.
            Outcome::Answered(Answer { status: 401 | 402 | 403 | 407 | 408 | 429, .. }) => Self::Provider,
            Outcome::Answered(Answer { status: 400..500, .. }) => Self::Request,
            Outcome::Answered(_) => Self::Provider,
            Outcome::Failed(fault) if fault.code == "too_large" || fault.code == "request" => Self::Request,
            Outcome::Failed(_) => Self::Provider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_again_lets_go_what_was_held() {
        let mut streak = Streak::new(3);
        assert_eq!(streak.put(1, Blame::Request), Verdict::Hold);
        assert_eq!(streak.put(2, Blame::Provider), Verdict::Hold);
        assert_eq!(streak.put(3, Blame::None), Verdict::Write(vec![1, 2, 3]));
        assert_eq!(
            streak.put(4, Blame::Request),
            Verdict::Write(vec![4]),
            "of one that works it is the line's own"
        );
        assert_eq!(streak.put(5, Blame::Provider), Verdict::Hold);
        assert_eq!(streak.put(6, Blame::Provider), Verdict::Hold);
        assert_eq!(streak.put(7, Blame::Provider), Verdict::Stop);
        assert_eq!(streak.rest(), [5, 6, 7]);
        let mut never = Streak::new(0);
        assert!((0..100).all(|n| never.put(n, Blame::Provider) == Verdict::Write(vec![n])));
    }
}
