//! Upstreams of `adaptive`: simulated engines, or a hosted provider.

mod engines;
mod hosted;
mod others;

use std::time::Duration;

pub(crate) use self::engines::Engines;
pub(crate) use self::hosted::{FirstToken, Hosted, Rate};
pub(crate) use self::others::Others;
use crate::lengths::Work;

/// A provider or our own servers behind one address. Times are since the start of the run.
pub(crate) trait Upstream {
    /// Accepts or rejects an attempt.
    fn submit(&mut self, now: Duration, id: u64, work: Work) -> Result<(), Rejection>;

    /// Aborts an attempt whose caller has left.
    fn abort(&mut self, now: Duration, id: u64);

    fn next_event(&self) -> Option<Duration>;

    /// Appends the events until `now`.
    fn advance(&mut self, now: Duration, events: &mut Vec<Event>);

    /// Returns the remaining tokens of the rate, as the headers announce them, if there is a rate.
    fn remaining(&mut self, _now: Duration) -> Option<f64> {
        None
    }

    /// Applies a change of the scenario.
    fn change(&mut self, now: Duration, change: Change);
}

/// An event of an attempt.
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
    /// The server of the attempt is gone.
    Broken,
}

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// 429, with or without a Retry-After.
    Limited { retry_after: Option<Duration> },
    /// 503.
    Overloaded,
}

/// A change at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// No change.
    No,
    /// Each engine, or the provider, takes the given number of concurrent calls.
    AtOnce(u32),
    /// One engine is lost with all its calls.
    Lost(usize),
    /// The lost engine is back, empty.
    Back(usize),
    /// Every step of an engine takes the given multiple of its initial time.
    Pace(f64),
    /// Others ask for the given number of calls per second.
    Others(f64),
}
