//! What to do after a failed attempt. Pure: told the failure, the budget's answer and the time left.

use std::time::Duration;

use crate::backoff;
use crate::config::RetryConfig;
use crate::cooldown::Hold;
use tidegate_policy::outcome::{AttemptOutcome, FailureCause};

/// How long a call at most stands back that all replicas turned away: about as long as one is left alone that does not say.
const MOMENT: Duration = Duration::from_millis(100);

/// A failed attempt, as far as the next step depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The answer may be different next time.
    pub retryable: bool,
    /// The request did not run: repeating it is safe whatever it is.
    pub never_executed: bool,
    /// The request is known to be safe to repeat.
    pub repeatable: bool,
    /// The provider's Retry-After.
    pub delay: Option<Duration>,
    /// What the target's cool-down makes of it.
    pub hold: Hold,
    /// Attempts made so far that count against the call, this one included.
    pub attempts: u32,
    /// Until the deadline.
    pub left: Duration,
}

impl Failure {
    /// Translates the outcome of an attempt that failed. `attempts` counts the attempts before it.
    pub(crate) fn from_outcome(
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
            delay: outcome.retry_after(),
            hold,
            attempts: attempts + u32::from(!is_free),
            left,
        }
    }
}

/// Returns `true` if the next attempt goes to another replica than the one that had this attempt, as
/// long as others have room.
pub(crate) fn avoids_replica(outcome: &AttemptOutcome) -> bool {
    match outcome {
        AttemptOutcome::Rejected(verdict) => verdict.retryable,
        AttemptOutcome::Failed(failure) => {
            failure.kind.is_retryable()
                && failure.kind.reason().is_none()
                && failure.cause != FailureCause::Local
        }
        // A replica that is down is out of the choice by itself.
        AttemptOutcome::Accepted { .. } | AttemptOutcome::Cancelled(_) => false,
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hand the failure up.
    GiveUp(Why),
    /// Queue again at once: the target is held, and the queue with it.
    Requeue,
    /// Sleep, without a slot, then queue again. Charged to nothing: nothing ran, and time has passed.
    Later(Duration),
    /// Sleep, without a slot, then queue again. Charged to the retry budget.
    Backoff(Duration),
}

/// Why a failure is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It would fail again.
    Final,
    /// It may have run, and is not known to be safe to repeat.
    Unsafe,
    /// The call has had all its attempts.
    Attempts,
    /// The recent calls have not earned another retry.
    Budget,
    /// The next attempt would come after the deadline.
    Deadline,
}

impl Why {
    /// The label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Final => "final",
            Why::Unsafe => "unsafe",
            Why::Attempts => "attempts",
            Why::Budget => "budget",
            Why::Deadline => "deadline",
        }
    }
}

/// Decides. `withdraw` is asked for a retry's charge only where one is due; `random` is uniform in [0, 1).
pub fn decide(config: &RetryConfig, failure: Failure, withdraw: impl FnOnce() -> bool, random: f64) -> Next {
    if !failure.retryable {
        return Next::GiveUp(Why::Final);
    }
    if !failure.repeatable && !failure.never_executed {
        return Next::GiveUp(Why::Unsafe);
    }
    if failure.left.is_zero() {
        return Next::GiveUp(Why::Deadline);
    }
    // Nothing ran, and another replica has not said no yet. A delay is the word of the one that has.
    if failure.hold == Hold::RetryOther && failure.never_executed {
        return Next::Requeue;
    }
    if failure.delay.is_some_and(|delay| delay >= failure.left) {
        return Next::GiveUp(Why::Deadline);
    }
    // A target that is down turns away whatever it is sent: the gate decides when to try, so the tries are the gate's and not the call's.
    // What may have run is the call's, and is not run without end.
    if failure.hold == Hold::Outage && failure.never_executed {
        return Next::Requeue;
    }
    // Each replica paces those that knock there; this paces the call, whatever a replica says of when to come back.
    if failure.hold == Hold::AllFull && failure.never_executed {
        let sleep = MOMENT.mul_f64(0.5 + 0.5 * random);
        return if sleep < failure.left { Next::Later(sleep) } else { Next::GiveUp(Why::Deadline) };
    }
    if failure.attempts >= config.attempts {
        return Next::GiveUp(Why::Attempts);
    }
    // The cool-down paces everybody's return, and so needs no budget to stop a storm; nor does a replica that went down, which does so once.
    if failure.hold != Hold::No {
        return Next::Requeue;
    }
    let bound = backoff::bound(config.base, config.max, failure.attempts);
    let sleep = backoff::full_jitter(failure.delay.unwrap_or_default(), bound, random);
    if sleep >= failure.left {
        return Next::GiveUp(Why::Deadline);
    }
    if withdraw() { Next::Backoff(sleep) } else { Next::GiveUp(Why::Budget) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        Failure {
            retryable: true,
            never_executed: false,
            repeatable: true,
            delay: None,
            hold: Hold::No,
            attempts: 1,
            left: Duration::from_secs(600),
        }
    }

    fn next(failure: Failure) -> Next {
        decide(&RetryConfig::default(), failure, || true, 0.5)
    }

    #[test]
    fn backs_off_longer_with_each_failure() {
        assert_eq!(next(failure()), Next::Backoff(Duration::from_millis(250)));
        assert_eq!(next(Failure { attempts: 3, ..failure() }), Next::Backoff(Duration::from_secs(1)));
        assert_eq!(next(Failure { attempts: 4, ..failure() }), Next::GiveUp(Why::Attempts));
    }

    #[test]
    fn what_would_fail_again_or_run_twice_is_not_repeated() {
        assert_eq!(next(Failure { retryable: false, ..failure() }), Next::GiveUp(Why::Final));
        assert_eq!(next(Failure { repeatable: false, ..failure() }), Next::GiveUp(Why::Unsafe));
        let never_ran = Failure { repeatable: false, never_executed: true, ..failure() };
        assert!(matches!(next(never_ran), Next::Backoff(_)));
    }

    #[test]
    fn a_delay_past_the_deadline_fails_now() {
        let late = Failure { delay: Some(Duration::from_secs(700)), ..failure() };
        assert_eq!(next(late), Next::GiveUp(Why::Deadline));
        assert_eq!(
            next(Failure { left: Duration::from_millis(100), ..failure() }),
            Next::GiveUp(Why::Deadline)
        );
    }

    #[test]
    fn the_budget_is_asked_only_for_retries_that_back_off_by_themselves() {
        let broke = |failure| decide(&RetryConfig::default(), failure, || false, 0.5);
        assert_eq!(broke(failure()), Next::GiveUp(Why::Budget));
        assert_eq!(broke(Failure { hold: Hold::CoolDown, ..failure() }), Next::Requeue);
        assert_eq!(broke(Failure { hold: Hold::Outage, ..failure() }), Next::Requeue);
        let down = Failure { hold: Hold::Outage, attempts: 99, ..failure() };
        assert_eq!(broke(Failure { never_executed: true, ..down }), Next::Requeue);
        assert_eq!(broke(down), Next::GiveUp(Why::Attempts), "what may have run is not run without end");
        let busy = Failure { hold: Hold::AllFull, never_executed: true, attempts: 99, ..failure() };
        assert_eq!(broke(busy), Next::Later(Duration::from_millis(75)), "never at once");
        let short = Failure { left: Duration::from_millis(75), ..busy };
        assert_eq!(broke(short), Next::GiveUp(Why::Deadline));
        let full = Failure { hold: Hold::RetryOther, attempts: 99, ..failure() };
        let long = Some(Duration::from_secs(700));
        assert_eq!(broke(Failure { never_executed: true, delay: long, ..full }), Next::Requeue);
        assert_eq!(broke(full), Next::GiveUp(Why::Attempts), "its replica fell under it");
        assert_eq!(broke(Failure { attempts: 1, ..full }), Next::Requeue);
        assert_eq!(
            broke(Failure { hold: Hold::CoolDown, attempts: 4, ..failure() }),
            Next::GiveUp(Why::Attempts)
        );
    }
}
