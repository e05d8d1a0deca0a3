//! Queue of the calls of one class that await their response, in the order of sending.
//!
//! Each operation takes amortized constant time and allocates only when the queue reaches a new
//! maximum length.

use std::collections::VecDeque;
use std::time::Instant;

/// The calls of one class that await their response.
#[derive(Debug, Default)]
pub(super) struct AwaitingCalls {
    /// Oldest first. Answered calls stay until they are at the front.
    calls: VecDeque<Awaiting>,
    /// Number of the call at the front.
    first_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Awaiting {
    sent_at: Instant,
    in_flight: usize,
    is_answered: bool,
}

impl AwaitingCalls {
    /// Adds a call that is sent as the `in_flight`-th call in flight. Returns its number.
    pub(super) fn push(&mut self, sent_at: Instant, in_flight: usize) -> u64 {
        self.calls.push_back(Awaiting { sent_at, in_flight, is_answered: false });
        self.first_number + self.calls.len() as u64 - 1
    }

    /// Removes a call that was answered or ended. Returns `false` if it was removed before as
    /// overdue.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let index = number.checked_sub(self.first_number).and_then(|index| usize::try_from(index).ok());
        let Some(call) = index.and_then(|index| self.calls.get_mut(index)) else { return false };
        call.is_answered = true;
        self.drop_answered();
        true
    }

    /// Returns when the oldest awaiting call was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.calls.front().map(|call| call.sent_at)
    }

    /// Removes the oldest call, which is overdue. Returns when it was sent and the number of calls
    /// in flight at that time.
    pub(super) fn pop_oldest(&mut self) -> Option<(Instant, usize)> {
        let oldest = self.calls.front_mut()?;
        oldest.is_answered = true;
        let taken = (oldest.sent_at, oldest.in_flight);
        self.drop_answered();
        Some(taken)
    }

    fn drop_answered(&mut self) {
        while self.calls.front().is_some_and(|call| call.is_answered) {
            self.calls.pop_front();
            self.first_number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn oldest_skips_answered_calls() {
        let zero = epoch();
        let at = |ms| zero + std::time::Duration::from_millis(ms);
        let mut calls = AwaitingCalls::default();
        let numbers = [0, 1, 2].map(|ms| calls.push(at(ms), 1));
        assert!(calls.remove(numbers[1]));
        assert_eq!(calls.oldest(), Some(at(0)));
        assert_eq!(calls.pop_oldest(), Some((at(0), 1)));
        assert_eq!(calls.oldest(), Some(at(2)));
        assert!(!calls.remove(numbers[0]), "it was overdue");
        assert!(calls.remove(numbers[2]));
        assert_eq!(calls.oldest(), None);
        let next = calls.push(at(9), 1);
        assert!(calls.remove(next), "numbers go on");
    }
}
