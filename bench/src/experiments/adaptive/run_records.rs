//! The inputs and the results of one run: one contender (a compared controller) in one scenario on
//! one seed.

use std::time::Duration;

use super::contender::Terms;
use super::upstream::Change;
use super::workload::Arrival;

/// The calls of a run, and the changes of its upstream. All contenders get the same inputs for a
/// seed.
#[derive(Debug)]
pub(crate) struct RunInputs {
    pub(crate) seed: u64,
    pub(crate) terms: Terms,
    pub(crate) arrivals: Vec<Arrival>,
    /// The changes of the upstream: time since the start and change, in order of time.
    pub(crate) changes: Vec<(Duration, Change)>,
    /// Tokens per minute that the provider's headers announce. `None` without such a header.
    pub(crate) budget: Option<f64>,
    /// The output, in tokens, that a gate would expect of each answer: the mean of the workload.
    pub(crate) expected_output: u64,
    /// The end of the last phase. No calls arrive after it, and calls in flight continue to their
    /// ends.
    pub(crate) until: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The call has not ended. Does not occur in results.
    Open,
    Served,
    /// The client rejected the call because it had waited too long in the queue.
    Refused,
    /// The upstream rejected the attempts of the call, until none was left or the caller gave up.
    TurnedAway,
    /// The caller left before the first token.
    Left,
    /// No token came within the caller's patience.
    TimedOut,
    /// The connection broke.
    Broken,
}

/// How one call ended, and its times since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallResult {
    pub(crate) how: CallOutcome,
    /// The time at which the last attempt was sent. `None` if no attempt was sent.
    pub(crate) sent: Option<Duration>,
    pub(crate) first_token: Option<Duration>,
}

/// The limit, the queue and the calls in flight at the end of one second of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Second {
    pub(crate) limit: usize,
    /// The maximum number of calls that the contender allows to await their first token.
    pub(crate) bound: usize,
    pub(crate) in_flight: usize,
    pub(crate) awaiting: usize,
    pub(crate) waiting: usize,
    /// Whether all calls are held back by a Retry-After or by the token budget. Meanwhile the limit
    /// has no effect.
    pub(crate) held: bool,
    /// Whether calls waited because of the limit at any moment of the second.
    pub(crate) pressed: bool,
}

impl Second {
    /// Returns `true` if, at the end of the second, calls wait because of the limit.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0 && !self.held
    }

    /// Returns the limit in force: the number of concurrent calls that was effectively allowed. If
    /// calls waited because too many others awaited their first token, it is the number of calls in
    /// flight. Otherwise it is `limit`.
    pub(crate) fn in_force(&self) -> usize {
        if self.waits() { self.limit.min(self.in_flight) } else { self.limit }
    }
}

/// The results of one run.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// The result of each arrival, in the order of [`RunInputs::arrivals`].
    pub(crate) results: Vec<CallResult>,
    pub(crate) seconds: Vec<Second>,
    pub(crate) attempts: u64,
    /// The number of attempts that the upstream rejected.
    pub(crate) rejected: u64,
    /// Lines of text about the contender's state, one every [`NOTED`] seconds. Empty unless they
    /// were requested.
    pub(crate) notes: Vec<String>,
}

/// The interval at which the contender's state is noted in a run's results, in seconds.
pub(crate) const NOTED: usize = 5;
