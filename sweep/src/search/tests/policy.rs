//! Tests of single decisions of the policy, from summaries of steps.

use crate::observation::{AttemptFailure, FailureCause};
use crate::search::SearchSettings;
use crate::search::answer;
use crate::search::next_step::{NextStep, Phase, Policy};
use crate::search::rate_limited::RateLimited;
use crate::search::service_time::ServiceTime;
use crate::search::step_monitor::StepMode;
use crate::search::step_summary::{StepEnd, StepSummary};
use crate::search_result::Purpose;

/// Returns the summary of a plain step with 40 calls, all answered, at `rate` calls per second.
fn step(cap: usize, rate: f64, ended: StepEnd) -> StepSummary {
    let mut service = ServiceTime::default();
    (0..40).for_each(|_| service.add(100.0, cap as f64 / rate));
    StepSummary {
        cap,
        began: 0.0,
        ended_at: 10.0,
        ended,
        mode: StepMode::Plain,
        credit_exhausted_at: None,
        service,
        in_flight: cap as f64,
        met: 40,
        answered: 40,
        attempts: 40,
        failed: 0,
        above_floor: (0, 40),
        edge: None,
        held_by: None,
        hint: None,
        failure: None,
        pauses: Vec::new(),
        preemptions: None,
        engine: None,
    }
}

#[test]
fn rate_limit_is_not_gone_while_the_server_accepts_more_than_it_reports() {
    let settings = SearchSettings::default();
    // The drain step accepts 1,200 requests per minute, whose credit may last longer than the step.
    for (reported, applies) in [(Some(600.0), true), (Some(1_500.0), false), (None, false)] {
        let mut policy = Policy::new();
        policy.evidence.rate_history.reported_rpm = reported;
        policy.phase = Phase::RateLimited(RateLimited::new(&step(8, 20.0, StepEnd::Rate), 0.0));
        let drain = StepSummary { mode: StepMode::Drain { calls: 0 }, ..step(8, 20.0, StepEnd::Accepted) };
        policy.on_step(&settings, drain);
        assert_eq!(matches!(policy.phase, Phase::RateLimited(_)), applies, "{reported:?}");
        let next = policy.next(&settings, 10_000);
        let is_drain = matches!(next, Some(NextStep::Measure { purpose: Purpose::Drain, .. }));
        assert_eq!(is_drain, applies, "{next:?}");
    }
}

#[test]
fn throughput_above_a_reported_rate_is_noted() {
    for (reported, is_noted) in [(Some(600.0), true), (Some(1_500.0), false)] {
        let mut policy = Policy::new();
        policy.evidence.rate_history.reported_rpm = reported;
        policy.on_step(&SearchSettings::default(), step(8, 20.0, StepEnd::Accepted));
        let answer = answer::build(&policy, &SearchSettings::default(), &[]);
        let expected = "1200 requests per minute, but its response headers report a limit of 600";
        assert_eq!(answer.notes.iter().any(|note| note.contains(expected)), is_noted, "{answer:?}");
    }
}

#[test]
fn cap_under_a_rate_limit_leaves_at_most_a_tenth_unused() {
    let state = RateLimited::new(&step(8, 20.0, StepEnd::Rate), 0.0);
    for (sustained, cap) in [(1.05, 1), (1.28, 2), (2.28, 3), (3.28, 3), (12.28, 12), (12.32, 13)] {
        let rounded =
            Policy::new().rounded_cap(&SearchSettings::default(), &state, sustained as usize, sustained);
        assert_eq!(rounded, cap, "{sustained}");
    }
}

#[test]
fn answer_is_confirmed_only_by_valid_steps() {
    let settings = SearchSettings::default();
    for (ended, confirmed) in [(StepEnd::Accepted, true), (StepEnd::Client, false), (StepEnd::Rate, false)] {
        let mut policy = Policy::new();
        for (cap, rate) in [(4, 12.0), (8, 24.0), (16, 24.0)] {
            policy.evidence.push_summary(step(cap, rate, StepEnd::Accepted));
        }
        policy.evidence.good = Some(16);
        policy.phase = Phase::Confirm { at: 4, answer: 8, above: Some(9), since: 3 };
        for _ in 0..2 {
            policy.evidence.push_summary(step(8, 24.0, ended));
            policy.evidence.push_summary(step(9, 24.0, StepEnd::Accepted));
        }
        let next = policy.next(&settings, 10_000);
        assert_eq!(policy.confirmed, confirmed, "{ended:?}");
        // A step that was not valid is repeated.
        let repeats = matches!(next, Some(NextStep::Measure { cap: 8, purpose: Purpose::Confirm, .. }));
        assert_eq!(repeats, !confirmed, "{next:?}");
    }
}

#[test]
fn requests_rejected_at_a_higher_cap_are_noted() {
    let settings = SearchSettings::default();
    let mut policy = Policy::new();
    policy.on_step(&settings, step(8, 24.0, StepEnd::Accepted));
    let failure =
        AttemptFailure { cause: FailureCause::Request, status: Some(400), retry_after: None, hint: None };
    policy.on_step(
        &settings,
        StepSummary {
            answered: 0,
            attempts: 0,
            failure: Some(failure),
            ..step(16, 24.0, StepEnd::Undecided)
        },
    );
    assert_eq!(policy.next(&settings, 10_000), None);
    let answer = answer::build(&policy, &settings, &[]);
    assert_eq!((answer.cap, answer.confirmed), (Some(8), false));
    let expected = "The server rejected the requests at cap 16 with a 400";
    assert!(answer.notes.iter().any(|note| note.starts_with(expected)), "{answer:?}");
    assert!(!answer.because.contains("tried"), "{}", answer.because);
}
