//! What a waiting call requires of its target and of its tenant's tokens.

use super::available::Available;
use crate::budget::{AvailableBudget, Need};

/// What a call requires. Computed once, when the call is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    pub(super) need: Need,
    pub(super) tenant_tokens: u32,
    pub(super) class: CallClass,
    /// Whether the call has failed here; for several calls, whether all of them have.
    pub(super) has_failed: bool,
}

/// The class of a call: the number of the set of replicas that may take it.
///
/// For several calls, `mask` has the bits of all their classes. A class whose bit is not set is not
/// among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallClass {
    number: u32,
    pub(super) mask: u32,
}

impl CallClass {
    /// The number of bits of a mask. Classes share bits if there are more of them.
    pub(super) const MASK_BITS: usize = u32::BITS as usize;
    const SEVERAL: u32 = u32::MAX;

    pub(super) fn new(number: u32) -> Self {
        Self { number, mask: 1 << Self::mask_bit(number) }
    }

    /// Returns the number, or `None` if the value stands for several classes.
    pub(super) fn number(self) -> Option<usize> {
        (self.number != Self::SEVERAL).then_some(self.number as usize)
    }

    pub(super) fn mask_bit(number: u32) -> usize {
        number as usize % Self::MASK_BITS
    }

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
    /// Returns the minimum of both in each part. If the minimum does not fit, neither does.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            need: self.need.least(other.need),
            tenant_tokens: self.tenant_tokens.min(other.tenant_tokens),
            class: self.class.or(other.class),
            has_failed: self.has_failed && other.has_failed,
        }
    }

    /// Returns `false` if a call, or each of several calls, certainly does not fit. `true` is exact
    /// except for memory and [`Looks`](super::available::Looks), see
    /// [`Capacity::fits`](super::capacity::Capacity::fits).
    pub(super) fn fits(&self, available: &Available, tenant_tokens: u32) -> bool {
        self.tenant_tokens <= tenant_tokens && available.looks.allow(self.need.kv) && available.fit(self)
    }
}

/// The resources reserved for the front. See [`super::select`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReservedResources {
    tokens: bool,
    input: bool,
    output: bool,
    kv: bool,
    /// The replica whose memory is reserved, at a pool.
    pub(super) at: Option<usize>,
}

impl ReservedResources {
    /// Returns the resources that a call lacks. `memory` is `true` if there is memory for the call.
    pub(super) fn lacking(need: &Need, room: &AvailableBudget, memory: bool) -> Self {
        let most = &room.max_need;
        Self {
            tokens: need.tokens > most.tokens,
            input: need.input > most.input,
            output: need.output > most.output,
            kv: !memory,
            at: None,
        }
    }

    /// Returns the reservation with memory at that replica only. `None`: at no replica.
    pub(super) fn at(self, at: Option<usize>) -> Self {
        Self { kv: false, at, ..self }
    }

    /// Returns `true` if a resource that all replicas share is reserved.
    pub(super) fn of_all(&self) -> bool {
        self.tokens || self.input || self.output
    }

    /// Returns `true` if a call with that need would take of a shared resource that is reserved.
    pub(super) fn is_used_by(&self, need: &Need) -> bool {
        (self.tokens && need.tokens > 0)
            || (self.input && need.input > 0)
            || (self.output && need.output > 0)
            || (self.kv && need.kv > 0)
    }

    /// Returns the room that is left for other calls.
    pub(super) fn leave(&self, mut room: AvailableBudget) -> AvailableBudget {
        let most = &mut room.max_need;
        for (held, left) in [
            (self.tokens, &mut most.tokens),
            (self.input, &mut most.input),
            (self.output, &mut most.output),
            (self.kv, &mut most.kv),
        ] {
            if held {
                *left = 0;
            }
        }
        room
    }
}
