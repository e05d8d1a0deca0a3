//! A snapshot of what is available to waiting calls at one moment: the tokens left in the rate
//! budgets, the free memory, and the replicas with a free slot.
//!
//! At a pool, calls are grouped into [classes](CallClass) by the replicas that may take them. A
//! call fits if a replica of its class has a slot and memory for it. For each class, one number
//! summarizes this: the longest prompt for which a replica of the class has both.

use std::sync::Arc;

use super::{CallClass, Requirements};
use crate::budget::{AvailableBudget, Need};
use crate::placement::ReplicaSet;

/// The maximum number of failed memory checks in one search for the next call. A check compares one
/// call with the engine's memory and takes microseconds. A decision searches first among the calls
/// of tenants and lanes that use fewer slots than are reserved for them (their floor), and then
/// among all calls.
const MAX_FAILED_CHECKS: u32 = 32;

/// The memory checks that one search for the next call may still make. After half of
/// [`MAX_FAILED_CHECKS`] checks have failed, only calls that need less memory than each call that
/// failed are checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckBudget {
    /// The number of further checks that may fail.
    left: u32,
    /// The least memory need, in tokens, of the calls that failed a check. `u32::MAX` if none
    /// failed.
    shortest: u32,
}

impl CheckBudget {
    const ALL: Self = Self { left: MAX_FAILED_CHECKS, shortest: u32::MAX };

    /// Returns `true` if a call that needs `need` tokens of memory or more may be checked.
    pub(super) fn allow(&self, need: u32) -> bool {
        self.left > MAX_FAILED_CHECKS / 2 || (self.left > 0 && need < self.shortest)
    }

    /// Records that a call that needs `need` tokens of memory does not fit.
    pub(super) fn failed(&mut self, need: u32) {
        self.left = self.left.saturating_sub(1);
        self.shortest = self.shortest.min(need);
    }
}

/// The rate budgets, the memory and the replicas that are available to waiting calls at one moment.
#[derive(Clone, Debug)]
pub(super) struct Available {
    /// The tokens left in the rate budgets, and the free memory of a single server, which all calls
    /// share.
    pub(super) shared: AvailableBudget,
    /// The free slots and memory of the replicas of a pool, or `None` if the upstream is a single
    /// server.
    pub(super) replicas: Option<Arc<ReplicaAvailability>>,
    /// The index of the replica whose memory is kept for the first call of a line (the waiting
    /// calls of one tenant in one lane). The calls behind the first one may not use this memory.
    /// `None`: no memory is kept.
    pub(super) kept: Option<usize>,
    /// Whether calls that have failed at this target are excluded, because the next call probes
    /// whether the target works again.
    pub(super) unfailed_only: bool,
    pub(super) checks: CheckBudget,
}

/// The longest prompt, in tokens, for which one of several replicas has a slot and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongestPrompt {
    longest: u32,
    /// The index of the replica that has a slot and memory for this prompt.
    at: usize,
    /// The longest prompt, in tokens, for which a replica other than `at` has a slot and memory.
    /// Zero if there is none.
    but: u32,
}

impl LongestPrompt {
    /// Returns the longest prompt for which a replica in `all` has memory, the index of that
    /// replica, and the longest prompt for the other replicas. Returns `None` if `all` is empty.
    ///
    /// `all` yields the replicas with a free slot, each as its index and the longest prompt, in
    /// tokens, for which it has memory.
    pub(super) fn max_of(all: impl Iterator<Item = (usize, u32)>) -> Option<Self> {
        all.fold(None, |most: Option<Self>, (at, longest)| match most {
            None => Some(Self { longest, at, but: 0 }),
            Some(most) if longest > most.longest => Some(Self { longest, at, but: most.longest }),
            Some(most) => Some(Self { but: most.but.max(longest), ..most }),
        })
    }

    /// Returns the longest prompt, in tokens, for which a replica has a slot and memory if the
    /// replica with the index `kept` may not be used. `None`: all replicas may be used.
    fn without(self, kept: Option<usize>) -> u32 {
        if kept == Some(self.at) { self.but } else { self.longest }
    }
}

/// For each class of calls, the longest prompt for which a replica of a pool has a slot and memory.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaAvailability {
    /// The longest prompt by the number of the class, or `None` if no replica of the class has a
    /// slot.
    classes: Vec<Option<LongestPrompt>>,
    /// For each bit of [`CallClass::mask`], the longest prompt in tokens over all classes with this
    /// bit, or `None` if none of their replicas has a slot.
    mask: [Option<u32>; CallClass::MASK_BITS],
    /// The replicas that have a slot, or are treated as if they had one.
    pub(super) open: ReplicaSet,
    /// The index of the replica whose memory is reserved for a call that has waited for the ageing
    /// time. `None` if no memory is reserved.
    pub(super) held: Option<usize>,
}

impl ReplicaAvailability {
    /// Creates the availability. `classes` yields the longest prompt of each class in the order of
    /// the class numbers. For `open` and `held`, see the fields.
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

    /// Returns the longest prompt, in tokens, for which a replica of the class other than `kept`
    /// has a slot and memory. If `class` stands for several classes, returns an upper bound.
    /// Returns `None` if no replica of the class has a slot.
    fn longest_for(&self, class: CallClass, kept: Option<usize>) -> Option<u32> {
        if let Some(number) = class.number() {
            return self.classes.get(number).copied().flatten().map(|most| most.without(kept));
        }
        let mask = self.mask.iter().enumerate();
        mask.filter(|(mask_bit, _)| class.mask & (1 << mask_bit) != 0).filter_map(|(_, most)| *most).max()
    }
}

impl Available {
    /// Availability that excludes no call.
    pub(super) const UNBOUNDED: Self = Self::new(AvailableBudget::UNBOUNDED, None);

    pub(super) const fn new(shared: AvailableBudget, replicas: Option<Arc<ReplicaAvailability>>) -> Self {
        Self { shared, replicas, kept: None, unfailed_only: false, checks: CheckBudget::ALL }
    }

    /// Returns the tokens and the memory that one call may take. If `needs` is the minimum over
    /// several calls, returns an upper bound. Returns `None` if the call is excluded or if no
    /// replica of its class has a slot.
    pub(super) fn room_for(&self, needs: &Requirements) -> Option<AvailableBudget> {
        if self.unfailed_only && needs.has_failed {
            return None;
        }
        let Some(replicas) = &self.replicas else { return Some(self.shared) };
        let kv = replicas.longest_for(needs.class, self.kept)?;
        Some(AvailableBudget { max_need: Need { kv, ..self.shared.max_need }, ..self.shared })
    }

    /// Returns `true` if there are enough tokens and, by an upper bound, enough memory for the
    /// call. Only `Capacity::fits` also checks the memory exactly.
    pub(super) fn fits(&self, needs: &Requirements) -> bool {
        self.room_for(needs).is_some_and(|room| needs.need.fits(&room))
    }
}
