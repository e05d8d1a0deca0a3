//! What the limit sees, and why it moved.

use std::time::{Duration, Instant};

/// Why the limit moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionCause {
    /// Calls pressed on it, and were answered in time: each raises it by one.
    SlowStart,
    /// The same, where a level is known that was too much: it is raised by trial.
    Headroom,
    /// First tokens came too late.
    Late,
    /// Tokens came too slowly (a TPOT objective).
    Slow,
    /// 429s that say: so many at once are too many.
    Refused,
    /// 503 or 529.
    Overloaded,
    /// Attempts timed out.
    TimedOut,
}

/// One move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// The limit before.
    pub from: usize,
    /// The limit since. A cut may leave it as it was, where it was of the bound on calls that await their first token.
    pub to: usize,
    /// That bound since.
    pub awaiting: usize,
    /// Why.
    pub cause: DecisionCause,
}

/// What a person would want to know of a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitView {
    /// Slots in force.
    pub limit: usize,
    /// The most calls that may await their first token.
    pub awaiting_limit: usize,
    /// Calls that await theirs.
    pub awaiting: usize,
    /// Whether no level is known yet that is too much.
    pub slow_start: bool,
    /// The upstream's part of the objective, where one is set.
    pub objective: Option<Duration>,
    /// The share of calls judged of late that were late (0 to 1); `None`: none was judged.
    pub late: Option<f64>,
    /// The detector's evidence of a breach: at 1 the limit is cut.
    pub evidence: f64,
    /// Cuts so far.
    pub cuts: u64,
    /// Moves upward so far.
    pub raises: u64,
    /// Both, by cause, in the order of [`DecisionCause::ALL`].
    pub moves: [u64; DecisionCause::ALL.len()],
    /// The last moves, the youngest last.
    pub decisions: Vec<Decision>,
}

impl DecisionCause {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SlowStart,
        Self::Headroom,
        Self::Late,
        Self::Slow,
        Self::Refused,
        Self::Overloaded,
        Self::TimedOut,
    ];

    /// Whether it is one to raise.
    pub const fn raises(self) -> bool {
        matches!(self, DecisionCause::SlowStart | DecisionCause::Headroom)
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecisionCause::SlowStart => "slow_start",
            DecisionCause::Headroom => "headroom",
            DecisionCause::Late => "late",
            DecisionCause::Slow => "slow",
            DecisionCause::Refused => "refused",
            DecisionCause::Overloaded => "overloaded",
            DecisionCause::TimedOut => "timed_out",
        }
    }
}
