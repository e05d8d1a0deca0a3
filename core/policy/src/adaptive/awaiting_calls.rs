//! Queue of the calls of one latency class that await their first token or their response, in the
//! order in which the limit heard of them. Calls of other processes may have been sent a little
//! earlier.
//!
//! Each operation takes amortized constant time and allocates only when the queue reaches a new
//! maximum length.

use std::collections::VecDeque;

use super::call_sample::Sent;

/// A queue of the calls of one latency class that await their first token or, if they do not
/// stream, their response, and are not overdue.
#[derive(Debug, Default)]
pub(super) struct AwaitingCalls {
    /// The calls, the oldest first. A removed call leaves `None` behind until all older calls are
    /// removed; the front is never `None`.
    calls: VecDeque<Option<Sent>>,
    /// Number that [`AwaitingCalls::push`] returned for the call at the front. For an empty queue,
    /// the number that it returns next.
    first_number: u64,
}

impl AwaitingCalls {
    /// Adds a call that has just been sent. Returns the number that identifies the call in
    /// [`AwaitingCalls::remove`].
    pub(super) fn push(&mut self, sent: Sent) -> u64 {
        self.calls.push_back(Some(sent));
        self.first_number + self.calls.len() as u64 - 1
    }

    /// Removes the call with this number, because it was answered or has ended. Returns `true`, or
    /// `false` if [`AwaitingCalls::pop_oldest`] removed the call before.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let index = number.checked_sub(self.first_number).and_then(|index| usize::try_from(index).ok());
        let Some(call) = index.and_then(|index| self.calls.get_mut(index)) else { return false };
        *call = None;
        self.drop_removed();
        true
    }

    /// Returns the oldest call, or `None` if there is none.
    pub(super) fn oldest(&self) -> Option<Sent> {
        *self.calls.front()?
    }

    /// Removes and returns the oldest call, or returns `None` if there is none.
    pub(super) fn pop_oldest(&mut self) -> Option<Sent> {
        let oldest = self.calls.front_mut()?.take();
        self.drop_removed();
        oldest
    }

    /// Drops the `None` entries of removed calls from the front of the queue.
    fn drop_removed(&mut self) {
        while let Some(None) = self.calls.front() {
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
        let sent = |ms| Sent { at: zero + std::time::Duration::from_millis(ms), in_flight: 1, number: 0 };
        let mut calls = AwaitingCalls::default();
        let numbers = [0, 1, 2].map(|ms| calls.push(sent(ms)));
        assert!(calls.remove(numbers[1]));
        assert_eq!(calls.oldest(), Some(sent(0)));
        assert_eq!(calls.pop_oldest(), Some(sent(0)));
        assert_eq!(calls.oldest(), Some(sent(2)));
        assert!(!calls.remove(numbers[0]), "the call was removed as overdue");
        assert!(calls.remove(numbers[2]));
        assert_eq!(calls.oldest(), None);
        let next = calls.push(sent(9));
        assert!(calls.remove(next), "numbers continue after the queue was empty");
    }
}
