//! Compares the retry policy with the published test cases of AWS's standard retry mode (the
//! "standard" and "new retries 2026" cases of smithy-kotlin), restated in this policy's terms.
//!
//! AWS charges `cost` of a quota for each retry, and this policy one retry of its budget. So a
//! quota is restated as the number of retries that it pays for: `quota / cost`, rounded down. The
//! cases have no jitter, that is, each delay is the whole exponential bound, which `random = 1`
//! gives.
//!
//! The cases, or their parts, that do not apply:
//!
//! - *A success returns the cost of the last retry to the quota.* Here a success returns nothing.
//!   A charge ends after ten seconds, and each call adds `ratio` retries.
//! - *Throttling costs 5 of the quota instead of 14, and its first delay is 1 s instead of 50 ms.*
//!   A throttled response holds the whole target, for at least its Retry-After, and calls that are
//!   held are free of the budget (`throttled_calls_are_held_and_free_of_the_budget`).
//! - *`x-amz-retry-after` is the delay itself, between the backoff and the backoff plus 5 s.*
//!   Retry-After is a lower bound of any length here, and the jitter is added to it. The case of an
//!   invalid header applies: it equals a failure without one.
//! - *Long-polling operations sleep for a backoff before they report that the quota is used up.* A
//!   call that gives up fails at once. The cases in which AWS does not sleep either apply.

use std::time::{Duration, Instant};

use tidegate_config::RetryConfig;
use tidegate_policy::budget::RetryBudget;
use tidegate_policy::retry::RetryPath;
use tidegate_policy::retry::{FailedAttempt, GiveUpReason, NextStep, decide};

/// What follows a failed attempt, and the retries that are left in the budget then.
type Expected = (Result<u64, GiveUpReason>, u32);

const ATTEMPTS: GiveUpReason = GiveUpReason::Attempts;
const BUDGET: GiveUpReason = GiveUpReason::Budget;

struct Case {
    name: &'static str,
    attempts: u32,
    /// AWS's quota before the call, and its price of a retry.
    quota: u32,
    cost: u32,
    base_ms: u64,
    max_ms: u64,
    /// For each failed attempt in order: the delay in milliseconds or the reason to give up, and
    /// AWS's quota after it.
    failures: &'static [Expected],
}

const CASES: [Case; 14] = [
    Case {
        name: "two failures, then a success",
        attempts: 3,
        quota: 500,
        cost: 5,
        base_ms: 1000,
        max_ms: 20_000,
        failures: &[(Ok(1000), 495), (Ok(2000), 490)],
    },
    Case {
        name: "the last attempt fails",
        attempts: 3,
        quota: 500,
        cost: 5,
        base_ms: 1000,
        max_ms: 20_000,
        failures: &[(Ok(1000), 495), (Ok(2000), 490), (Err(ATTEMPTS), 490)],
    },
    Case {
        name: "the quota pays for one retry",
        attempts: 3,
        quota: 5,
        cost: 5,
        base_ms: 1000,
        max_ms: 20_000,
        failures: &[(Ok(1000), 0), (Err(BUDGET), 0)],
    },
    Case {
        name: "the quota is empty",
        attempts: 3,
        quota: 0,
        cost: 5,
        base_ms: 1000,
        max_ms: 20_000,
        failures: &[(Err(BUDGET), 0)],
    },
    Case {
        name: "delays double",
        attempts: 5,
        quota: 500,
        cost: 5,
        base_ms: 1000,
        max_ms: 20_000,
        failures: &[(Ok(1000), 495), (Ok(2000), 490), (Ok(4000), 485), (Ok(8000), 480), (Err(ATTEMPTS), 480)],
    },
    Case {
        name: "delays are at most the maximum",
        attempts: 5,
        quota: 500,
        cost: 5,
        base_ms: 1000,
        max_ms: 3000,
        failures: &[(Ok(1000), 495), (Ok(2000), 490), (Ok(3000), 485), (Ok(3000), 480), (Err(ATTEMPTS), 480)],
    },
    Case {
        name: "2026: two failures, then a success",
        attempts: 3,
        quota: 500,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 486), (Ok(100), 472)],
    },
    Case {
        name: "2026: the last attempt fails",
        attempts: 3,
        quota: 500,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 486), (Ok(100), 472), (Err(ATTEMPTS), 472)],
    },
    Case {
        name: "2026: the quota pays for one retry",
        attempts: 3,
        quota: 14,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 0), (Err(BUDGET), 0)],
    },
    Case {
        name: "2026: the quota is empty",
        attempts: 3,
        quota: 0,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Err(BUDGET), 0)],
    },
    Case {
        name: "2026: delays double",
        attempts: 5,
        quota: 500,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 486), (Ok(100), 472), (Ok(200), 458), (Ok(400), 444), (Err(ATTEMPTS), 444)],
    },
    Case {
        name: "2026: delays are at most the maximum",
        attempts: 5,
        quota: 500,
        cost: 14,
        base_ms: 50,
        max_ms: 200,
        failures: &[(Ok(50), 486), (Ok(100), 472), (Ok(200), 458), (Ok(200), 444), (Err(ATTEMPTS), 444)],
    },
    Case {
        name: "2026: the rest of the quota does not pay for a retry",
        attempts: 5,
        quota: 20,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 6), (Err(BUDGET), 6)],
    },
    Case {
        name: "2026: long polling, the last attempt fails without a delay",
        attempts: 2,
        quota: 500,
        cost: 14,
        base_ms: 50,
        max_ms: 20_000,
        failures: &[(Ok(50), 486), (Err(ATTEMPTS), 486)],
    },
];

/// A retryable failure of the `attempts`-th attempt of a call.
fn failure(attempts: u32) -> FailedAttempt {
    FailedAttempt {
        retryable: true,
        never_executed: false,
        repeatable: true,
        retry_after: None,
        retry_path: RetryPath::Backoff,
        attempts,
        left: Duration::from_secs(600),
    }
}

/// Decides about a failure. The delay is the whole exponential bound, rounded to a microsecond,
/// because the bounds are computed as binary fractions of a second.
fn next(config: &RetryConfig, budget: &mut RetryBudget, now: Instant, failure: FailedAttempt) -> NextStep {
    match decide(config, failure, || budget.withdraw(now).is_some(), 1.0) {
        NextStep::Backoff(delay) => {
            NextStep::Backoff(Duration::from_micros((delay.as_secs_f64() * 1e6).round() as u64))
        }
        other => other,
    }
}

#[allow(clippy::disallowed_methods, reason = "all times of a test are relative to its start")]
fn epoch() -> Instant {
    Instant::now()
}

fn config(attempts: u32, base_ms: u64, max_ms: u64) -> RetryConfig {
    let (base, max) = (Duration::from_millis(base_ms), Duration::from_millis(max_ms));
    RetryConfig { attempts, base, max, ..RetryConfig::default() }
}

#[test]
fn attempts_quota_and_backoff_are_those_of_the_standard_mode() {
    for Case { name, attempts, quota, cost, base_ms, max_ms, failures } in CASES {
        let now = epoch();
        let config = config(attempts, base_ms, max_ms);
        let mut budget = RetryBudget::new(0.0, quota / cost, now);
        for (attempt, (expected, quota)) in (1..).zip(failures) {
            let expected = match expected {
                Ok(delay) => NextStep::Backoff(Duration::from_millis(*delay)),
                Err(reason) => NextStep::GiveUp(*reason),
            };
            assert_eq!(
                next(&config, &mut budget, now, failure(attempt)),
                expected,
                "{name}: attempt {attempt}"
            );
            assert_eq!(budget.balance(now), f64::from(quota / cost), "{name}: attempt {attempt}");
        }
    }
}

#[test]
fn calls_of_all_threads_share_the_quota() {
    let now = epoch();
    let config = config(5, 50, 20_000);
    let mut budget = RetryBudget::new(0.0, 500 / 14, now);
    // One call fails twice and another once, in turns. AWS's final quota is 486, because the last
    // success of each call returned 14.
    for attempt in [1, 1, 2] {
        assert!(matches!(next(&config, &mut budget, now, failure(attempt)), NextStep::Backoff(_)));
    }
    assert_eq!(budget.balance(now), f64::from(458 / 14));
}

#[test]
fn the_quota_recovers_with_time_and_calls_instead_of_successes() {
    let now = epoch();
    let config = config(5, 50, 20_000);
    let mut budget = RetryBudget::new(0.5, 30 / 14, now);
    for attempt in [1, 2] {
        assert!(matches!(next(&config, &mut budget, now, failure(attempt)), NextStep::Backoff(_)));
    }
    assert_eq!(next(&config, &mut budget, now, failure(3)), NextStep::GiveUp(BUDGET));
    budget.deposit(now);
    budget.deposit(now);
    assert_eq!(budget.balance(now), 1.0, "two calls pay for one retry");
    assert_eq!(budget.balance(now + Duration::from_secs(10)), f64::from(30 / 14), "all charges have ended");
}

#[test]
fn failures_that_are_not_retryable_have_no_delay() {
    let now = epoch();
    let mut budget = RetryBudget::new(0.0, 500 / 14, now);
    let not_found = FailedAttempt { retryable: false, ..failure(1) };
    let next = next(&config(2, 50, 20_000), &mut budget, now, not_found);
    assert_eq!(next, NextStep::GiveUp(GiveUpReason::Final));
    assert_eq!(budget.balance(now), f64::from(500 / 14));
}

#[test]
fn throttled_calls_are_held_and_free_of_the_budget() {
    let now = epoch();
    let mut budget = RetryBudget::new(0.0, 500 / 14, now);
    let throttled = FailedAttempt {
        retry_path: RetryPath::AfterCoolDown,
        retry_after: Some(Duration::from_secs(10)),
        ..failure(1)
    };
    assert_eq!(next(&config(3, 50, 20_000), &mut budget, now, throttled), NextStep::Requeue);
    assert_eq!(budget.balance(now), f64::from(500 / 14));
}

#[test]
fn retry_after_is_a_lower_bound_without_a_maximum() {
    let now = epoch();
    let mut budget = RetryBudget::new(0.0, 500 / 14, now);
    for (header, expected) in [(0, 50), (1500, 1550), (10_000, 10_050)] {
        let failed = FailedAttempt { retry_after: Some(Duration::from_millis(header)), ..failure(1) };
        let next = next(&config(3, 50, 20_000), &mut budget, now, failed);
        assert_eq!(next, NextStep::Backoff(Duration::from_millis(expected)), "{header}");
    }
}
