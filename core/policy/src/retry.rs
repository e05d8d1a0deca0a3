//! The retry policy: decides what to do after a failed attempt. Pure: all inputs are arguments.

use std::time::Duration;

use crate::backoff;
use crate::cooldown::Hold;
use crate::outcome::{AttemptOutcome, FailureCause};
use tidegate_config::RetryConfig;

/// The longest pause of a call that all replicas have rejected because they are full. About as long
/// as a full replica without a `Retry-After` is left alone.
const ALL_FULL_PAUSE: Duration = Duration::from_millis(100);

/// The properties of a failed attempt that the retry decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Whether the request did not run, so that sending it again is safe.
    pub never_executed: bool,
    /// Whether the request is safe to repeat even if it ran.
    pub repeatable: bool,
    /// How long the provider asked callers to wait.
    pub retry_after: Option<Duration>,
    /// How the failure holds back the target, and thus where the call waits or goes next.
    pub hold: Hold,
    /// Attempts that count against the call, this one included.
    pub attempts: u32,
    /// Time until the deadline.
    pub left: Duration,
}

impl Failure {
    /// Translates the outcome of an attempt that failed. `attempts` counts the attempts before it.
    pub fn from_outcome(
        outcome: &AttemptOutcome,
        hold: Hold,
        repeatable: bool,
        attempts: u32,
        left: Duration,
    ) -> Self {
        // Admission refuses a call only after it has waited as long as it may.
        let is_refused =
            matches!(outcome, AttemptOutcome::Failed(failure) if failure.kind.reason().is_some());
        let never_executed = outcome.never_executed();
        let is_free = never_executed && matches!(hold, Hold::Outage | Hold::RetryOther | Hold::AllFull);
        Self {
            retryable: outcome.is_retryable() && !is_refused,
            never_executed,
            repeatable,
            retry_after: outcome.retry_after(),
            hold,
            attempts: attempts + u32::from(!is_free),
            left,
        }
    }
}

/// Returns `true` if the next attempt prefers replicas other than the one of this attempt.
pub fn avoids_replica(outcome: &AttemptOutcome) -> bool {
    match outcome {
        AttemptOutcome::Rejected(verdict) => verdict.retryable,
        AttemptOutcome::Failed(failure) => {
            failure.kind.is_retryable()
                && failure.kind.reason().is_none()
                && failure.cause != FailureCause::Local
        }
        // A replica that is down is not selected anyway.
        AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => false,
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Return the failure to the caller.
    GiveUp(GiveUpReason),
    /// Queue again at once. The queue is held until the target may be tried.
    Requeue,
    /// Sleep without a slot, then queue again. Not charged to the retry budget, because nothing
    /// ran.
    Later(Duration),
    /// Sleep without a slot, then queue again. Charged to the retry budget.
    Backoff(Duration),
}

/// Why a failure is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// The request would fail again.
    Final,
    /// The request may have run, and is not safe to repeat.
    Unsafe,
    /// The call has made all its attempts.
    Attempts,
    /// The retry budget is used up.
    Budget,
    /// The next attempt would come after the deadline.
    Deadline,
}

impl GiveUpReason {
    /// The label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            GiveUpReason::Final => "final",
            GiveUpReason::Unsafe => "unsafe",
            GiveUpReason::Attempts => "attempts",
            GiveUpReason::Budget => "budget",
            GiveUpReason::Deadline => "deadline",
        }
    }
}

/// Returns the next step. `withdraw` charges the retry budget, and is called only if a retry is
/// due. `random` is uniform in [0, 1).
pub fn decide(config: &RetryConfig, failure: Failure, withdraw: impl FnOnce() -> bool, random: f64) -> Next {
    if !failure.retryable {
        return Next::GiveUp(GiveUpReason::Final);
    }
    if !failure.repeatable && !failure.never_executed {
        return Next::GiveUp(GiveUpReason::Unsafe);
    }
    if failure.left.is_zero() {
        return Next::GiveUp(GiveUpReason::Deadline);
    }
    // Nothing ran, and another replica has not rejected the call. `retry_after` concerns the
    // replica that has.
    if failure.hold == Hold::RetryOther && failure.never_executed {
        return Next::Requeue;
    }
    if failure.retry_after.is_some_and(|retry_after| retry_after >= failure.left) {
        return Next::GiveUp(GiveUpReason::Deadline);
    }
    // The gate decides when a target that is down is tried again, so the attempts do not count
    // against the call. An attempt that may have run counts, so that it is not repeated without
    // end.
    if failure.hold == Hold::Outage && failure.never_executed {
        return Next::Requeue;
    }
    // Each replica paces the calls that try it. This paces the call across all replicas.
    if failure.hold == Hold::AllFull && failure.never_executed {
        let sleep = ALL_FULL_PAUSE.mul_f64(0.5 + 0.5 * random);
        return if sleep < failure.left { Next::Later(sleep) } else { Next::GiveUp(GiveUpReason::Deadline) };
    }
    if failure.attempts >= config.attempts {
        return Next::GiveUp(GiveUpReason::Attempts);
    }
    // A cool-down already limits the rate at which calls return, so no retry budget is charged.
    // Each outage of a replica causes at most one such retry per call.
    if failure.hold != Hold::No {
        return Next::Requeue;
    }
    let bound = backoff::bound(config.base, config.max, failure.attempts);
    let sleep = backoff::full_jitter(failure.retry_after.unwrap_or_default(), bound, random);
    if sleep >= failure.left {
        return Next::GiveUp(GiveUpReason::Deadline);
    }
    if withdraw() { Next::Backoff(sleep) } else { Next::GiveUp(GiveUpReason::Budget) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        Failure {
            retryable: true,
            never_executed: false,
            repeatable: true,
            retry_after: None,
            hold: Hold::No,
            attempts: 1,
            left: Duration::from_secs(600),
        }
    }

    fn next(failure: Failure) -> Next {
        decide(&RetryConfig::default(), failure, || true, 0.5)
    }

    #[test]
    fn backoff_grows_with_each_failure() {
        assert_eq!(next(failure()), Next::Backoff(Duration::from_millis(250)));
        assert_eq!(next(Failure { attempts: 3, ..failure() }), Next::Backoff(Duration::from_secs(1)));
        assert_eq!(next(Failure { attempts: 4, ..failure() }), Next::GiveUp(GiveUpReason::Attempts));
    }

    #[test]
    fn failures_that_are_final_or_unsafe_to_repeat_are_not_retried() {
        assert_eq!(next(Failure { retryable: false, ..failure() }), Next::GiveUp(GiveUpReason::Final));
        assert_eq!(next(Failure { repeatable: false, ..failure() }), Next::GiveUp(GiveUpReason::Unsafe));
        let never_ran = Failure { repeatable: false, never_executed: true, ..failure() };
        assert!(matches!(next(never_ran), Next::Backoff(_)));
    }

    #[test]
    fn retry_after_beyond_the_deadline_fails_at_once() {
        let late = Failure { retry_after: Some(Duration::from_secs(700)), ..failure() };
        assert_eq!(next(late), Next::GiveUp(GiveUpReason::Deadline));
        assert_eq!(
            next(Failure { left: Duration::from_millis(100), ..failure() }),
            Next::GiveUp(GiveUpReason::Deadline)
        );
    }

    #[test]
    fn only_retries_with_a_backoff_of_their_own_are_charged() {
        let without_budget = |failure| decide(&RetryConfig::default(), failure, || false, 0.5);
        assert_eq!(without_budget(failure()), Next::GiveUp(GiveUpReason::Budget));
        assert_eq!(without_budget(Failure { hold: Hold::CoolDown, ..failure() }), Next::Requeue);
        assert_eq!(without_budget(Failure { hold: Hold::Outage, ..failure() }), Next::Requeue);
        let down = Failure { hold: Hold::Outage, attempts: 99, ..failure() };
        assert_eq!(without_budget(Failure { never_executed: true, ..down }), Next::Requeue);
        assert_eq!(
            without_budget(down),
            Next::GiveUp(GiveUpReason::Attempts),
            "what may have run is not run without end"
        );
        let busy = Failure { hold: Hold::AllFull, never_executed: true, attempts: 99, ..failure() };
        assert_eq!(without_budget(busy), Next::Later(Duration::from_millis(75)), "never at once");
        let short = Failure { left: Duration::from_millis(75), ..busy };
        assert_eq!(without_budget(short), Next::GiveUp(GiveUpReason::Deadline));
        let full = Failure { hold: Hold::RetryOther, attempts: 99, ..failure() };
        let long = Some(Duration::from_secs(700));
        assert_eq!(
            without_budget(Failure { never_executed: true, retry_after: long, ..full }),
            Next::Requeue
        );
        assert_eq!(without_budget(full), Next::GiveUp(GiveUpReason::Attempts), "its replica fell under it");
        assert_eq!(without_budget(Failure { attempts: 1, ..full }), Next::Requeue);
        assert_eq!(
            without_budget(Failure { hold: Hold::CoolDown, attempts: 4, ..failure() }),
            Next::GiveUp(GiveUpReason::Attempts)
        );
    }
}
