//! Calls that are held against their like: what an answer takes when there is room, and when it comes late.
//!
//! The time to a first token is flat in the length of the prompt, and then linear: so a long prompt is no sign of congestion, and calls are judged by
//! class. Each class keeps a *baseline*, learned only while there is room: a baseline that followed whatever is seen would call every congestion
//! usual after a while, and the limit would grow with it.

use std::time::{Duration, Instant};

use super::Kind;
use super::line::Line;

/// Classes of calls that stream, by the length of the prompt: each is of prompts up to twice as long as the last. The first is of up to 256 tokens.
pub(super) const PROMPTS: usize = 10;
/// Classes of calls that do not, by the length of the answer. The first is of up to 32 tokens.
const ANSWERS: usize = 12;
/// All of them.
pub(super) const CLASSES: usize = PROMPTS + ANSWERS;

/// So many calls of a class must have been seen before it is known what they take.
const KNOWN: u32 = 5;
/// Weight of a call in the baseline, where it was quicker, and where it was slower.
const DOWN: f64 = 0.1;
const UP: f64 = 0.15;
/// Weight of a call in what calls take of late.
const RECENT: f64 = 0.1;
/// A call moves the baseline no further than one that took so many times as long.
const MOST: f64 = 6.0;
/// What counts as late where nobody set an objective: so many times the baseline, and no less than so many seconds.
const TIMES: f64 = 3.0;
const LEAST: f64 = 0.25;
/// Calls may be kept waiting for this share of the objective, also where their baseline leaves less of it: what is slow by itself does not become
/// quicker by a lower limit.
const SPARE: f64 = 0.5;

/// Which class a call belongs to.
pub(super) fn class_of(kind: Kind) -> usize {
    if kind.streams {
        step(kind.input, 256).min(PROMPTS - 1)
    } else {
        PROMPTS + step(kind.output, 32).min(ANSWERS - 1)
    }
}

/// Whether the calls of a class stream.
pub(super) fn streams(class: usize) -> bool {
    class < PROMPTS
}

/// How many times `first` must be doubled to reach that many tokens.
fn step(tokens: u64, first: u64) -> usize {
    let times = tokens.max(1).div_ceil(first).checked_next_power_of_two();
    times.map_or(usize::MAX, |times| times.trailing_zeros() as usize)
}

/// One class.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// Seconds that its calls take when there is room.
    base: f64,
    /// What they take of late.
    recent: f64,
    seen: u32,
    /// Those of its calls whose answer is awaited.
    pub(super) line: Line,
}

impl Class {
    /// How many seconds are too many; `None`: not known yet.
    pub(super) fn threshold(&self, objective: Option<Duration>) -> Option<f64> {
        let known = self.seen >= KNOWN;
        match objective.map(|objective| objective.as_secs_f64()) {
            Some(objective) if known => Some(objective.max(self.base + SPARE * objective)),
            Some(objective) => Some(objective),
            None => known.then_some((TIMES * self.base).max(LEAST)),
        }
    }

    /// How much of the time between what is usual and what is late an answer took: above 1, it was late. `None`: nothing is known of such calls.
    pub(super) fn strain(&self, took: f64, objective: Option<Duration>) -> Option<f64> {
        let base = if self.seen >= KNOWN { self.base } else { 0.0 };
        self.threshold(objective).map(|threshold| (took - base) / (threshold - base).max(1e-6))
    }

    /// An answer took so long. `calm`: there was room, so that this is what such calls take.
    pub(super) fn learn(&mut self, took: f64, calm: bool) {
        if self.seen == 0 {
            (self.base, self.recent) = (took, took);
        }
        self.seen = self.seen.saturating_add(1);
        self.recent += RECENT * (took - self.recent);
        if calm || self.seen < KNOWN {
            let weight = if took < self.base { DOWN } else { UP };
            self.base += weight * (took.min(MOST * self.base) - self.base);
        }
        // What is quick though there is no room is quicker yet when there is.
        self.base = self.base.min(self.recent);
    }

    /// When its oldest call that waits is late.
    pub(super) fn overdue_at(&self, objective: Option<Duration>) -> Option<Instant> {
        let sent_at = self.line.oldest()?;
        let threshold = Duration::try_from_secs_f64(self.threshold(objective)?).ok()?;
        sent_at.checked_add(threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(input: u64) -> usize {
        class_of(Kind { input, output: 0, streams: true })
    }

    fn class_of_one(took: f64) -> Class {
        let mut class = Class::default();
        (0..20).for_each(|_| class.learn(took, true));
        class
    }

    #[test]
    fn calls_of_like_length_are_of_one_class() {
        assert_eq!([0, 1, 256, 257, 512, 513, 1_024].map(prompt), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(prompt(u64::MAX), PROMPTS - 1);
        let answer = |output| class_of(Kind { input: 9, output, streams: false }) - PROMPTS;
        assert_eq!([0, 32, 33, 64, 65, 128, u64::MAX].map(answer), [0, 0, 1, 1, 2, 2, ANSWERS - 1]);
    }

    #[test]
    fn an_objective_holds_where_it_can_be_met() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(Class::default().threshold(second), Some(1.0), "also before anything is known");
        assert_eq!(class_of_one(0.2).threshold(second), Some(1.0));
        let slow = class_of_one(2.0).threshold(second).unwrap();
        assert!((slow - 2.5).abs() < 1e-9, "what takes longer by itself is given half of it more: {slow}");
    }

    #[test]
    fn without_an_objective_calls_are_held_against_what_they_take() {
        assert_eq!(Class::default().threshold(None), None);
        let threshold = class_of_one(2.0).threshold(None).unwrap();
        assert!((threshold - 6.0).abs() < 1e-9, "{threshold}");
        assert_eq!(class_of_one(0.01).threshold(None), Some(LEAST));
    }

    #[test]
    fn congestion_is_not_learned() {
        let mut class = class_of_one(0.2);
        (0..10_000).for_each(|_| class.learn(3.0, false));
        assert!((class.base - 0.2).abs() < 1e-9, "{}", class.base);
        (0..200).for_each(|_| class.learn(3.0, true));
        assert!(class.base > 2.9, "but what they take when there is room is: {}", class.base);
    }
}
