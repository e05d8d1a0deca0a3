//! What a step tells, and when it has told it.

use super::*;
use crate::seen::RatesTold;

fn watch(cap: usize, floor: usize) -> Watch {
    let task = Task {
        step: 0,
        cap,
        purpose: Purpose::Ramp,
        need: crate::search::needs::RAMP,
        way: Way::Plain,
        floor,
        test: Sprt::new(0.005, 0.03, 0.0125, 0.05),
        prior: (0, 0),
        objective: (None, None),
    };
    Watch::new(task, 0.0)
}

fn pulse(at: f64, cap: usize, in_flight: usize, held_by: Option<HeldBy>) -> Pulse {
    Pulse { at, cap, in_flight, waiting: 8, held_by, client_cpu: None, client_lag: 0.0, engine: None }
}

fn attempt(sent_at: f64, position: usize, failed: bool) -> AttemptSeen {
    let failure =
        failed.then_some(Failure { cause: Cause::Limited, status: Some(429), retry_after: None, hint: None });
    AttemptSeen { sent_at, ended_at: sent_at + 1.0, position, failure, rates: RatesTold::default() }
}

fn call(admitted_at: f64, seconds: f64) -> CallSeen {
    CallSeen {
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

/// Holds `in_flight` of `cap` for a hundred seconds while calls end.
fn held(cap: usize, in_flight: usize, by: Option<HeldBy>) -> Watch {
    let mut watch = watch(cap, 0);
    for tick in 0..1_000 {
        let at = f64::from(tick) / 10.0;
        watch.pulse(&pulse(at, cap, in_flight, by));
        watch.attempt(&attempt(at, in_flight, false));
        watch.call(&call(at - 1.0 - 0.1 * f64::from(tick % 7), 1.0 + 0.1 * f64::from(tick % 7)));
    }
    watch
}

#[test]
fn a_few_failures_of_a_herd_whose_successes_are_still_open_are_no_rejection() {
    let mut watch = watch(128, 64);
    watch.pulse(&pulse(0.0, 128, 128, None));
    watch.attempt(&attempt(0.0, 100, true));
    watch.attempt(&attempt(0.0, 101, true));
    assert!(!watch.is_rejected());
    for position in 102..110 {
        watch.attempt(&attempt(0.0, position, true));
    }
    assert!(watch.is_rejected() && watch.is_settled(100.0));
}

#[test]
fn attempts_and_calls_of_the_step_before_do_not_count() {
    let mut watch = watch(4, 0);
    for _ in 0..10 {
        watch.attempt(&attempt(-1.0, 8, true));
    }
    watch.call(&CallSeen { step: 7, ..call(1.0, 1.0) });
    assert_eq!((watch.all, watch.ended), ((0, 0), 0));
}

#[test]
fn what_is_admitted_before_the_cap_is_full_is_warm_up() {
    let mut watch = watch(4, 0);
    watch.pulse(&pulse(0.0, 4, 4, None));
    watch.call(&call(0.0, 1.0));
    watch.call(&call(0.5, 1.0));
    assert_eq!((watch.warm_up, watch.calls.len()), (1, 1));
}

#[test]
fn a_cap_that_the_client_does_not_hold_is_invalid() {
    let client = held(32, 20, Some(HeldBy::Nothing));
    assert_eq!(client.visit(100.0).ended, Ended::Client);
    assert_eq!(held(21, 20, Some(HeldBy::Nothing)).visit(100.0).ended, Ended::Client, "by a single slot");
    assert_eq!(held(20, 20, None).visit(100.0).ended, Ended::Accepted);
    assert_eq!(held(32, 20, Some(HeldBy::CoolDown)).visit(100.0).ended, Ended::Accepted, "the server's wish");
}

#[test]
fn a_rate_that_holds_calls_back_is_no_fault_of_the_cap() {
    let visit = held(32, 12, Some(HeldBy::Tokens)).visit(100.0);
    assert_eq!((visit.ended, visit.held_by), (Ended::Rate, Some(HeldBy::Tokens)));
}

#[test]
fn credit_that_was_used_up_is_seen_by_positions_that_were_taken_before() {
    let mut spent = held(32, 32, None);
    for _ in 0..60 {
        spent.attempt(&attempt(101.0, 30, true));
    }
    assert_eq!(spent.visit(102.0).spent, Some(101.0));
    let mut limit = watch(32, 16);
    limit.pulse(&pulse(0.0, 32, 32, None));
    (25..33).for_each(|position| limit.attempt(&attempt(0.0, position, true)));
    assert_eq!(limit.visit(1.0).spent, None);
    assert_eq!(limit.visit(1.0).edge.map(|edge| edge.at), Some(24));
}

#[test]
fn refused_requests_end_a_step() {
    let mut watch = watch(4, 0);
    for _ in 0..REFUSED {
        let refused = Failure { cause: Cause::Request, status: Some(404), retry_after: None, hint: None };
        watch.attempt(&AttemptSeen { failure: Some(refused), ..attempt(0.0, 1, false) });
    }
    assert!(watch.is_settled(0.0) && !watch.is_rejected());
}
