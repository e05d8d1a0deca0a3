//! Calls that are held against their like: what their first token takes when there is room, and when it comes late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Kind;

/// Classes of calls that stream, by the length of the prompt: each is of prompts up to twice as long as the last. The first is of up to 256 tokens.
const PROMPTS: usize = 10;
/// Classes of calls that do not, by the length of the answer: each four times as long. The first is of up to 64 tokens.
const ANSWERS: usize = 6;
pub(super) const CLASSES: usize = PROMPTS + ANSWERS;

/// So many calls of a class must have been seen before it is known what they take.
const KNOWN: u32 = 5;
/// The baseline follows calls that were quicker by this share of the difference, and those that were slower by the other: so it comes to lie
/// among the quickest tenth, and a time of congestion moves it little.
const DOWN: f64 = 0.25;
const UP: f64 = 0.02;
/// What counts as late, of calls that nobody set an objective for, or that take most of it alone: so many times the baseline.
const TIMES: f64 = 3.0;
/// No threshold that is derived from a baseline is lower.
const LEAST: f64 = 0.25;
/// Calls may be kept waiting for this share of the objective, also where their baseline leaves less of it.
const SPARE: f64 = 0.5;

/// Which class a call belongs to.
pub(super) fn class_of(kind: Kind) -> usize {
    if kind.streams {
        step(kind.input, 256, 1).min(PROMPTS - 1)
    } else {
        PROMPTS + step(kind.output, 64, 2).min(ANSWERS - 1)
    }
}

/// How many times `first` must be multiplied by two to the `bits` to reach that many tokens.
fn step(tokens: u64, first: u64, bits: u32) -> usize {
    let over = tokens.max(1).div_ceil(first).next_power_of_two().trailing_zeros();
    over.div_ceil(bits) as usize
}

/// One class.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// Seconds that the quickest take.
    base: f64,
    /// What they take of late.
    recent: f64,
    seen: u32,
    /// Those in flight that have not been answered, oldest first; answered ones stand until they are at the front.
    waiting: VecDeque<Waiting>,
    /// The number of the first of them.
    first: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    sent_at: Instant,
    answered: bool,
}

impl Class {
    /// When an answer is late; `None`: not known yet.
    pub(super) fn threshold(&self, objective: Option<Duration>) -> Option<f64> {
        let known = self.seen >= KNOWN;
        match objective.map(|objective| objective.as_secs_f64()) {
            Some(objective) if known => Some(objective.max(self.base + SPARE * objective)),
            Some(objective) => Some(objective),
            None => known.then_some((TIMES * self.base).max(LEAST)),
        }
    }

    /// How much of the time between what it takes when there is room and what is late an answer took: 0 and less, it was quick; above 1, late.
    pub(super) fn strain(&self, took: f64, threshold: f64) -> f64 {
        let base = if self.seen >= KNOWN { self.base } else { 0.0 };
        (took - base) / (threshold - base)
    }

    /// An answer came after so long. `calm`: nothing is congested, so that one that was slower may be what is usual.
    pub(super) fn learn(&mut self, took: f64, calm: bool) {
        if self.seen == 0 {
            (self.base, self.recent) = (took, took);
        }
        self.seen = self.seen.saturating_add(1);
        self.recent += 0.2 * (took - self.recent);
        if took < self.base {
            self.base += DOWN * (took - self.base);
        } else if calm || self.seen < KNOWN {
            self.base += UP * (took.min(4.0 * self.base) - self.base);
        }
    }

    /// What it takes of late is what it takes.
    pub(super) fn accept(&mut self) {
        self.base = self.base.max(self.recent);
    }

    /// A call is sent: its number.
    pub(super) fn push(&mut self, sent_at: Instant) -> u64 {
        self.waiting.push_back(Waiting { sent_at, answered: false });
        self.first + self.waiting.len() as u64 - 1
    }

    /// It is answered, or over. `false`: it was overdue before ([`Class::overdue`]).
    pub(super) fn answered(&mut self, number: u64) -> bool {
        let Some(index) = number.checked_sub(self.first) else { return false };
        if let Some(waiting) = self.waiting.get_mut(index as usize) {
            waiting.answered = true;
        }
        while self.waiting.front().is_some_and(|waiting| waiting.answered) {
            self.pop();
        }
        true
    }

    /// When the oldest that waits was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.sent_at)
    }

    /// Takes out the oldest, which has waited for too long.
    pub(super) fn overdue(&mut self) {
        self.pop();
        while self.waiting.front().is_some_and(|waiting| waiting.answered) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.waiting.pop_front();
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(input: u64) -> usize {
        class_of(Kind { input, output: 0, streams: true })
    }

    #[test]
    fn prompts_of_like_length_are_of_one_class() {
        assert_eq!([0, 1, 256, 257, 512, 513, 1_024].map(prompt), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(prompt(u64::MAX >> 1), PROMPTS - 1);
        let answer = |output| class_of(Kind { input: 9, output, streams: false }) - PROMPTS;
        assert_eq!([0, 64, 65, 256, 257, 1_024, 1 << 40].map(answer), [0, 0, 1, 1, 2, 2, ANSWERS - 1]);
    }
}
