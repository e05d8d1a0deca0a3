//! The number of slots, between its floor and its ceiling, and how it came to be what it is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::view::{Cause, Decision};

/// Decisions that are remembered.
const KEPT: usize = 32;
/// Refusals that come so soon after each other are of one run, and cut once.
const RUN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    value: f64,
    least: f64,
    most: f64,
    /// The last move, by itself.
    last: Option<Decision>,
    /// The last ones: raises for one cause, one after the other, are one; so is a run of refusals.
    decisions: VecDeque<Decision>,
    moves: [u64; Cause::ALL.len()],
}

impl Slots {
    pub(super) fn new(start: usize, least: usize, most: usize) -> Self {
        let (least, most) = (least.clamp(1, most.max(1)) as f64, most.max(1) as f64);
        let value = (start as f64).clamp(least, most);
        Self { value, least, most, last: None, decisions: VecDeque::new(), moves: Default::default() }
    }

    pub(super) fn whole(&self) -> usize {
        self.value as usize
    }

    /// With what a part of a slot there is.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Raises them, where that makes a whole slot.
    pub(super) fn raise(&mut self, now: Instant, by: f64, cause: Cause, awaiting: usize) {
        let from = self.whole();
        self.value = (self.value + by).min(self.most);
        if self.whole() > from {
            self.moved(Decision { at: now, from, to: self.whole(), awaiting, cause });
        }
    }

    /// Cuts them. `bound`: the bound on calls that await their first token, before the cut and
    /// since. What lowers neither is no cut.
    pub(super) fn cut(&mut self, now: Instant, to: f64, cause: Cause, bound: [usize; 2]) {
        let from = self.whole();
        self.value = to.min(self.value).max(self.least);
        let [before, awaiting] = bound;
        if self.whole() < from || awaiting < before {
            self.moved(Decision { at: now, from, to: self.whole(), awaiting, cause });
        }
    }

    fn moved(&mut self, decision: Decision) {
        self.last = Some(decision);
        let goes_on = |last: &&mut Decision| {
            let lately = decision.at.saturating_duration_since(last.at) < RUN;
            last.cause == decision.cause && (last.cause.raises() || last.cause == Cause::Refused && lately)
        };
        let same = self.decisions.back_mut().filter(goes_on);
        if same.is_none() || decision.cause.raises() {
            self.moves[decision.cause as usize] += 1;
        }
        match same {
            Some(last) => *last = Decision { from: last.from, ..decision },
            None => {
                if self.decisions.len() == KEPT {
                    self.decisions.pop_front();
                }
                self.decisions.push_back(decision);
            }
        }
    }

    /// Whether no cut was ever made.
    pub(super) fn is_uncut(&self) -> bool {
        Cause::ALL.iter().zip(self.moves).all(|(cause, moves)| cause.raises() || moves == 0)
    }

    /// How often they were moved for that.
    pub(super) fn moves(&self) -> [u64; Cause::ALL.len()] {
        self.moves
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
        let (mut slots, now) = (Slots::new(8, 2, 16), epoch());
        for by in [1.0, 1.5, 40.0] {
            slots.raise(now, by, Cause::SlowStart, 4);
        }
        slots.cut(now, 0.0, Cause::Late, [4, 3]);
        slots.cut(now, 1.0, Cause::Late, [3, 2]);
        slots.cut(now, 1.0, Cause::Late, [2, 2]);
        slots.raise(now, 0.5, Cause::Headroom, 2);
        let moves: Vec<_> = slots.decisions().iter().map(|d| (d.from, d.to, d.awaiting, d.cause)).collect();
        assert_eq!(moves, [(8, 16, 4, Cause::SlowStart), (16, 2, 3, Cause::Late), (2, 2, 2, Cause::Late)]);
        assert_eq!(slots.moves(), [3, 0, 2, 0, 0, 0, 0], "half a slot is none");
    }

    #[test]
    fn a_start_beyond_its_bounds_is_the_bound() {
        assert_eq!(Slots::new(100, 1, 16).whole(), 16);
        assert_eq!(Slots::new(1, 50, 16).whole(), 16, "the cap is the cap");
        assert_eq!(Slots::new(0, 0, 0).whole(), 1);
    }
}
