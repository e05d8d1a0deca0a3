//! What a waiting call takes, in every kind that it is measured in.

use crate::budget::{Need, Room};

/// What a call takes of its target, and of its tenant's own budget of tokens. Taken once, when the call is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) need: Need,
    pub(super) own: u32,
}

impl Claim {
    /// The least of both, each kind by itself: where this does not fit, neither does.
    pub(super) fn least(self, other: Self) -> Self {
        Self { need: self.need.least(other.need), own: self.own.min(other.own) }
    }

    /// Whether it fits into the target's room, and into so many tokens of its tenant's own.
    pub(super) fn fits(&self, room: &Room, own: u32) -> bool {
        self.own <= own && self.need.fits(room)
    }
}

/// The kinds of which none is left for anybody but one: see [`super::order`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    tokens: bool,
    input: bool,
    output: bool,
    kv: bool,
}

impl Held {
    /// What that call lacks.
    pub(super) fn lacking(need: &Need, room: &Room) -> Self {
        let most = &room.most;
        Self {
            tokens: need.tokens > most.tokens,
            input: need.input > most.input,
            output: need.output > most.output,
            kv: need.kv > most.kv,
        }
    }

    /// Whether a call of that need would take of it.
    pub(super) fn is_used_by(&self, need: &Need) -> bool {
        (self.tokens && need.tokens > 0)
            || (self.input && need.input > 0)
            || (self.output && need.output > 0)
            || (self.kv && need.kv > 0)
    }

    /// What is left for the others.
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
