//! What a run is given, and what became of it.

use std::time::Duration;

use super::contender::Terms;
use super::upstream::Change;
use super::workload::Arrival;

/// What a run is given besides its contender and its upstream.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) seed: u64,
    pub(crate) terms: Terms,
    pub(crate) arrivals: Vec<Arrival>,
    /// In order of time.
    pub(crate) changes: Vec<(Duration, Change)>,
    /// Tokens a minute that the provider's headers say it takes.
    pub(crate) budget: Option<f64>,
    /// What the gate would expect an answer to have.
    pub(crate) expected_output: u64,
    /// When the last phase ends. Calls that are there then go on to their ends.
    pub(crate) until: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Not yet: only while a run goes on.
    Open,
    Served,
    /// By us, for having waited too long.
    Refused,
    /// By the upstream, each time.
    TurnedAway,
    /// Its caller left.
    Left,
    /// No token in time to keep anybody waiting for it.
    TimedOut,
    /// Its stream broke.
    Broken,
}

/// What became of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) how: How,
    /// When it was last sent.
    pub(crate) sent: Option<Duration>,
    pub(crate) first_token: Option<Duration>,
}

/// What stood at the end of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Second {
    pub(crate) limit: usize,
    /// The most that may have awaited their first token.
    pub(crate) bound: usize,
    pub(crate) in_flight: usize,
    pub(crate) awaiting: usize,
    pub(crate) waiting: usize,
    /// By a Retry-After or a token budget: nobody's limit holds anything then.
    pub(crate) held: bool,
    /// Whether calls waited for room at any moment of it.
    pub(crate) pressed: bool,
}

impl Second {
    /// Whether calls waited for room as it ended.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0 && !self.held
    }

    /// What held calls back: the limit, or what was in flight where calls waited although it had room, since too many awaited their first token.
    pub(crate) fn in_force(&self) -> usize {
        if self.waits() { self.limit.min(self.in_flight) } else { self.limit }
    }
}

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Played {
    /// Of each arrival.
    pub(crate) fates: Vec<Fate>,
    pub(crate) seconds: Vec<Second>,
    pub(crate) attempts: u64,
    /// Attempts that the upstream turned away.
    pub(crate) rejected: u64,
    /// What the contender had to say at the end of each fifth second, if it was asked for.
    pub(crate) notes: Vec<String>,
}

/// A note is taken every so many seconds.
pub(crate) const NOTED: usize = 5;
