//! Amounts of tokens: what one call needs, and what the limits of a target still admit.

/// Tokens that one call takes from each limit of a target. Numbers above `u32::MAX` are stored as
/// `u32::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Tokens charged under a limit of all tokens: input and output, combined by the provider's
    /// counting rule (for example, their sum).
    pub tokens: u32,
    /// Input tokens.
    pub input: u32,
    /// Output tokens.
    pub output: u32,
    /// KV-cache memory of the inference engine, in tokens. 0 if memory is not limited.
    pub kv: u32,
}

/// The largest call that the limits of a target admit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableBudget {
    /// Whether every request limit allows one more request.
    pub has_requests: bool,
    /// Maximum number of tokens of the call, for each quantity. `u32::MAX` for a quantity without a
    /// limit.
    pub max_need: Need,
}

impl Need {
    /// The need of a call without any tokens.
    pub const ZERO: Self = Self { tokens: 0, input: 0, output: 0, kv: 0 };
    /// The largest possible need, `u32::MAX` in each field.
    pub const UNBOUNDED: Self = Self { tokens: u32::MAX, input: u32::MAX, output: u32::MAX, kv: u32::MAX };

    /// Returns a need with the smaller value of each field. If the result does not fit, neither
    /// `self` nor `other` fits.
    pub fn least(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.min(other.tokens),
            input: self.input.min(other.input),
            output: self.output.min(other.output),
            kv: self.kv.min(other.kv),
        }
    }

    /// Returns `true` if `available` admits a call with this need.
    pub fn fits(&self, available: &AvailableBudget) -> bool {
        available.has_requests && self.least(available.max_need) == *self
    }
}

impl AvailableBudget {
    /// A budget that admits any call.
    pub const UNBOUNDED: Self = Self { has_requests: true, max_need: Need::UNBOUNDED };
}
