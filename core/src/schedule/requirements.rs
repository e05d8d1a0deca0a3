//! What a waiting call takes, in every kind that it is measured in.

use super::available::Available;
use crate::budget::{Need, Room};

/// What a call takes of its target, and of its tenant's own budget of tokens. Taken once, when the call is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    pub(super) need: Need,
    pub(super) tenant_tokens: u32,
    pub(super) class: CallClass,
    /// Whether the call has failed here; for several calls, whether all of them have.
    pub(super) has_failed: bool,
}

/// Which replicas may take a call, where its target is a pool: the number of their set among those that calls ask for. Of calls of several kinds, the
/// mask of all of them: what is in none of those mask is of none of those kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallClass {
    number: u32,
    pub(super) mask: u32,
}

impl CallClass {
    /// How many mask there are.
    pub(super) const MASK_BITS: usize = u32::BITS as usize;
    const SEVERAL: u32 = u32::MAX;

    pub(super) fn new(number: u32) -> Self {
        Self { number, mask: 1 << Self::mask_bit(number) }
    }

    /// `None`: it stands for several.
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
    /// The least of both, each kind by itself: where this does not fit, neither does.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            need: self.need.least(other.need),
            tenant_tokens: self.tenant_tokens.min(other.tenant_tokens),
            class: self.class.or(other.class),
            has_failed: self.has_failed && other.has_failed,
        }
    }

    /// Returns whether it may fit into the target's room, and into so many tokens of its tenant's own. `false` is exact, for a
    /// call and for each of several, while [`Looks`](super::available::Looks) are left; whether a call fits into the memory is only known from
    /// [`Scheduler::fits`](super::Scheduler::fits).
    pub(super) fn fits(&self, available: &Available, tenant_tokens: u32) -> bool {
        self.tenant_tokens <= tenant_tokens && available.looks.allow(self.need.kv) && available.fit(self)
    }
}

/// The kinds of which none is left for anybody but one: see [`super::order`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReservedResources {
    tokens: bool,
    input: bool,
    output: bool,
    kv: bool,
    /// Of a pool, the memory of one replica.
    pub(super) at: Option<usize>,
}

impl ReservedResources {
    /// What a call lacks that has `memory` enough, or has not.
    pub(super) fn lacking(need: &Need, room: &Room, memory: bool) -> Self {
        let most = &room.most;
        Self {
            tokens: need.tokens > most.tokens,
            input: need.input > most.input,
            output: need.output > most.output,
            kv: !memory,
            at: None,
        }
    }

    /// The same, where the memory that it lacks is to come free at that replica; `None`: at none, or it lacks none.
    pub(super) fn at(self, at: Option<usize>) -> Self {
        Self { kv: false, at, ..self }
    }

    /// Whether anything is lacking that all replicas share.
    pub(super) fn of_all(&self) -> bool {
        self.tokens || self.input || self.output
    }

    /// Whether a call of that need would take of what all calls share, and is held.
    pub(super) fn is_used_by(&self, need: &Need) -> bool {
        (self.tokens && need.tokens > 0)
            || (self.input && need.input > 0)
            || (self.output && need.output > 0)
            || (self.kv && need.kv > 0)
    }

    /// What is left of that for the others.
    pub(super) fn leave(&self, mut room: Room) -> Room {
        let most = &mut room.most;
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
