//! The upstreams of `adaptive`: simulated engines or a hosted provider.

mod engines;
mod hosted;
mod other_users;

use std::time::Duration;

pub(crate) use self::engines::Engines;
pub(crate) use self::hosted::{FirstToken, Hosted, Rate};
pub(crate) use self::other_users::Others;
use crate::trace_lengths::Work;

/// A simulated upstream: a provider, or engines behind a router. Times are since the start of the
/// run.
pub(crate) trait Upstream {
    /// Submits an attempt at the time `now`. Returns the rejection as the error if the upstream
    /// does not accept it.
    fn submit(&mut self, now: Duration, id: u64, work: Work) -> Result<(), Rejection>;

    /// Cancels an attempt, because its caller has left.
    fn abort(&mut self, now: Duration, id: u64);

    fn next_event(&self) -> Option<Duration>;

    /// Advances the time to `now`, and appends the events up to then to `events`.
    fn advance(&mut self, now: Duration, events: &mut Vec<Event>);

    /// Returns the tokens that are left in the token quota at `now`, as response headers announce
    /// them. `None` without a token quota.
    fn remaining(&mut self, _now: Duration) -> Option<f64> {
        None
    }

    /// Applies a change of the scenario, at the beginning of a phase.
    fn change(&mut self, now: Duration, change: Change);
}

/// What happened to an attempt, and when.
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
    /// The connection broke, because the engine is lost.
    Broken,
}

/// The response with which the upstream rejected an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// The upstream answered 429. `retry_after` is `None` if the response has no Retry-After.
    Limited { retry_after: Option<Duration> },
    /// The upstream answered 503.
    Overloaded,
}

/// A change of the upstream at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// No change.
    No,
    /// From now on, each engine, or the provider, accepts at most this number of concurrent calls.
    AtOnce(u32),
    /// The engine with this index is lost, with all calls on it.
    Lost(usize),
    /// The engine with this index is back, with an empty cache.
    Back(usize),
    /// Each step of an engine takes this many times as long as at the start.
    Pace(f64),
    /// Other users make this number of calls per second.
    Others(f64),
}
