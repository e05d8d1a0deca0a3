//! What a call takes of a target's budgets, and what there is to take.

/// What one call takes, by what it is counted in. Saturates: more than four thousand million tokens in one call are as good as infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Of the budget for input and output together.
    pub tokens: u32,
    /// Of the budget for input, where it is apart.
    pub input: u32,
    /// Of the budget for output, where it is apart.
    pub output: u32,
    /// Of the memory for keys and values.
    pub kv: u32,
}

/// The most that one call may take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Whether any call may go: a budget of requests has one left.
    pub open: bool,
    /// What there is to take; `u32::MAX` where nothing bounds it.
    pub most: Need,
}

impl Need {
    /// Nothing at all.
    pub const ZERO: Self = Self { tokens: 0, input: 0, output: 0, kv: 0 };
    /// More than any call takes.
    pub const UNBOUNDED: Self = Self { tokens: u32::MAX, input: u32::MAX, output: u32::MAX, kv: u32::MAX };

    /// The least of both, each by itself: no call that takes at least so much of one fits where this does not.
    pub fn least(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.min(other.tokens),
            input: self.input.min(other.input),
            output: self.output.min(other.output),
            kv: self.kv.min(other.kv),
        }
    }

    /// Whether it fits.
    pub fn fits(&self, room: &Room) -> bool {
        let most = &room.most;
        room.open
            && self.tokens <= most.tokens
            && self.input <= most.input
            && self.output <= most.output
            && self.kv <= most.kv
    }
}

impl Room {
    /// Nothing is bounded.
    pub const UNBOUNDED: Self = Self { open: true, most: Need::UNBOUNDED };

    /// What fits in both.
    pub fn least(self, other: Self) -> Self {
        Self { open: self.open && other.open, most: self.most.least(other.most) }
    }
}
