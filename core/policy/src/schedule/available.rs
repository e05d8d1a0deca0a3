//! What is available to calls: the room in what all calls share, and the replicas that may take a
//! call.
//!
//! At a pool, a call fits if some replica of its class has a slot and memory for it. One number
//! summarizes that for each class: the longest prompt for which one of its replicas has room.

use std::sync::Arc;

use super::requirements::{CallClass, Requirements};
use crate::budget::{AvailableBudget, Need};
use crate::placement::ReplicaSet;

/// Calls without room that one decision looks at, for floors and again by turn. After half of them,
/// only calls with a shorter prompt than all of those are looked at. Bounds the time of a decision,
/// because a look takes microseconds.
const LOOKS: u32 = 32;

/// The remaining looks of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    left: u32,
    /// The shortest prompt looked at, in tokens.
    shortest: u32,
}

impl Looks {
    const ALL: Self = Self { left: LOOKS, shortest: u32::MAX };

    /// Returns `true` if a call that needs at least that much memory, in tokens, may be looked at.
    pub(super) fn allow(&self, need: u32) -> bool {
        self.left > LOOKS / 2 || (self.left > 0 && need < self.shortest)
    }

    /// Records that a call that needs that much memory does not fit.
    pub(super) fn failed(&mut self, need: u32) {
        self.left = self.left.saturating_sub(1);
        self.shortest = self.shortest.min(need);
    }
}

/// What is available to calls. See [the module](self).
#[derive(Clone, Debug)]
pub(super) struct Available {
    pub(super) shared: AvailableBudget,
    /// What the replicas have, or `None` if the upstream is a single server.
    pub(super) replicas: Option<Arc<ReplicaAvailability>>,
    /// The replica whose memory is kept for the head of a line from the calls behind it.
    pub(super) kept: Option<usize>,
    /// Whether calls that have failed here are excluded because the next call is a probe.
    pub(super) unfailed_only: bool,
    pub(super) looks: Looks,
}

/// The longest prompt, in tokens, for which one of several replicas has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongestPrompt {
    longest: u32,
    at: usize,
    /// The longest prompt without the replica `at`.
    but: u32,
}

impl LongestPrompt {
    /// Returns the maximum over replicas with a slot, given as index and longest prompt. `None` if
    /// there is no replica.
    pub(super) fn of(all: impl Iterator<Item = (usize, u32)>) -> Option<Self> {
        all.fold(None, |most: Option<Self>, (at, longest)| match most {
            None => Some(Self { longest, at, but: 0 }),
            Some(most) if longest > most.longest => Some(Self { longest, at, but: most.longest }),
            Some(most) => Some(Self { but: most.but.max(longest), ..most }),
        })
    }

    fn without(self, kept: Option<usize>) -> u32 {
        if kept == Some(self.at) { self.but } else { self.longest }
    }
}

/// The longest prompt that has room, for each class of calls; `None` if no replica of the class has
/// a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaAvailability {
    classes: Vec<Option<LongestPrompt>>,
    /// The maximum over all classes with the same mask bit.
    mask: [Option<u32>; CallClass::MASK_BITS],
    /// The replicas that have a slot, or are treated as having one.
    pub(super) open: ReplicaSet,
    /// The replica whose memory is reserved.
    pub(super) held: Option<usize>,
}

impl ReplicaAvailability {
    /// Creates the availability from one entry for each class, in the order of their numbers.
    pub(super) fn new(
        open: ReplicaSet,
        held: Option<usize>,
        classes: impl Iterator<Item = Option<LongestPrompt>>,
    ) -> Self {
        let classes: Vec<_> = classes.collect();
        let mut mask = [None; CallClass::MASK_BITS];
        for (number, most) in classes.iter().enumerate() {
            if let Some(mask_bit) = mask.get_mut(CallClass::mask_bit(number as u32)) {
                *mask_bit = (*mask_bit).max(most.map(|most| most.longest));
            }
        }
        Self { classes, mask, open, held }
    }

    /// Returns the longest prompt for a class. For several classes, an upper bound.
    fn of(&self, class: CallClass, kept: Option<usize>) -> Option<u32> {
        if let Some(number) = class.number() {
            return self.classes.get(number).copied().flatten().map(|most| most.without(kept));
        }
        let mask = self.mask.iter().enumerate();
        mask.filter(|(mask_bit, _)| class.mask & (1 << mask_bit) != 0).filter_map(|(_, most)| *most).max()
    }
}

impl Available {
    /// No limits.
    pub(super) const UNBOUNDED: Self = Self::new(AvailableBudget::UNBOUNDED, None);

    pub(super) const fn new(shared: AvailableBudget, replicas: Option<Arc<ReplicaAvailability>>) -> Self {
        Self { shared, replicas, kept: None, unfailed_only: false, looks: Looks::ALL }
    }

    /// Returns the room for a call; for several calls, an upper bound. `None` if the call is
    /// excluded or no replica of its class has a slot.
    pub(super) fn of(&self, needs: &Requirements) -> Option<AvailableBudget> {
        if self.unfailed_only && needs.has_failed {
            return None;
        }
        let Some(replicas) = &self.replicas else { return Some(self.shared) };
        let kv = replicas.of(needs.class, self.kept)?;
        Some(AvailableBudget { max_need: Need { kv, ..self.shared.max_need }, ..self.shared })
    }

    pub(super) fn fit(&self, needs: &Requirements) -> bool {
        self.of(needs).is_some_and(|room| needs.need.fits(&room))
    }
}
