//! What there is to take: of what all calls share, and, at a pool, at the replicas that may take a call.
//!
//! At a pool a call fits where some replica of its set has a slot and memory for it; so of all that those replicas have, one number says whether it does: the longest
//! prompt that one of them has room for.

use std::sync::Arc;

use super::requirements::{CallClass, Requirements};
use crate::budget::{Need, Room};
use crate::placement::ReplicaSet;

/// How many calls that may fit are looked at for floors, and again by turn, and turn out not to fit. From half of them on, only
/// calls with a shorter prompt than each of those. It bounds the time of a decision, however many calls wait: a look takes microseconds.
const LOOKS: u32 = 32;

/// What is left of the looks of one decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    left: u32,
    /// The shortest prompt of those that were looked at, in tokens.
    shortest: u32,
}

impl Looks {
    const ALL: Self = Self { left: LOOKS, shortest: u32::MAX };

    /// Returns whether a call is looked at that needs at least so much of the memory.
    pub(super) fn allow(&self, need: u32) -> bool {
        self.left > LOOKS / 2 || (self.left > 0 && need < self.shortest)
    }

    /// A call that needs so much of the memory turned out not to fit.
    pub(super) fn failed(&mut self, need: u32) {
        self.left = self.left.saturating_sub(1);
        self.shortest = self.shortest.min(need);
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Available {
    pub(super) shared: Room,
    /// `None`: the target is no pool.
    pub(super) replicas: Option<Arc<ReplicaAvailability>>,
    /// The replica whose memory is kept for the head of a line from those behind it.
    pub(super) kept: Option<usize>,
    /// Whether calls that have failed here are excluded, because what goes next is a probe.
    pub(super) unfailed_only: bool,
    pub(super) looks: Looks,
}

/// The longest prompt that one of several replicas has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongestPrompt {
    longest: u32,
    at: usize,
    /// The same without that one's memory.
    but: u32,
}

impl LongestPrompt {
    /// Of those with a slot, by place; `None`: there is none.
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

/// For each kind of call, the longest prompt that a replica has room for which may take it; `None`: none of them has a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaAvailability {
    classes: Vec<Option<LongestPrompt>>,
    /// The most of all kinds of a shade.
    mask: [Option<u32>; CallClass::MASK_BITS],
    /// The replicas with a slot, or those that count as having one.
    pub(super) open: ReplicaSet,
    /// The replica whose memory is held.
    pub(super) held: Option<usize>,
}

impl ReplicaAvailability {
    /// What there is for each kind, in the order of their numbers, at these replicas.
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

    /// Of several kinds it says at least what there is.
    fn of(&self, class: CallClass, kept: Option<usize>) -> Option<u32> {
        if let Some(number) = class.number() {
            return self.classes.get(number).copied().flatten().map(|most| most.without(kept));
        }
        let mask = self.mask.iter().enumerate();
        mask.filter(|(mask_bit, _)| class.mask & (1 << mask_bit) != 0).filter_map(|(_, most)| *most).max()
    }
}

impl Available {
    /// Nothing is bounded.
    pub(super) const UNBOUNDED: Self = Self::new(Room::UNBOUNDED, None);

    pub(super) const fn new(shared: Room, replicas: Option<Arc<ReplicaAvailability>>) -> Self {
        Self { shared, replicas, kept: None, unfailed_only: false, looks: Looks::ALL }
    }

    /// What there is for that call; for several calls, at most. `None`: it is excluded, or no replica that may take it has a slot.
    pub(super) fn of(&self, requirements: &Requirements) -> Option<Room> {
        if self.unfailed_only && requirements.has_failed {
            return None;
        }
        let Some(replicas) = &self.replicas else { return Some(self.shared) };
        let kv = replicas.of(requirements.class, self.kept)?;
        Some(Room { most: Need { kv, ..self.shared.most }, ..self.shared })
    }

    pub(super) fn fit(&self, requirements: &Requirements) -> bool {
        self.of(requirements).is_some_and(|room| requirements.need.fits(&room))
    }
}
