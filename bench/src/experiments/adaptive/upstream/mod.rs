//! What calls go to.

mod engines;
mod hosted;
mod others;

use std::time::Duration;

pub(crate) use self::engines::Engines;
pub(crate) use self::hosted::{FirstToken, Hosted, Rate};
pub(crate) use self::others::Others;
use crate::lengths::Work;

/// A provider, or servers of our own, behind one address. Knows no clock: time is since the start of the run.
pub(crate) trait Upstream {
    /// Takes an attempt, or turns it away.
    fn submit(&mut self, now: Duration, id: u64, work: Work) -> Result<(), Rejection>;

    /// Its caller has gone.
    fn abort(&mut self, now: Duration, id: u64);

    fn next_event(&self) -> Option<Duration>;

    /// Appends what happens until `now`.
    fn advance(&mut self, now: Duration, events: &mut Vec<Event>);

    /// Tokens that its headers say are left of its rate, where it has one.
    fn remaining(&mut self, _now: Duration) -> Option<f64> {
        None
    }

    /// The world changes.
    fn change(&mut self, now: Duration, change: Change);
}

/// What happened to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) id: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    FirstToken,
    Finished,
    /// The server that had it is gone.
    Broken,
}

/// Why an attempt was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// 429, with or without a Retry-After.
    Limited { retry_after: Option<Duration> },
    /// 503.
    Overloaded,
}

/// What changes from one phase to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// Nothing.
    No,
    /// Each engine, or the provider, takes so many at once.
    AtOnce(u32),
    /// One engine is gone, with all that it had.
    Lost(usize),
    /// It is back, empty.
    Back(usize),
    /// Every step of an engine takes so many times as long as at first.
    Pace(f64),
    /// Others ask for so many calls a second.
    Others(f64),
}
