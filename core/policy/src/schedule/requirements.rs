//! What one call requires of its target and of its tenant's own tokens, and what is reserved for
//! one waiting call.

use super::{Available, TenantId, Ticket};
use crate::budget::{AvailableBudget, Need};

/// What a call requires of its target and of its tenant's own tokens, or the minimum over several
/// calls. Computed when the call is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    /// The tokens that the call takes from each rate budget and from the memory.
    pub(super) need: Need,
    /// The tokens that the call takes from its tenant's own tokens per minute.
    pub(super) tenant_tokens: u32,
    /// The class of the call, which stands for the replicas that may take it. See [`CallClass`].
    pub(super) class: CallClass,
    /// See [`Ticket::has_failed`](super::Ticket::has_failed). For several calls, `true` if all of
    /// them have failed.
    pub(super) has_failed: bool,
}

/// A call that is to be admitted, with what it requires: a new call or a waiting one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) tenant: TenantId,
    pub(super) ticket: &'a Ticket,
    pub(super) needs: Requirements,
}

/// The class of a call at a pool. Calls that the same replicas may take are of one class.
///
/// A value can also stand for the classes of several calls. In that case, it has no number, and
/// `mask` has the bits of all these classes. A class whose bit is not set is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallClass {
    /// The number of the class, or [`CallClass::SEVERAL`].
    number: u32,
    /// The bits of the classes. See [`CallClass::mask_bit`].
    pub(super) mask: u32,
}

impl CallClass {
    /// The number of bits of `mask`. If there are more classes, some share a bit.
    pub(super) const MASK_BITS: usize = u32::BITS as usize;
    /// The value of `number` if the value stands for several classes.
    const SEVERAL: u32 = u32::MAX;

    pub(super) fn new(number: u32) -> Self {
        Self { number, mask: 1 << Self::mask_bit(number) }
    }

    /// Returns the number of the class, or `None` if the value stands for several classes.
    pub(super) fn number(self) -> Option<usize> {
        (self.number != Self::SEVERAL).then_some(self.number as usize)
    }

    /// Returns the index, in [`CallClass::mask`], of the bit for the class with this number. If
    /// there are more classes than bits, several classes share a bit.
    pub(super) fn mask_bit(number: u32) -> usize {
        number as usize % Self::MASK_BITS
    }

    /// Returns a value that stands for the classes of `self` and of `other`.
    fn or(self, other: Self) -> Self {
        let number = if self.number == other.number { self.number } else { Self::SEVERAL };
        Self { number, mask: self.mask | other.mask }
    }
}

impl Default for CallClass {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Requirements {
    /// Returns the minimum of each requirement of `self` and `other`. If the result does not fit,
    /// neither of the two fits.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            need: self.need.least(other.need),
            tenant_tokens: self.tenant_tokens.min(other.tenant_tokens),
            class: self.class.or(other.class),
            has_failed: self.has_failed && other.has_failed,
        }
    }

    /// Returns `true` if a call with these requirements may fit into `available` and
    /// `tenant_tokens`, and if another memory check is allowed. Its memory is then still to be
    /// checked exactly, by [`Capacity::fits`](super::capacity::Capacity::fits).
    pub(super) fn fits(&self, available: &Available, tenant_tokens: u32) -> bool {
        self.tenant_tokens <= tenant_tokens && available.checks.allow(self.need.kv) && available.fits(self)
    }
}

/// The resources that are reserved for the front, that is, for the waiting call that is first in
/// the dispatch order. See [`super::select`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReservedResources {
    /// For each of the four [`parts`] of a need, in that order, whether it is reserved.
    is_reserved: [bool; 4],
    /// At a pool, the index of the replica whose memory is reserved. `None`: no memory of a replica
    /// is reserved.
    pub(super) at: Option<usize>,
}

impl ReservedResources {
    /// Returns the resources that a call with this need lacks in `room`. `memory` is `true` if
    /// there is enough memory for the call.
    pub(super) fn lacked_by(need: &Need, room: &AvailableBudget, memory: bool) -> Self {
        let (need, most) = (parts(need), parts(&room.max_need));
        let [tokens, input, output, _] = std::array::from_fn(|part| need[part] > most[part]);
        Self { is_reserved: [tokens, input, output, !memory], at: None }
    }

    /// Returns this reservation with the memory of the replica with the index `at` in place of the
    /// memory of a single server. The reserved rate budgets stay the same. If `at` is `None`, no
    /// memory is reserved.
    pub(super) fn at(self, at: Option<usize>) -> Self {
        let [tokens, input, output, _] = self.is_reserved;
        Self { is_reserved: [tokens, input, output, false], at }
    }

    /// Returns `true` if tokens of a rate budget are reserved.
    pub(super) fn has_shared(&self) -> bool {
        matches!(self.is_reserved, [tokens, input, output, _] if tokens || input || output)
    }

    /// Returns `true` if a call with this need would take tokens or memory that are reserved.
    /// Memory of a replica is not considered.
    pub(super) fn is_used_by(&self, need: &Need) -> bool {
        parts(need).into_iter().zip(self.is_reserved).any(|(need, is_reserved)| is_reserved && need > 0)
    }

    /// Returns the part of `room` that other calls may use: `room` with zero for each reserved
    /// part.
    pub(super) fn remaining(&self, room: AvailableBudget) -> AvailableBudget {
        let most = parts(&room.max_need);
        let left = std::array::from_fn(|part| if self.is_reserved[part] { 0 } else { most[part] });
        AvailableBudget { max_need: from_parts(left), ..room }
    }
}

/// Returns the parts of a need in this order: tokens of the budget for input and output together,
/// input, output, memory.
pub(super) fn parts(need: &Need) -> [u32; 4] {
    [need.tokens, need.input, need.output, need.kv]
}

/// Returns the need with these parts. The inverse of [`parts`].
pub(super) fn from_parts([tokens, input, output, kv]: [u32; 4]) -> Need {
    Need { tokens, input, output, kv }
}
