//! Tests of when a step ends, and with which summary.

use super::*;
use crate::observation::ReportedRates;
use crate::search::step_summary::StepEnd;

fn monitor(cap: usize, floor: usize) -> StepMonitor {
    let task = StepTask {
        step: 0,
        cap,
        purpose: Purpose::Ramp,
        stopping_rule: crate::search::step_stopping_rules::RAMP,
        mode: StepMode::Plain,
        floor,
        test: Sprt::new(0.005, 0.03, 0.0125, 0.05),
        prior_attempts: (0, 0),
        objective: (None, None),
    };
    StepMonitor::new(task, 0.0)
}

fn sample(at: f64, cap: usize, in_flight: usize, held_by: Option<BlockedBy>) -> LoadSample {
    LoadSample {
        at,
        cap,
        in_flight,
        waiting: 8,
        held_by,
        client_cpu: None,
        client_lag: 0.0,
        machine_cpu: None,
        engine: None,
        sent: 0,
    }
}

fn attempt(sent_at: f64, position: usize, failed: bool) -> AttemptObservation {
    let failure = failed.then_some(AttemptFailure {
        cause: FailureCause::Limited,
        status: Some(429),
        retry_after: None,
        hint: None,
    });
    AttemptObservation {
        sent_at,
        ended_at: sent_at + 1.0,
        position,
        failure,
        rates: ReportedRates::default(),
    }
}

fn call(admitted_at: f64, seconds: f64) -> CallObservation {
    CallObservation {
        work: 0,
        step: 0,
        queued_at: admitted_at,
        admitted_at,
        ended_at: admitted_at + seconds,
        slot_seconds: seconds,
        attempts: 1,
        ttft: None,
        tpot: None,
        longest_pause: None,
        input_tokens: 10,
        output_tokens: (100.0 * seconds) as u64,
        counted: true,
        failure: None,
    }
}

/// Returns a monitor after 100 s of a step in which `in_flight` of `cap` slots were in use,
/// attempts succeeded and calls ended. `by` is what kept waiting calls from the free slots, or
/// `None` if nothing did.
fn held(cap: usize, in_flight: usize, by: Option<BlockedBy>) -> StepMonitor {
    let mut monitor = monitor(cap, 0);
    for tick in 0..1_000 {
        let at = f64::from(tick) / 10.0;
        monitor.on_load_sample(&sample(at, cap, in_flight, by));
        monitor.on_attempt(&attempt(at, in_flight, false));
        monitor.on_call(&call(at - 1.0 - 0.1 * f64::from(tick % 7), 1.0 + 0.1 * f64::from(tick % 7)));
    }
    monitor
}

#[test]
fn early_failures_with_open_calls_do_not_reject_a_step() {
    let mut monitor = monitor(128, 64);
    monitor.on_load_sample(&sample(0.0, 128, 128, None));
    monitor.on_attempt(&attempt(0.0, 100, true));
    monitor.on_attempt(&attempt(0.0, 101, true));
    assert!(!monitor.is_rejected());
    for position in 102..110 {
        monitor.on_attempt(&attempt(0.0, position, true));
    }
    assert!(monitor.is_rejected() && monitor.is_settled(100.0));
}

#[test]
fn earlier_steps_do_not_count() {
    let mut monitor = monitor(4, 0);
    for _ in 0..10 {
        monitor.on_attempt(&attempt(-1.0, 8, true));
    }
    monitor.on_call(&CallObservation { step: 7, ..call(1.0, 1.0) });
    assert_eq!((monitor.attempt_counts, monitor.ended), ((0, 0), 0));
}

#[test]
fn calls_before_the_cap_is_full_are_warm_up() {
    let mut monitor = monitor(4, 0);
    monitor.on_load_sample(&sample(0.0, 4, 4, None));
    monitor.on_call(&call(0.0, 1.0));
    monitor.on_call(&call(0.5, 1.0));
    assert_eq!((monitor.warm_up, monitor.calls.len()), (1, 1));
}

#[test]
fn step_is_invalid_if_the_client_does_not_fill_the_cap() {
    let client = held(32, 20, Some(BlockedBy::Nothing));
    assert_eq!(client.summary(100.0).ended, StepEnd::Client);
    assert_eq!(
        held(21, 20, Some(BlockedBy::Nothing)).summary(100.0).ended,
        StepEnd::Client,
        "by a single slot"
    );
    assert_eq!(held(20, 20, None).summary(100.0).ended, StepEnd::Accepted);
    assert_eq!(
        held(32, 20, Some(BlockedBy::CoolDown)).summary(100.0).ended,
        StepEnd::Accepted,
        "the server's wish"
    );
}

#[test]
fn rate_limited_step_is_not_a_rejection() {
    let summary = held(32, 12, Some(BlockedBy::Tokens)).summary(100.0);
    assert_eq!((summary.ended, summary.held_by), (StepEnd::Rate, Some(BlockedBy::Tokens)));
}

#[test]
fn spent_credit_shows_at_positions_accepted_earlier() {
    let mut bucket = held(32, 32, None);
    for _ in 0..60 {
        bucket.on_attempt(&attempt(101.0, 30, true));
    }
    assert_eq!(bucket.summary(102.0).credit_exhausted_at, Some(101.0));
    let mut limit = monitor(32, 16);
    limit.on_load_sample(&sample(0.0, 32, 32, None));
    (25..33).for_each(|position| limit.on_attempt(&attempt(0.0, position, true)));
    assert_eq!(limit.summary(1.0).credit_exhausted_at, None);
    assert_eq!(limit.summary(1.0).edge.map(|edge| edge.at), Some(24));
}

#[test]
fn rejected_requests_end_a_step() {
    let mut monitor = monitor(4, 0);
    for _ in 0..MIN_REJECTED_REQUESTS {
        let rejection =
            AttemptFailure { cause: FailureCause::Request, status: Some(404), retry_after: None, hint: None };
        monitor.on_attempt(&AttemptObservation { failure: Some(rejection), ..attempt(0.0, 1, false) });
    }
    assert!(monitor.is_settled(0.0) && !monitor.is_rejected());
}
