//! The retry policy: [`decide`] returns what a call does after a failed attempt.

use std::time::Duration;

use crate::outcome::{AttemptOutcome, FailureCause};
use crate::{backoff, labels::labelled};
use tidegate_config::RetryConfig;

/// Maximum pause of a call after all replicas have rejected it because they are full. A full
/// replica that named no `Retry-After` is sent no call for about as long.
const ALL_FULL_PAUSE: Duration = Duration::from_millis(100);

/// How the call of a failed attempt continues if it is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPath {
    /// The target admits attempts. The call is retried after a backoff.
    Backoff,
    /// The target cools down because the provider asked callers to wait. The call is queued without
    /// a backoff.
    AfterCoolDown,
    /// Another replica may admit the call. The call is queued without a backoff. If the attempt did
    /// not run, it does not count towards the maximum number of attempts.
    OtherReplica,
    /// All replicas that the call may be sent to are full. The call is queued again after a short
    /// pause. If the attempt did not run, it does not count towards the maximum number of attempts.
    AllReplicasFull,
    /// The target is down. The call is queued without a backoff. If the attempt did not run, it
    /// does not count towards the maximum number of attempts.
    AfterOutage,
}

/// The properties of a failed attempt that the retry decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt {
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Whether the upstream certainly did not process the request, so that sending it again is
    /// safe.
    pub never_executed: bool,
    /// Whether the request is safe to send again even if it was processed.
    pub repeatable: bool,
    /// How long the provider asked callers to wait. `None` if it named no delay.
    pub retry_after: Option<Duration>,
    /// How the call continues if it is retried.
    pub retry_path: RetryPath,
    /// Number of attempts of the call that count against the configured maximum, including this one
    /// if it counts.
    pub attempts: u32,
    /// Time until the deadline of the call. Zero if it has passed.
    pub left: Duration,
}

impl FailedAttempt {
    /// Returns the properties of an attempt that failed with this outcome.
    ///
    /// `attempts` is the number of earlier attempts of the call that count against the configured
    /// maximum. This attempt counts too, unless the upstream certainly did not process it and
    /// `retry_path` is [`RetryPath::AfterOutage`], [`RetryPath::OtherReplica`] or
    /// [`RetryPath::AllReplicasFull`].
    pub fn from_outcome(
        outcome: &AttemptOutcome,
        retry_path: RetryPath,
        repeatable: bool,
        attempts: u32,
        left: Duration,
    ) -> Self {
        // Admission refuses a call only after it has waited as long as it may.
        let is_refused = matches!(outcome, AttemptOutcome::Failed(failed) if failed.kind.reason().is_some());
        let is_misplaced = retry_path == RetryPath::OtherReplica && outcome.is_misplaced();
        let never_executed = outcome.never_executed() || is_misplaced;
        let is_free = never_executed
            && matches!(
                retry_path,
                RetryPath::AfterOutage | RetryPath::OtherReplica | RetryPath::AllReplicasFull
            );
        Self {
            retryable: (outcome.is_retryable() || is_misplaced) && !is_refused,
            never_executed,
            repeatable,
            retry_after: outcome.retry_after(),
            retry_path,
            attempts: attempts + u32::from(!is_free),
            left,
        }
    }
}

/// Returns `true` if the next attempt of the call prefers a replica other than the one of this
/// attempt: the outcome is a retryable or misplaced rejection, or a
/// retryable failure after admission that this process did not cause.
pub fn avoids_replica(outcome: &AttemptOutcome) -> bool {
    match outcome {
        AttemptOutcome::Rejected(verdict) => verdict.retryable || outcome.is_misplaced(),
        AttemptOutcome::Failed(failure) => {
            failure.kind.is_retryable()
                && failure.kind.reason().is_none()
                && failure.cause != FailureCause::Local
        }
        // A replica that is down is not selected anyway.
        AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => false,
    }
}

/// What a call does after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Return the failure to the caller.
    GiveUp(GiveUpReason),
    /// Enter the queue again without a delay. The call waits there until the target admits
    /// attempts.
    Requeue,
    /// Sleep for this time without a slot, then enter the queue again. The retry budget is not
    /// charged, because the attempt did not run.
    Pause(Duration),
    /// Sleep for this time without a slot, then enter the queue again. The retry budget is charged.
    Backoff(Duration),
}

labelled! {
    /// Why a call is not retried.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GiveUpReason {
        /// The same request would fail again.
        Final = "final",
        /// The request may have been processed, and is not safe to send again.
        Unsafe = "unsafe",
        /// The call has made its maximum number of attempts.
        Attempts = "attempts",
        /// The retry budget of the target is used up.
        Budget = "budget",
        /// The next attempt would start after the deadline of the call.
        Deadline = "deadline",
    }
}

/// Returns what the call does after the failed attempt.
///
/// `withdraw` charges one retry to the retry budget and returns `false` if that is used up. It is
/// called at most once, and only if a backoff is due. `random`, uniform in `[0, 1)`, determines the
/// jitter of the delay.
pub fn decide(
    config: &RetryConfig,
    failure: FailedAttempt,
    withdraw: impl FnOnce() -> bool,
    random: f64,
) -> NextStep {
    use NextStep::{Backoff, GiveUp, Pause, Requeue};

    if !failure.retryable {
        return GiveUp(GiveUpReason::Final);
    }
    if !failure.repeatable && !failure.never_executed {
        return GiveUp(GiveUpReason::Unsafe);
    }
    if failure.left.is_zero() {
        return GiveUp(GiveUpReason::Deadline);
    }
    // Nothing ran, and another replica has not rejected the call. `retry_after` concerns the
    // replica that has.
    if failure.retry_path == RetryPath::OtherReplica && failure.never_executed {
        return Requeue;
    }
    if failure.retry_after.is_some_and(|retry_after| retry_after >= failure.left) {
        return GiveUp(GiveUpReason::Deadline);
    }
    // The gate decides when a target that is down is tried again, so the attempts do not count
    // against the call. An attempt that may have run counts, so that it is not repeated without
    // end.
    if failure.retry_path == RetryPath::AfterOutage && failure.never_executed {
        return Requeue;
    }
    // Each replica paces the calls that try it. This paces the call across all replicas.
    if failure.retry_path == RetryPath::AllReplicasFull && failure.never_executed {
        let sleep = ALL_FULL_PAUSE.mul_f64(0.5 + 0.5 * random);
        return if sleep < failure.left { Pause(sleep) } else { GiveUp(GiveUpReason::Deadline) };
    }
    if failure.attempts >= config.attempts {
        return GiveUp(GiveUpReason::Attempts);
    }
    // A cool-down already limits the rate at which calls return, so no retry budget is charged.
    // Each outage of a replica causes at most one such retry per call.
    let is_held = match failure.retry_path {
        RetryPath::Backoff => false,
        RetryPath::AfterCoolDown => failure.retry_after != Some(Duration::ZERO),
        RetryPath::OtherReplica | RetryPath::AllReplicasFull | RetryPath::AfterOutage => true,
    };
    if is_held {
        return Requeue;
    }
    let bound = backoff::bound(config.base, config.max, failure.attempts);
    let sleep = backoff::full_jitter(failure.retry_after.unwrap_or_default(), bound, random);
    if sleep >= failure.left {
        return GiveUp(GiveUpReason::Deadline);
    }
    if withdraw() { Backoff(sleep) } else { GiveUp(GiveUpReason::Budget) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> FailedAttempt {
        FailedAttempt {
            retryable: true,
            never_executed: false,
            repeatable: true,
            retry_after: None,
            retry_path: RetryPath::Backoff,
            attempts: 1,
            left: Duration::from_secs(600),
        }
    }

    fn next(failure: FailedAttempt) -> NextStep {
        decide(&RetryConfig::default(), failure, || true, 0.5)
    }

    #[test]
    fn backoff_grows_with_each_failure() {
        assert_eq!(next(failure()), NextStep::Backoff(Duration::from_millis(250)));
        assert_eq!(
            next(FailedAttempt { attempts: 3, ..failure() }),
            NextStep::Backoff(Duration::from_secs(1))
        );
        assert_eq!(
            next(FailedAttempt { attempts: 4, ..failure() }),
            NextStep::GiveUp(GiveUpReason::Attempts)
        );
    }

    #[test]
    fn failures_that_are_final_or_unsafe_to_repeat_are_not_retried() {
        assert_eq!(
            next(FailedAttempt { retryable: false, ..failure() }),
            NextStep::GiveUp(GiveUpReason::Final)
        );
        assert_eq!(
            next(FailedAttempt { repeatable: false, ..failure() }),
            NextStep::GiveUp(GiveUpReason::Unsafe)
        );
        let never_ran = FailedAttempt { repeatable: false, never_executed: true, ..failure() };
        assert!(matches!(next(never_ran), NextStep::Backoff(_)));
    }

    #[test]
    fn retry_after_beyond_the_deadline_fails_at_once() {
        let late = FailedAttempt { retry_after: Some(Duration::from_secs(700)), ..failure() };
        assert_eq!(next(late), NextStep::GiveUp(GiveUpReason::Deadline));
        assert_eq!(
            next(FailedAttempt { left: Duration::from_millis(100), ..failure() }),
            NextStep::GiveUp(GiveUpReason::Deadline)
        );
    }

    #[test]
    fn only_retries_with_a_backoff_of_their_own_are_charged() {
        let without_budget = |failure| decide(&RetryConfig::default(), failure, || false, 0.5);
        assert_eq!(without_budget(failure()), NextStep::GiveUp(GiveUpReason::Budget));
        assert_eq!(
            without_budget(FailedAttempt { retry_path: RetryPath::AfterCoolDown, ..failure() }),
            NextStep::Requeue
        );
        assert_eq!(
            without_budget(FailedAttempt { retry_path: RetryPath::AfterOutage, ..failure() }),
            NextStep::Requeue
        );
        let at_once = FailedAttempt {
            retry_after: Some(Duration::ZERO),
            retry_path: RetryPath::AfterCoolDown,
            ..failure()
        };
        assert_eq!(without_budget(at_once), NextStep::GiveUp(GiveUpReason::Budget), "it paces nothing");
        assert_eq!(next(at_once), NextStep::Backoff(Duration::from_millis(250)));
        let down = FailedAttempt { retry_path: RetryPath::AfterOutage, attempts: 99, ..failure() };
        assert_eq!(without_budget(FailedAttempt { never_executed: true, ..down }), NextStep::Requeue);
        assert_eq!(
            without_budget(down),
            NextStep::GiveUp(GiveUpReason::Attempts),
            "what may have run is not run without end"
        );
        let busy = FailedAttempt {
            retry_path: RetryPath::AllReplicasFull,
            never_executed: true,
            attempts: 99,
            ..failure()
        };
        assert_eq!(without_budget(busy), NextStep::Pause(Duration::from_millis(75)), "never at once");
        let short = FailedAttempt { left: Duration::from_millis(75), ..busy };
        assert_eq!(without_budget(short), NextStep::GiveUp(GiveUpReason::Deadline));
        let full = FailedAttempt { retry_path: RetryPath::OtherReplica, attempts: 99, ..failure() };
        let long = Some(Duration::from_secs(700));
        assert_eq!(
            without_budget(FailedAttempt { never_executed: true, retry_after: long, ..full }),
            NextStep::Requeue
        );
        assert_eq!(
            without_budget(full),
            NextStep::GiveUp(GiveUpReason::Attempts),
            "its replica fell under it"
        );
        assert_eq!(without_budget(FailedAttempt { attempts: 1, ..full }), NextStep::Requeue);
        assert_eq!(
            without_budget(FailedAttempt { retry_path: RetryPath::AfterCoolDown, attempts: 4, ..failure() }),
            NextStep::GiveUp(GiveUpReason::Attempts)
        );
    }
}
