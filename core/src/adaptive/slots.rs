//! The number of slots, between its floor and its ceiling, and how it came to be what it is.

use std::collections::VecDeque;
use std::time::Instant;

use super::view::{Cause, Decision};

/// Decisions that are remembered.
const KEPT: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    value: f64,
    least: f64,
    most: f64,
    /// The last move, by itself.
    last: Option<Decision>,
    /// The last ones: raises for one cause, one after the other, are one.
    decisions: VecDeque<Decision>,
    pub(super) cuts: u64,
    pub(super) raises: u64,
}

impl Slots {
    pub(super) fn new(start: usize, least: usize, most: usize) -> Self {
        let (least, most) = (least.clamp(1, most.max(1)) as f64, most.max(1) as f64);
        let value = (start as f64).clamp(least, most);
        Self { value, least, most, last: None, decisions: VecDeque::new(), cuts: 0, raises: 0 }
    }

    pub(super) fn whole(&self) -> usize {
        self.value as usize
    }

    /// With what a part of a slot there is.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    pub(super) fn set(&mut self, now: Instant, to: f64, cause: Cause) {
        let from = self.whole();
        self.value = to.clamp(self.least, self.most);
        let decision = Decision { at: now, from, to: self.whole(), cause };
        if decision.to == from {
            return;
        }
        self.last = Some(decision);
        let raised = decision.to > from;
        *(if raised { &mut self.raises } else { &mut self.cuts }) += 1;
        match self.decisions.back_mut().filter(|last| raised && last.to > last.from && last.cause == cause) {
            Some(last) => (last.at, last.to) = (now, decision.to),
            None => {
                if self.decisions.len() == KEPT {
                    self.decisions.pop_front();
                }
                self.decisions.push_back(decision);
            }
        }
    }

    pub(super) fn last(&self) -> Option<Decision> {
        self.last
    }

    pub(super) fn decisions(&self) -> Vec<Decision> {
        self.decisions.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn stays_between_floor_and_ceiling_and_says_why_it_moved() {
        let mut slots = Slots::new(8, 2, 16);
        for to in [9.0, 10.5, 40.0] {
            slots.set(epoch(), to, Cause::SlowStart);
        }
        slots.set(epoch(), 0.0, Cause::Late);
        slots.set(epoch(), 1.0, Cause::Late);
        let moves: Vec<_> = slots.decisions().iter().map(|d| (d.from, d.to, d.cause)).collect();
        assert_eq!(moves, [(8, 16, Cause::SlowStart), (16, 2, Cause::Late)]);
        assert_eq!((slots.raises, slots.cuts), (3, 1));
    }

    #[test]
    fn a_start_beyond_its_bounds_is_the_bound() {
        assert_eq!(Slots::new(100, 1, 16).whole(), 16);
        assert_eq!(Slots::new(1, 50, 16).whole(), 16, "the cap is the cap");
        assert_eq!(Slots::new(0, 0, 0).whole(), 1);
    }
}
