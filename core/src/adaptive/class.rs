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

/// So many calls of a class must have been seen before it is known what they take: they teach it whatever the load is, and are not judged.
const KNOWN: u32 = 8;
/// And until so many were seen, what is seen before the first cut teaches as well: the first to be answered are the quickest, and few.
const YOUNG: u32 = 48;
/// Weight of a call in the baseline, where it was quicker, and where it was slower.
const DOWN: f64 = 0.1;
const UP: f64 = 0.15;
/// Weight of a call in what calls take of late.
const RECENT: f64 = 0.1;
/// What calls take of late must be below the baseline by this, before it is taken for what they take when there is room.
const BELOW: f64 = 0.8;
/// Weight of a call in the share that is usually late.
const USUAL: f64 = 0.05;
/// A call moves the baseline no further than one that took so many times as long.
const MOST: f64 = 6.0;
/// A baseline that was not seen with room counts as no more than this share of the objective.
const NEARLY: f64 = 0.9;
/// What counts as late where nobody set an objective: so many times the baseline, and no less than so many seconds.
const TIMES: f64 = 3.0;
const LEAST: f64 = 0.25;
/// What differs by itself is not late: answers may take longer than the baseline by so many times what they differ from it by in the mean.
const SPREADS: f64 = 3.0;
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
    /// What they differ from it by, in the mean.
    spread: f64,
    /// What they take of late.
    recent: f64,
    seen: u32,
    /// Whether its calls were seen to take most of the objective when there was room.
    is_slow: bool,
    /// The share that is late when there is room.
    usual: f64,
    /// Those of its calls whose answer is awaited.
    pub(super) line: Line,
}

impl Class {
    /// Whether it is known what its calls take.
    pub(super) fn is_known(&self) -> bool {
        self.seen >= KNOWN
    }

    /// How many seconds are too many; `None`: not known yet.
    pub(super) fn threshold(&self, objective: Option<Duration>) -> Option<f64> {
        let by_itself = self.base + SPREADS * self.spread;
        match objective.map(|objective| objective.as_secs_f64()) {
            // What is quick enough by itself is held to the objective, however it differs.
            Some(objective) if self.is_slow => {
                Some(by_itself.max(self.base + SPARE * objective).max(objective))
            }
            Some(objective) => Some(objective),
            None => self.is_known().then_some((TIMES * self.base).max(by_itself).max(LEAST)),
        }
    }

    /// The strain that its calls have in the mean when there is room, for what they differ by.
    pub(super) fn usual_strain(&self, objective: Option<Duration>) -> f64 {
        let base = self.base(objective);
        self.threshold(objective).map_or(0.0, |threshold| 0.5 * self.spread / (threshold - base).max(1e-6))
    }

    /// Whether it is held against what it takes by itself, and has seen so few that this may be off.
    pub(super) fn is_young(&self, objective: Option<Duration>) -> bool {
        self.seen < YOUNG && objective.is_none()
    }

    /// Notes, after a call that met room, whether the objective can be kept. `true`: it is new that it cannot, so that calls were held against the upstream which
    /// were slow by themselves.
    pub(super) fn finds_slow(&mut self, objective: Option<Duration>) -> bool {
        let slow =
            objective.is_some_and(|objective| self.is_known() && self.base > SPARE * objective.as_secs_f64());
        let new = slow && !self.is_slow;
        self.is_slow = slow;
        new
    }

    /// How much of the time between what is usual and what is late an answer took: above 1, it was late. `None`: nothing is known of such calls.
    pub(super) fn strain(&self, took: f64, objective: Option<Duration>) -> Option<f64> {
        let base = self.base(objective);
        self.threshold(objective).map(|threshold| (took - base) / (threshold - base).max(1e-6))
    }

    /// An answer took so long. `calm`: there was room, so that this is what such calls take.
    pub(super) fn learn(&mut self, took: f64, calm: bool) {
        self.seen = self.seen.saturating_add(1);
        if self.seen <= KNOWN {
            let weight = 1.0 / f64::from(self.seen);
            self.base += weight * (took - self.base);
            self.spread += weight * ((took - self.base).abs() - self.spread);
            self.recent = self.base;
            return;
        }
        self.recent += RECENT * (took - self.recent);
        if calm {
            let took = took.min(MOST * self.base);
            let weight = if took < self.base { DOWN } else { UP };
            self.spread += DOWN * ((took - self.base).abs() - self.spread);
            self.base += weight * (took - self.base);
        }
        // What is quick though there is no room is quicker yet when there is.
        if self.recent < BELOW * self.base {
            self.base = self.recent;
        }
    }

    /// A call was late, or not, though there was room.
    pub(super) fn learn_usual(&mut self, late: bool) {
        self.usual += USUAL * (f64::from(u8::from(late)) - self.usual);
    }

    /// The share that is late when there is room.
    pub(super) fn usual(&self) -> f64 {
        self.usual
    }

    /// Seconds that its calls take when there is room; 0: not known. Where the objective holds, it was not seen to be more than leaves room before that: what the
    /// first calls took may have been a queue.
    pub(super) fn base(&self, objective: Option<Duration>) -> f64 {
        match objective {
            _ if !self.is_known() => 0.0,
            Some(objective) if !self.is_slow => self.base.min(NEARLY * objective.as_secs_f64()),
            _ => self.base,
        }
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
        class.finds_slow(Some(Duration::from_secs(1)));
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
