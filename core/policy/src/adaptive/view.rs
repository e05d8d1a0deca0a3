//! Views of an adaptive limit for snapshots and metrics: its state, and its changes with their
//! causes.

use std::time::{Duration, Instant};

use crate::labels::labelled;

labelled! {
    /// Why the limit changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DecisionCause {
        /// The limit was raised in slow start: a call was not late while the limit was full.
        SlowStart = "slow_start",
        /// The limit was raised after the end of slow start, or by the percentile detector: while
        /// the limit was in use, latencies were well below those at which it is cut.
        Headroom = "headroom",
        /// First tokens, or responses that do not stream, were late or overdue.
        Late = "late",
        /// The mean time between tokens exceeded its objective,
        /// [`LimitSettings::tpot`](super::LimitSettings::tpot).
        Slow = "slow",
        /// The engine reported that calls wait in its queue.
        Queued = "queued",
        /// The upstream rejected calls with a 429 for too many concurrent calls.
        Refused = "refused",
        /// The upstream rejected calls for lack of capacity (503 or 529).
        Overloaded = "overloaded",
        /// Calls got no response, or no first token, before their timeout.
        TimedOut = "timed_out",
    }
}

/// One change of an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Time of the change.
    pub at: Instant,
    /// Slots before the change.
    pub from: usize,
    /// Slots after the change. Equal to `from` if only the first-token limit was cut.
    pub to: usize,
    /// First-token limit after the change: the maximum number of calls that may await their first
    /// token.
    pub awaiting: usize,
    /// Reason of the change.
    pub cause: DecisionCause,
}

/// State of an adaptive limit, for snapshots and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitView {
    /// Current number of slots: the maximum number of calls in flight.
    pub limit: usize,
    /// Maximum number of calls that may await their first token.
    pub awaiting_limit: usize,
    /// Number of streaming calls that await their first token.
    pub awaiting: usize,
    /// Work of these calls before their first token, in tokens of prefill.
    pub awaiting_work: u64,
    /// Such work that keeps the upstream busy without a queue, or `None` if it is not known yet.
    /// See [`Limit::first_token_capacity`](super::Limit::first_token_capacity).
    pub first_token_capacity: Option<u64>,
    /// Whether the limit is in slow start: the slots have not yet been found to be too many. Always
    /// `false` with the percentile detector.
    pub slow_start: bool,
    /// Current latency objective, or `None` if calls are compared with similar ones. See
    /// [`LimitSettings::objective`](super::LimitSettings::objective).
    pub objective: Option<Duration>,
    /// Exponentially decaying share of late calls among the evaluated calls, from 0 to 1, or `None`
    /// if no call was evaluated yet.
    pub late: Option<f64>,
    /// Evidence that calls are late, as a fraction of what a cut needs: the limit is cut at 1. The
    /// percentile detector reports the value of its last tick, which may be more than 1.
    pub evidence: f64,
    /// Number of cuts since the limit was created. Cuts for 429s within a second of each other
    /// count once.
    pub cuts: u64,
    /// Number of raises since the limit was created.
    pub raises: u64,
    /// Number of changes for each cause since the limit was created, in the order of
    /// [`DecisionCause::ALL`].
    pub moves: [u64; DecisionCause::ALL.len()],
    /// Up to 32 recent changes, the newest last. Consecutive raises for the same cause are merged.
    pub decisions: Vec<Decision>,
}

impl DecisionCause {
    /// Returns `true` for causes of raises, and `false` for causes of cuts.
    pub const fn raises(self) -> bool {
        matches!(self, DecisionCause::SlowStart | DecisionCause::Headroom)
    }
}

/// The state of an adaptive limit together with its cap.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveView {
    /// The state of the limit itself.
    pub limit: LimitView,
    /// Maximum number of slots: the configured cap.
    pub ceiling: usize,
    /// Whether no slot is free and, within the last 60 s, the limit detected that too many calls
    /// were in flight. The upstream then needs more capacity, such as more replicas: waiting longer
    /// does not help.
    pub saturated: bool,
}
