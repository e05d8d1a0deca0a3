//! The calls that were sent most recently, to tell whether a late call was overtaken by later ones.

use std::collections::VecDeque;
use std::time::Instant;

use super::latency_class::is_streaming;

/// Maximum number of calls that are remembered. If many more are sent while a late call awaits its
/// answer, none is left to compare it with, and it does not count as overtaken.
const MAX_CALLS: usize = 256;
/// Minimum share of the calls compared with a late call that must be answered for it to be
/// overtaken.
const MIN_ANSWERED: f64 = 1.0 / 3.0;
/// The same, for the calls that were compared with the last late calls. It is more than calls of
/// other queues reach if an upstream has two queues.
const MIN_RECENTLY_ANSWERED: f64 = 2.0 / 3.0;
/// Factor by which the calls of earlier comparisons count less with each late call.
const DECAY: f64 = 15.0 / 16.0;

/// The calls that were sent most recently.
#[derive(Debug, Default)]
pub(super) struct RecentCalls {
    /// The calls in the order in which the limit heard of them, the newest last.
    calls: VecDeque<RecentCall>,
    /// Number of the call at the front.
    first_number: u64,
    /// Decaying number of calls that were compared with late calls.
    compared: f64,
    /// Decaying number of the compared calls that were answered.
    answered: f64,
}

#[derive(Debug)]
struct RecentCall {
    sent_at: Instant,
    /// Index of the latency class, which increases with the length of the prompt or with the work.
    class: usize,
    /// Whether the first token of a stream, or the whole response of another call, has arrived.
    is_answered: bool,
}

impl RecentCalls {
    /// Adds a call that was sent at `sent_at`. Returns its number.
    pub(super) fn push(&mut self, sent_at: Instant, class: usize) -> u64 {
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
            self.first_number += 1;
        }
        self.calls.push_back(RecentCall { sent_at, class, is_answered: false });
        self.first_number + self.calls.len() as u64 - 1
    }

    /// Records that the call with this number is answered: its first token has arrived or, if it
    /// does not stream, its response. `class` is its latency class, which depends on the response.
    pub(super) fn on_answer(&mut self, number: u64, class: usize) {
        let index = number.checked_sub(self.first_number).and_then(|index| usize::try_from(index).ok());
        if let Some(call) = index.and_then(|index| self.calls.get_mut(index)) {
            (call.is_answered, call.class) = (true, class);
        }
    }

    /// Compares a late call with the calls that were sent from `from` to `to`. Returns `true` if
    /// the call was overtaken: a third of these calls are answered, and so were two thirds of all
    /// calls that were compared with the last late calls. A stream is only compared with streams,
    /// and another call only with others. Of these, only calls of `class`, of the class before it
    /// and of classes with longer prompts or more work are compared. A call that has ended without
    /// an answer counts as not answered.
    pub(super) fn compare(&mut self, class: usize, from: Instant, to: Instant) -> bool {
        let is_similar = |of: usize| of + 1 >= class && is_streaming(of) == is_streaming(class);
        let is_compared = |call: &&RecentCall| is_similar(call.class) && (from..=to).contains(&call.sent_at);
        let count = |(all, answered), call: &RecentCall| (all + 1.0, answered + f64::from(call.is_answered));
        let (all, answered) = self.calls.iter().filter(is_compared).fold((0.0, 0.0), count);
        self.compared = DECAY * self.compared + all;
        self.answered = DECAY * self.answered + answered;
        answered > 0.0
            && answered >= MIN_ANSWERED * all
            && self.answered >= MIN_RECENTLY_ANSWERED * self.compared
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::epoch;

    #[test]
    fn most_compared_calls_must_be_answered() {
        let zero = epoch();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut calls = RecentCalls::default();
        let numbers = [0, 300, 400, 500, 900].map(|ms| calls.push(at(ms), 3));
        let compared = [0, 4, 1, 2].map(|index| {
            calls.on_answer(numbers[index], 3);
            calls.compare(3, at(200), at(800))
        });
        assert_eq!(compared, [false; 4], "two of three, but none and one before");
        calls.on_answer(numbers[3], 3);
        let compared = [0; 9].map(|_| calls.compare(3, at(200), at(800)));
        assert_eq!((compared[0], compared[8]), (false, true));
    }

    #[test]
    fn third_of_the_calls_compared_last_must_be_answered() {
        let zero = epoch();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut calls = RecentCalls::default();
        let numbers = [100, 200, 300, 400, 500].map(|ms| calls.push(at(ms), 0));
        calls.on_answer(numbers[0], 0);
        for _ in 0..99 {
            assert!(calls.compare(0, at(100), at(100)));
        }
        calls.on_answer(numbers[1], 0);
        assert!(!calls.compare(0, at(200), at(500)), "one of four");
        assert!(calls.compare(0, at(200), at(400)), "one of three");
    }

    #[test]
    fn only_calls_of_the_period_with_long_prompts_are_compared() {
        let zero = epoch();
        let at = |ms| zero + Duration::from_millis(ms);
        let compare = |class, from, to| {
            let mut calls = RecentCalls::default();
            let numbers = [0, 300, 400, 900].map(|ms| calls.push(at(ms), 3));
            numbers[1..3].iter().for_each(|number| calls.on_answer(*number, 3));
            calls.compare(class, at(from), at(to))
        };
        assert_eq!([2, 3, 4, 5].map(|class| compare(class, 200, 800)), [true, true, true, false]);
        assert!(!compare(3, 500, 800), "no call was sent then");
        assert!(!compare(3, 400, 900), "half are answered");
    }

    #[test]
    fn oldest_calls_are_forgotten() {
        let zero = epoch();
        let mut calls = RecentCalls::default();
        for number in 0..1_000 {
            assert_eq!(calls.push(zero, 0), number);
            calls.on_answer(number.saturating_sub(300), 0);
        }
        assert!(!calls.compare(0, zero, zero), "answers to forgotten calls change nothing");
        calls.on_answer(743, 0);
        assert!(!calls.compare(0, zero, zero));
        (744..1_000).for_each(|number| calls.on_answer(number, 0));
        let compared = [0; 99].map(|_| calls.compare(0, zero, zero));
        assert!(compared[98]);
    }
}
