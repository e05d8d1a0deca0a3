//! The inputs and the results of a run.

use std::time::Duration;

use super::contender::Terms;
use super::upstream::Change;
use super::workload::Arrival;

/// The inputs of a run, except its contender and its upstream.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) seed: u64,
    pub(crate) terms: Terms,
    pub(crate) arrivals: Vec<Arrival>,
    /// The changes, in order of time.
    pub(crate) changes: Vec<(Duration, Change)>,
    /// Tokens per minute that the provider's headers announce.
    pub(crate) budget: Option<f64>,
    /// The output in tokens that the gate would expect of an answer.
    pub(crate) expected_output: u64,
    /// The end of the last phase. Calls in flight then continue to their ends.
    pub(crate) until: Duration,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The call has not ended; only during a run.
    Open,
    Served,
    /// We rejected the call because it had waited too long.
    Refused,
    /// The upstream rejected each attempt.
    TurnedAway,
    /// The caller left.
    Left,
    /// No token came within the caller's patience.
    TimedOut,
    /// The stream broke.
    Broken,
}

/// The result of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) how: How,
    /// The time of the last attempt.
    pub(crate) sent: Option<Duration>,
    pub(crate) first_token: Option<Duration>,
}

/// The state at the end of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Second {
    pub(crate) limit: usize,
    /// The maximum number of calls awaiting their first token.
    pub(crate) bound: usize,
    pub(crate) in_flight: usize,
    pub(crate) awaiting: usize,
    pub(crate) waiting: usize,
    /// Whether a Retry-After or a token budget holds all calls, so that no limit binds.
    pub(crate) held: bool,
    /// Whether calls waited for room at any moment of the second.
    pub(crate) pressed: bool,
}

impl Second {
    /// Returns `true` if calls waited for room at the end of the second.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0 && !self.held
    }

    /// Returns the limit in force: the limit or, if calls wait although the limit has room, the
    /// number of calls in flight. Then too many calls await their first token.
    pub(crate) fn in_force(&self) -> usize {
        if self.waits() { self.limit.min(self.in_flight) } else { self.limit }
    }
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Played {
    /// The result of each arrival.
    pub(crate) fates: Vec<Fate>,
    pub(crate) seconds: Vec<Second>,
    pub(crate) attempts: u64,
    /// Attempts that the upstream rejected.
    pub(crate) rejected: u64,
    /// The contender's notes, one every [`NOTED`] seconds, if requested.
    pub(crate) notes: Vec<String>,
}

/// The interval of notes, in seconds.
pub(crate) const NOTED: usize = 5;
