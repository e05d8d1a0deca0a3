//! The state of an adaptive limit and the reasons of its changes.

use std::time::{Duration, Instant};

/// Why the limit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionCause {
    /// Slow start: a call was in time while the limit was full.
    SlowStart,
    /// Growth by trial beyond a level that is known to be excessive.
    Headroom,
    /// First tokens were late.
    Late,
    /// Tokens were slower than the TPOT objective.
    Slow,
    /// 429s for too many calls at once.
    Refused,
    /// Responses 503 or 529.
    Overloaded,
    /// Attempts timed out.
    TimedOut,
}

/// One change of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Time of the change.
    pub at: Instant,
    /// Slots before the change.
    pub from: usize,
    /// Slots after the change. Unchanged if only the first-token limit was cut.
    pub to: usize,
    /// First-token limit after the change.
    pub awaiting: usize,
    /// Reason of the change.
    pub cause: DecisionCause,
}

/// State of an adaptive limit, for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitView {
    /// Slots in force.
    pub limit: usize,
    /// Maximum number of calls that may await their first token.
    pub awaiting_limit: usize,
    /// Number of calls that await their first token.
    pub awaiting: usize,
    /// Whether no excessive level is known yet.
    pub slow_start: bool,
    /// The upstream's share of the TTFT objective, if any.
    pub objective: Option<Duration>,
    /// Recent share of late calls, from 0 to 1. `None` if no call was evaluated.
    pub late: Option<f64>,
    /// Evidence of a breach as a fraction: the limit is cut at 1.
    pub evidence: f64,
    /// Number of cuts.
    pub cuts: u64,
    /// Number of raises.
    pub raises: u64,
    /// Number of changes by cause, in the order of [`DecisionCause::ALL`].
    pub moves: [u64; DecisionCause::ALL.len()],
    /// Recent changes, the newest last.
    pub decisions: Vec<Decision>,
}

impl DecisionCause {
    /// All causes.
    pub const ALL: [Self; 7] = [
        Self::SlowStart,
        Self::Headroom,
        Self::Late,
        Self::Slow,
        Self::Refused,
        Self::Overloaded,
        Self::TimedOut,
    ];

    /// Returns `true` if the cause raises the limit.
    pub const fn raises(self) -> bool {
        matches!(self, DecisionCause::SlowStart | DecisionCause::Headroom)
    }

    /// Returns the stable name used in metrics and snapshots, such as `"slow_start"`.
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

/// The state of an adaptive limit within its cap.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveView {
    /// The state of the limit itself.
    pub limit: LimitView,
    /// The maximum of the limit: the cap.
    pub ceiling: usize,
    /// Whether the limit is in use although it was found too high lately. More replicas would help,
    /// a longer wait would not.
    pub saturated: bool,
}
