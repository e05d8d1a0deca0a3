//! Calls of one class that await an answer, in the order in which they were sent. Each step takes amortised constant time, and no allocation but for
//! the longest the line ever was.

use std::collections::VecDeque;
use std::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Oldest first. Those that are answered stand until they are at the front.
    calls: VecDeque<Awaiting>,
    /// The number of the first.
    first: u64,
}

#[derive(Clone, Copy, Debug)]
struct Awaiting {
    sent_at: Instant,
    at: usize,
    answered: bool,
}

impl Line {
    /// A call is sent, as the `at`-th in flight: its number.
    pub(super) fn push(&mut self, sent_at: Instant, at: usize) -> u64 {
        self.calls.push_back(Awaiting { sent_at, at, answered: false });
        self.first + self.calls.len() as u64 - 1
    }

    /// It is answered, or over. `false`: it was taken out before, as overdue.
    pub(super) fn answered(&mut self, number: u64) -> bool {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(call) = place.and_then(|place| self.calls.get_mut(place)) else { return false };
        call.answered = true;
        self.clear();
        true
    }

    /// When the oldest that is not answered was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.calls.front().map(|call| call.sent_at)
    }

    /// Takes out the oldest, which has waited for too long: when it was sent, and as the how manieth.
    pub(super) fn take_oldest(&mut self) -> Option<(Instant, usize)> {
        let oldest = self.calls.front_mut()?;
        oldest.answered = true;
        let taken = (oldest.sent_at, oldest.at);
        self.clear();
        Some(taken)
    }

    fn clear(&mut self) {
        while self.calls.front().is_some_and(|call| call.answered) {
            self.calls.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn the_oldest_is_the_oldest_that_is_not_answered() {
        let zero = epoch();
        let at = |ms| zero + std::time::Duration::from_millis(ms);
        let mut line = Line::default();
        let numbers = [0, 1, 2].map(|ms| line.push(at(ms), 1));
        assert!(line.answered(numbers[1]));
        assert_eq!(line.oldest(), Some(at(0)));
        assert_eq!(line.take_oldest(), Some((at(0), 1)));
        assert_eq!(line.oldest(), Some(at(2)));
        assert!(!line.answered(numbers[0]), "it was overdue");
        assert!(line.answered(numbers[2]));
        assert_eq!(line.oldest(), None);
        let next = line.push(at(9), 1);
        assert!(line.answered(next), "numbers go on");
    }
}
