//! Tests of the validity checks.

use super::*;
use crate::observation::{AttemptFailure, FailureCause};
use crate::search_result::Purpose;

fn hold(step: usize) -> SearchAction {
    SearchAction::Measure { step, cap: 10, purpose: Purpose::Ramp }
}

/// Returns the sums of a step of 60 s in which calls waited and `in_flight` of ten slots were
/// in use. `held_by` is what kept the first waiting call from a free slot, or `None` if nothing
/// did.
fn held(in_flight: usize, held_by: Option<BlockedBy>) -> StepSums {
    held_from((0..=60).map(|at| (f64::from(at), held_by)), in_flight)
}

/// Returns the sums of a step like that of [`held`]. `samples` are the times of the load samples in
/// seconds, and what kept the first waiting call from a free slot from then on.
fn held_from(samples: impl IntoIterator<Item = (f64, Option<BlockedBy>)>, in_flight: usize) -> StepSums {
    let mut tally = StepTally::default();
    tally.on_action(&hold(0), 0.0);
    for (at, held_by) in samples {
        tally.on_load_sample(&LoadSample {
            at,
            cap: 10,
            in_flight,
            waiting: 8,
            held_by,
            client_cpu: Some(0.5),
            client_lag: 0.001,
            machine_cpu: None,
            engine: None,
            sent: 0,
        });
    }
    for work in 0..60 {
        tally.on_call(&CallObservation {
            work,
            step: 0,
            queued_at: 0.0,
            admitted_at: 0.0,
            ended_at: 10.0,
            slot_seconds: 10.0,
            attempts: 1,
            ttft: None,
            tpot: None,
            longest_pause: None,
            input_tokens: 10,
            output_tokens: 10,
            counted: true,
            failure: None,
        });
    }
    tally.steps.remove(&0).unwrap()
}

fn step() -> StepResult {
    StepResult {
        step: 0,
        cap: 10,
        purpose: Purpose::Ramp,
        began: 0.0,
        ended: 60.0,
        warm_up: 0,
        calls: 60,
        attempts: 60,
        failures: BTreeMap::new(),
        verdict: StepVerdict::Accepted,
        throughput: None,
        goodput: None,
        latency: Default::default(),
        ttft: Default::default(),
        tpot: Default::default(),
        in_flight: 10.0,
        measured_seconds: 60.0,
        engine: None,
        gap_fraction: 0.0,
        forbidden: 0.0,
    }
}

#[test]
fn free_slots_while_calls_wait_fail_the_work_conserving_check() {
    for (in_flight, held_by, passed) in [
        (10, None, CheckResult::Yes),
        (6, Some(BlockedBy::Nothing), CheckResult::No),
        // A rate limit kept the slots free: this is not a fault, and leaves nothing to check.
        (6, Some(BlockedBy::Tokens), CheckResult::Unknown),
    ] {
        assert_eq!(work_conserving(&[(&step(), &held(in_flight, held_by))]).passed, passed, "{in_flight}");
    }
}

#[test]
fn work_conserving_check_needs_a_twentieth_of_the_step() {
    let (by_rate, by_nothing) = (Some(BlockedBy::Tokens), Some(BlockedBy::Nothing));
    for (gap_s, passed) in [(0.001, CheckResult::Unknown), (1.0, CheckResult::No)] {
        let samples = [(0.0, by_rate), (13.0, by_nothing), (13.0 + gap_s, by_rate)];
        let sums = held_from(samples, 6);
        assert_eq!(work_conserving(&[(&step(), &sums)]).passed, passed, "{gap_s}");
    }
}

#[test]
fn late_rejection_counts_neither_for_the_next_step_nor_as_retried() {
    let mut tally = StepTally::default();
    tally.on_action(&hold(0), 0.0);
    tally.on_action(&hold(1), 10.0);
    let attempt = |sent_at: f64| AttemptObservation {
        sent_at,
        ended_at: 10.2,
        position: 11,
        failure: Some(AttemptFailure {
            cause: FailureCause::Limited,
            status: Some(429),
            retry_after: None,
            hint: None,
        }),
        rates: Default::default(),
    };
    tally.on_attempt(&attempt(9.9));
    tally.on_attempt(&attempt(10.1));
    assert_eq!(tally.totals().1, 2);
    let counted = |step: usize| (tally.steps[&step].attempts, tally.steps[&step].failures);
    assert_eq!((counted(0), counted(1)), ((0, 0), (1, 1)));
}

#[test]
fn work_conserving_check_ignores_steps_rejected_at_once() {
    let rejected = StepResult { calls: 0, verdict: StepVerdict::Rejected("all".into()), ..step() };
    assert_eq!(work_conserving(&[(&rejected, &held(6, None))]).passed, CheckResult::Unknown);
}

#[test]
fn client_check_fails_after_a_machine_stall() {
    for (lag, passed) in [(0.02, CheckResult::Yes), (0.9, CheckResult::No)] {
        let tally =
            StepTally { steps: [(0, StepSums { lag, ..held(10, None) })].into(), ..StepTally::default() };
        assert_eq!(tally.client(&[step()]).passed, passed, "{lag}");
    }
}

#[test]
fn littles_law_check_compares_slots_with_rate_times_time() {
    // 60 calls of 10 s in 60 s are ten in flight.
    assert_eq!(littles_law(&[(&step(), &held(10, None))]).passed, CheckResult::Yes);
    assert_eq!(littles_law(&[(&step(), &held(5, None))]).passed, CheckResult::No);
}

#[test]
fn mix_check_fails_if_the_server_cached_prompts() {
    let sums = held(10, None);
    assert_eq!(mix(&[(&step(), &sums)], 0.0, true).passed, CheckResult::Yes);
    let check = mix(&[(&step(), &sums)], 0.4, true);
    assert!(check.passed == CheckResult::No && check.finding.contains("your own prompts"), "{check:?}");
}
