//! What a call takes from a target's budgets, and what is available.

/// Tokens that one call takes from each budget, saturating at `u32::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Tokens of the budget for input and output together.
    pub tokens: u32,
    /// Tokens of the budget for input.
    pub input: u32,
    /// Tokens of the budget for output.
    pub output: u32,
    /// Tokens of KV-cache memory.
    pub kv: u32,
}

/// The most that one call may take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Whether any call may be admitted: each request budget has at least one request left.
    pub open: bool,
    /// Tokens available in each budget, or `u32::MAX` if the budget does not exist.
    pub most: Need,
}

impl Need {
    /// Takes nothing.
    pub const ZERO: Self = Self { tokens: 0, input: 0, output: 0, kv: 0 };
    /// Exceeds any call.
    pub const UNBOUNDED: Self = Self { tokens: u32::MAX, input: u32::MAX, output: u32::MAX, kv: u32::MAX };

    /// Returns the minimum of each field: if this does not fit, neither `self` nor `other` fits.
    pub fn least(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.min(other.tokens),
            input: self.input.min(other.input),
            output: self.output.min(other.output),
            kv: self.kv.min(other.kv),
        }
    }

    /// Returns `true` if a call with this need may be admitted.
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
    /// No budget limits calls.
    pub const UNBOUNDED: Self = Self { open: true, most: Need::UNBOUNDED };

    /// Returns what fits in both.
    pub fn least(self, other: Self) -> Self {
        Self { open: self.open && other.open, most: self.most.least(other.most) }
    }
}
