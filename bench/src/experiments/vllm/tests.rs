//! Tests of the load generator and its figures, in virtual time.

use std::time::Duration;

use super::contender::Contender;
use super::engines::{Profile, capacity, engine};
use super::load::{End, Lengths, Load, Plan};
use super::run::Run;
use super::runner::simulate;

const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };

fn run(profile: Profile, contender: Contender, load: Load) -> Run {
    let lasts = Duration::from_secs(60);
    let plan = Plan { load, lengths: LENGTHS, lasts, tail: Duration::from_secs(1), seed: 1 };
    simulate(&engine(profile).unwrap(), Duration::ZERO, contender, &plan).unwrap()
}

fn is_near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.03
}

#[test]
fn capacity_is_the_throughput_of_a_full_batch() {
    let engine = engine(Profile::Queue).unwrap();
    let run = run(Profile::Queue, Contender::cap(24), Load::Closed(24));
    let expected = capacity(&engine, LENGTHS) * LENGTHS.mean_output();
    assert!(is_near(run.tokens_per_second(), expected), "{} for {expected}", run.tokens_per_second());
    assert!(is_near(run.running(), 16.0) && is_near(run.waiting(), 8.0), "{:?}", run.figures());
}

#[test]
fn step_times_are_recognised_from_the_metrics_of_the_server() {
    let mut step = engine(Profile::Queue).unwrap().step;
    for load in [Load::Open(4.0), Load::Closed(16)] {
        let run = run(Profile::Queue, Contender::Stock, load);
        let ratio = run.gap_ratio(&step).unwrap();
        assert!(is_near(ratio, 1.0), "{ratio}");
    }
    step.base_ms = 25.0;
    let ratio = run(Profile::Queue, Contender::Stock, Load::Closed(16)).gap_ratio(&step).unwrap();
    assert!(ratio > 1.1, "{ratio}");
}

#[test]
fn rejected_and_late_calls_are_counted() {
    let wait = Duration::from_millis(100);
    let run = run(Profile::Queue, Contender::fixed(16, wait), Load::Open(20.0));
    assert!(run.count(End::Rejected) > 100.0 && run.count(End::Failed) == 0.0, "{:?}", run.figures());
    let (soon, late) = (Duration::from_millis(50), Duration::from_secs(1));
    assert!(run.goodput(soon) < run.goodput(late) && run.admitted_in_time(soon) < 1.0);
    assert_eq!(run.admitted_in_time(late), 1.0);
}

#[test]
fn small_cache_preempts_without_a_gate() {
    let run = run(Profile::Kv, Contender::Stock, Load::Closed(64));
    assert!(run.preemptions_per_call() > 0.1, "{:?}", run.figures());
    assert!(run.gap_ratio(&engine(Profile::Kv).unwrap().step).is_none());
}
