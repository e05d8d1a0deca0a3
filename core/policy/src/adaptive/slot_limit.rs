//! The number of slots in force, between a minimum and a maximum, and the history of its changes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Decision, DecisionCause};
use crate::push_bounded;

/// Maximum number of decisions that are remembered.
const MAX_CHANGES: usize = 32;
/// Maximum time between two cuts for 429s that belong to one run. A run counts as one cut.
const REFUSAL_RUN: Duration = Duration::from_secs(1);

/// The current number of slots with the history of its changes.
#[derive(Debug)]
pub(super) struct SlotLimit {
    /// Current number of slots, including a fraction.
    pub(super) value: f64,
    /// Minimum of `value`, at least 1.
    min: f64,
    /// Maximum of `value`, at least 1.
    max: f64,
    /// Whether another process decides, so that raises and cuts have no effect.
    pub(super) is_followed: bool,
    /// The last change, not merged with earlier ones. `None` before the first change.
    pub(super) last: Option<Decision>,
    /// Up to [`MAX_CHANGES`] recent changes, the newest last. Consecutive raises for the same
    /// cause, and runs of 429s, are merged into one.
    pub(super) changes: VecDeque<Decision>,
    /// Number of changes per cause, in the order of [`DecisionCause::ALL`]. Each raise counts, and
    /// a run of 429s counts once.
    pub(super) counts: [u64; DecisionCause::ALL.len()],
}

impl SlotLimit {
    /// Creates a limit of `start` slots, raised to `min` and lowered to `max` if necessary. If
    /// `min` exceeds `max`, `max` applies. All three are at least 1.
    pub(super) fn new(start: usize, min: usize, max: usize) -> Self {
        let (min, max) = (min.clamp(1, max.max(1)) as f64, max.max(1) as f64);
        let value = (start as f64).clamp(min, max);
        Self {
            value,
            min,
            max,
            is_followed: false,
            last: None,
            changes: VecDeque::new(),
            counts: Default::default(),
        }
    }

    /// Returns the number of whole slots: the fraction is dropped.
    pub(super) fn slots(&self) -> usize {
        self.value as usize
    }

    /// Sets the slots to those of the leader; from now on, the events of calls do not change them.
    pub(super) fn set_followed(&mut self, slots: usize) {
        self.is_followed = true;
        if self.slots() != slots {
            self.value = (slots as f64).clamp(1.0, self.max);
        }
    }

    /// Raises the slots by `by`, but not above the maximum. `awaiting` is the first-token limit,
    /// which is recorded with the decision.
    pub(super) fn raise(&mut self, now: Instant, by: f64, cause: DecisionCause, awaiting: usize) {
        self.set(now, (self.value + by).min(self.max), cause, [awaiting; 2]);
    }

    /// Cuts the slots to `to`, but not below the minimum. `awaiting` contains the first-token limit
    /// before and after the cut, in this order.
    pub(super) fn cut(&mut self, now: Instant, to: f64, cause: DecisionCause, awaiting: [usize; 2]) {
        self.set(now, to.min(self.value).max(self.min), cause, awaiting);
    }

    /// Sets the slots. Records a decision if the number of whole slots has changed or the
    /// first-token limit has decreased. Raises for the same cause, and cuts in one run of 429s, are
    /// merged with the previous decision.
    fn set(&mut self, now: Instant, value: f64, cause: DecisionCause, [before, awaiting]: [usize; 2]) {
        if self.is_followed {
            return;
        }
        let from = self.slots();
        self.value = value;
        let change = Decision { at: now, from, to: self.slots(), awaiting, cause };
        if change.to == from && awaiting >= before {
            return;
        }
        self.last = Some(change);
        let is_continued = |last: &&mut Decision| {
            let age = now.saturating_duration_since(last.at);
            let is_run = cause == DecisionCause::Refused && age < REFUSAL_RUN;
            last.cause == cause && (cause.raises() || is_run)
        };
        let continued = self.changes.back_mut().filter(is_continued);
        if continued.is_none() || cause.raises() {
            self.counts[cause as usize] += 1;
        }
        match continued {
            Some(last) => *last = Decision { from: last.from, ..change },
            None => push_bounded(&mut self.changes, MAX_CHANGES, change),
        }
    }

    /// Returns the number of raises if `raises` is `true`, otherwise the number of cuts.
    pub(super) fn count(&self, raises: bool) -> u64 {
        let counts = DecisionCause::ALL.iter().zip(self.counts);
        counts.filter(|(cause, _)| cause.raises() == raises).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn slots_stay_within_bounds_and_record_causes() {
        let (mut slots, now) = (SlotLimit::new(8, 2, 16), epoch());
        for by in [1.0, 1.5, 40.0] {
            slots.raise(now, by, DecisionCause::SlowStart, 4);
        }
        slots.cut(now, 0.0, DecisionCause::Late, [4, 3]);
        slots.cut(now, 1.0, DecisionCause::Late, [3, 2]);
        slots.cut(now, 1.0, DecisionCause::Late, [2, 2]);
        slots.raise(now, 0.5, DecisionCause::Headroom, 2);
        let counts: Vec<_> = slots.changes.iter().map(|d| (d.from, d.to, d.awaiting, d.cause)).collect();
        assert_eq!(
            counts,
            [
                (8, 16, 4, DecisionCause::SlowStart),
                (16, 2, 3, DecisionCause::Late),
                (2, 2, 2, DecisionCause::Late)
            ]
        );
        assert_eq!(slots.counts, [3, 0, 2, 0, 0, 0, 0, 0], "half a slot is not counted");
    }

    #[test]
    fn initial_slots_are_clamped() {
        assert_eq!(SlotLimit::new(100, 1, 16).slots(), 16);
        assert_eq!(SlotLimit::new(1, 50, 16).slots(), 16, "the maximum precedes the minimum");
        assert_eq!(SlotLimit::new(0, 0, 0).slots(), 1);
    }
}
