//! The number of slots between floor and ceiling, and the decisions that led to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::view::{Decision, DecisionCause};

/// Number of decisions that are remembered.
const MAX_CHANGES: usize = 32;
/// Refusals closer together than this form one run, which counts as one cut.
const REFUSAL_RUN: Duration = Duration::from_secs(1);

/// The slots in force with the history of their changes.
#[derive(Debug)]
pub(super) struct SlotLimit {
    value: f64,
    min: f64,
    max: f64,
    /// The last change, not merged with earlier ones.
    last: Option<Decision>,
    /// Recent changes. Consecutive raises for the same cause, and runs of refusals, are merged into
    /// one.
    changes: VecDeque<Decision>,
    counts: [u64; DecisionCause::ALL.len()],
}

impl SlotLimit {
    /// Creates `start` slots, limited to between `min` and `max`.
    pub(super) fn new(start: usize, min: usize, max: usize) -> Self {
        let (min, max) = (min.clamp(1, max.max(1)) as f64, max.max(1) as f64);
        let value = (start as f64).clamp(min, max);
        Self { value, min, max, last: None, changes: VecDeque::new(), counts: Default::default() }
    }

    /// Returns the number of whole slots.
    pub(super) fn slots(&self) -> usize {
        self.value as usize
    }

    /// Returns the slots including the fraction.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Raises the slots by `by`. Records a decision if the number of whole slots changes.
    pub(super) fn raise(&mut self, now: Instant, by: f64, cause: DecisionCause, awaiting: usize) {
        let from = self.slots();
        self.value = (self.value + by).min(self.max);
        if self.slots() > from {
            self.record(Decision { at: now, from, to: self.slots(), awaiting, cause });
        }
    }

    /// Cuts the slots to `to`, but not below the floor.
    ///
    /// `bound` is the first-token limit before and after the cut. A decision is recorded if either
    /// limit decreases.
    pub(super) fn cut(&mut self, now: Instant, to: f64, cause: DecisionCause, bound: [usize; 2]) {
        let from = self.slots();
        self.value = to.min(self.value).max(self.min);
        let [before, awaiting] = bound;
        if self.slots() < from || awaiting < before {
            self.record(Decision { at: now, from, to: self.slots(), awaiting, cause });
        }
    }

    /// Records a change, merging it with the last one if it continues it.
    fn record(&mut self, change: Decision) {
        self.last = Some(change);
        let extends_last = |last: &&mut Decision| {
            let lately = change.at.saturating_duration_since(last.at) < REFUSAL_RUN;
            last.cause == change.cause
                && (last.cause.raises() || last.cause == DecisionCause::Refused && lately)
        };
        let same = self.changes.back_mut().filter(extends_last);
        if same.is_none() || change.cause.raises() {
            self.counts[change.cause as usize] += 1;
        }
        match same {
            Some(last) => *last = Decision { from: last.from, ..change },
            None => {
                if self.changes.len() == MAX_CHANGES {
                    self.changes.pop_front();
                }
                self.changes.push_back(change);
            }
        }
    }

    /// Returns `true` if the limit was never cut.
    pub(super) fn was_never_cut(&self) -> bool {
        DecisionCause::ALL.iter().zip(self.counts).all(|(cause, counts)| cause.raises() || counts == 0)
    }

    /// Returns the number of changes per cause, in the order of [`DecisionCause::ALL`].
    pub(super) fn counts(&self) -> [u64; DecisionCause::ALL.len()] {
        self.counts
    }

    pub(super) fn last(&self) -> Option<Decision> {
        self.last
    }

    pub(super) fn changes(&self) -> Vec<Decision> {
        self.changes.iter().copied().collect()
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
        let counts: Vec<_> = slots.changes().iter().map(|d| (d.from, d.to, d.awaiting, d.cause)).collect();
        assert_eq!(
            counts,
            [
                (8, 16, 4, DecisionCause::SlowStart),
                (16, 2, 3, DecisionCause::Late),
                (2, 2, 2, DecisionCause::Late)
            ]
        );
        assert_eq!(slots.counts(), [3, 0, 2, 0, 0, 0, 0], "half a slot is none");
    }

    #[test]
    fn initial_slots_are_clamped() {
        assert_eq!(SlotLimit::new(100, 1, 16).slots(), 16);
        assert_eq!(SlotLimit::new(1, 50, 16).slots(), 16, "the cap is the cap");
        assert_eq!(SlotLimit::new(0, 0, 0).slots(), 1);
    }
}
