//! Decides when the beginning and the end of an outage are logged, and remembers its cause.

use std::time::{Duration, Instant};

use super::Admission;
use crate::clock::now;
use crate::error::{Error, list_replica_problems};
use crate::placement::ReplicaState;
use crate::schedule::Rule;

/// Minimum time between two outages of a target that are logged. A server that is overloaded may
/// reject calls and accept others many times per second.
const PAUSE: Duration = Duration::from_secs(60);

/// Which outage of a target was logged last, and what its cause is.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    /// When the beginning of an outage was last logged, or `None` if it never was.
    last: Option<Instant>,
    /// Whether that outage has not ended.
    lasts: bool,
    /// How the attempt failed that was sent last during an outage of a single target, in words.
    /// `None` if there was no such attempt.
    pub(super) last_problem: Option<String>,
}

impl OutageLog {
    /// Begins a logged outage if the target is in an outage, none is logged, and the last one was
    /// logged long enough before `now`. Returns `true` if the beginning is to be logged.
    pub(super) fn try_begin(&mut self, now: Instant, is_in_outage: bool) -> bool {
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        let begins = is_in_outage && !self.lasts && is_due;
        if begins {
            (self.last, self.lasts) = (Some(now), true);
        }
        begins
    }

    /// Ends the logged outage if the target is not in an outage any more. Returns `true` if the end
    /// is to be logged. `is_in_outage` returns whether the target is in an outage, and is called
    /// only if the beginning was logged and no end since.
    pub(super) fn try_end(&mut self, is_in_outage: impl FnOnce() -> bool) -> bool {
        let is_over = self.lasts && !is_in_outage();
        self.lasts &= !is_over;
        is_over
    }
}

impl Admission {
    /// Logs the beginning of an outage of the pool, with the problem of each replica, and its end.
    /// Call this function after each event that may take a replica down or bring it back.
    pub(super) fn log_pool_state(&self) {
        let now = now();
        let mut state = self.state.lock();
        let is_in_outage = state.scheduler.is_in_outage();
        if state.outage_log.try_end(|| is_in_outage) {
            drop(state);
            return self.log_outage_end();
        }
        if !state.outage_log.try_begin(now, is_in_outage) {
            return;
        }
        let mut replicas = state.scheduler.replicas(now);
        drop(state);
        let name = self.name();
        replicas.retain(|replica| replica.state != ReplicaState::Draining);
        if replicas.is_empty() {
            tracing::warn!(target = %name, "the pool {name} has no replica, so its calls cannot be sent");
            return;
        }
        let problems = list_replica_problems(&replicas);
        tracing::warn!(target = %name, "no replica of {name} accepts calls ({problems})");
    }

    /// Logs the end of an outage of the target.
    pub(super) fn log_outage_end(&self) {
        tracing::info!(target = %self.name(), "the outage of the target is over");
    }

    /// Adds to a rejection how the last call failed at the target if the rejected call waited
    /// because the target is down. Returns other rejections unchanged.
    pub(crate) fn explain_outage(&self, rejection: Error) -> Error {
        if rejection.why().is_none_or(|why| why.rule != Rule::Outage) {
            return rejection;
        }
        let problem = self.state.lock().outage_log.last_problem.clone();
        match problem {
            Some(problem) => rejection.with_target_problem(&problem),
            None => rejection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_that_alternate_with_successes_are_logged_once_a_minute() {
        let (mut log, start) = (OutageLog::default(), now());
        let mut lines = Vec::new();
        for second in 0..150 {
            let at = start + Duration::from_secs(second);
            if log.try_begin(at, true) {
                lines.push((second, "begins"));
            }
            assert!(!log.try_begin(at, true), "one line for each outage");
            if second % 2 == 1 && log.try_end(|| false) {
                lines.push((second, "over"));
            }
        }
        let expected =
            [(0, "begins"), (1, "over"), (60, "begins"), (61, "over"), (120, "begins"), (121, "over")];
        assert_eq!(lines, expected);
    }

    #[test]
    fn failures_outside_an_outage_are_not_logged() {
        let mut log = OutageLog::default();
        assert!(!log.try_begin(now(), false) && !log.try_end(|| false));
    }
}
