//! What the limit sees, and why it moved.

use std::time::{Duration, Instant};

/// Why the limit moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Calls pressed on it, and were answered in time: it doubles until the first cut.
    SlowStart,
    /// The same, after the first cut.
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
    /// Cuts did not help: what is slow is not slow because of us.
    Futile,
}

/// One move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// The limit before.
    pub from: usize,
    /// The limit since.
    pub to: usize,
    /// Why.
    pub cause: Cause,
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
    /// Whether it still doubles.
    pub slow_start: bool,
    /// The upstream's part of the objective, where one is set.
    pub objective: Option<Duration>,
    /// The share of calls judged of late that were late (0 to 1); `None`: none was judged.
    pub late: Option<f64>,
    /// The detector's evidence of a breach: at 1 the limit is cut.
    pub evidence: f64,
    /// Cuts, and moves upward, so far.
    pub cuts: u64,
    /// See above.
    pub raises: u64,
    /// The last moves, the youngest last.
    pub decisions: Vec<Decision>,
}

impl Cause {
    /// Every cause, in the order of their declaration.
    pub const ALL: [Cause; 8] = [
        Cause::SlowStart,
        Cause::Headroom,
        Cause::Late,
        Cause::Slow,
        Cause::Refused,
        Cause::Overloaded,
        Cause::TimedOut,
        Cause::Futile,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::SlowStart => "slow_start",
            Cause::Headroom => "headroom",
            Cause::Late => "late",
            Cause::Slow => "slow",
            Cause::Refused => "refused",
            Cause::Overloaded => "overloaded",
            Cause::TimedOut => "timed_out",
            Cause::Futile => "futile",
        }
    }
}
