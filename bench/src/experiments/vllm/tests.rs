//! Tests of the load generator and its figures, in virtual time.

use std::time::Duration;

use super::contender::Contender;
use super::engines::{Profile, capacity, engine};
use super::load::{Burst, End, Lengths, Load, Plan, TenantLoad};
use super::run::Run;
use super::runner::simulate;
use super::tenant_rules::TenantRule;
use super::truth::CHUNKED;

const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };

fn run(profile: Profile, contender: Contender, load: Load) -> Run {
    run_for(Duration::from_secs(60), profile, contender, load)
}

fn run_for(lasts: Duration, profile: Profile, contender: Contender, load: Load) -> Run {
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

#[test]
fn prompts_above_the_step_budget_are_chunked() {
    let engine = engine(Profile::KvPrompts).unwrap();
    let run = |callers, lengths| {
        let plan = Plan::closed(callers, lengths, Duration::from_secs(60), 1);
        simulate(&engine, Duration::ZERO, Contender::Stock, &plan).unwrap()
    };
    // Steps of 256, 256 and 88 prompt tokens.
    let ttft_ms = run(1, Lengths { prompt: (600, 600), ..CHUNKED }).ttft_ms(0.5);
    assert!(is_near(ttft_ms, 3.0 * 30.5 + 600.0 * 0.3), "{ttft_ms}");
    for callers in [4, 16] {
        let run = run(callers, CHUNKED);
        assert!(run.gap_ratio(&engine.step).is_none_or(|ratio| ratio < 1.05), "{:?}", run.figures());
        assert!(run.count(End::Answered) > 30.0, "{:?}", run.figures());
    }
}

#[test]
fn capacity_of_many_sequences_is_bounded_by_the_tokens_of_a_step() {
    let expected = capacity(&engine(Profile::Tenants256).unwrap(), LENGTHS) * LENGTHS.mean_output();
    // All callers begin at once, and an answer takes 24 s, so batches are not all alike.
    let lasts = Duration::from_secs(150);
    let run = run_for(lasts, Profile::Tenants256, Contender::Stock, Load::Closed(300));
    let ratio = run.tokens_per_second() / expected;
    assert!((ratio - 1.0).abs() < 0.06, "{ratio}");
    assert!(run.running() < 250.0 && run.waiting() > 30.0, "{:?}", run.figures());
}

/// Returns the load of three tenants, of which B sends 20 calls per second from 15 s to 30 s.
fn tenants() -> Load {
    let burst = Burst { from: Duration::from_secs(15), to: Duration::from_secs(30), per_second: 20.0 };
    let load = |name, burst| TenantLoad { name, per_second: 2.0, burst };
    Load::Tenants([load("A", None), load("B", Some(burst)), load("C", None)])
}

/// Returns the longest time to first token of the calls of `tenant`.
fn longest_ttft(run: &Run, tenant: &str) -> Duration {
    let calls = run.calls.iter().filter(|call| call.tenant == Some(tenant));
    calls.map(|call| call.ttft.unwrap_or(Duration::MAX)).max().unwrap()
}

#[test]
fn one_tenant_bursts_at_equal_distances() {
    let run = run(Profile::Queue, Contender::Stock, tenants());
    let count = |tenant: &str, from: u64, to: u64| {
        let is_between = |at: Duration| (from..to).contains(&at.as_secs());
        run.calls.iter().filter(|call| call.tenant == Some(tenant) && is_between(call.at)).count()
    };
    assert_eq!(count("B", 15, 30), 300);
    for (tenant, from, to) in [("A", 0, 60), ("C", 0, 60), ("B", 0, 15), ("B", 30, 60)] {
        let expected = 2.0 * (to - from) as f64;
        assert!((count(tenant, from, to) as f64 - expected).abs() < 3.0 * expected.sqrt(), "{tenant}");
    }
    let ratio = run.gap_ratio(&engine(Profile::Queue).unwrap().step).unwrap();
    assert!(is_near(ratio, 1.0), "{ratio}");
}

#[test]
fn bounds_apply_to_the_tenant_that_bursts() {
    let rule = TenantRule::Bounds { in_flight: 3, awaiting: 1 };
    let run = run(Profile::Queue, Contender::Tenants(rule), tenants());
    let of = |tenant: &str, end: End| {
        run.calls.iter().filter(|call| call.tenant == Some(tenant) && call.end == end).count()
    };
    assert!(of("B", End::Rejected) > 50 && of("B", End::Failed) == 0, "{:?}", run.figures());
    assert_eq!([of("A", End::Rejected), of("C", End::Rejected)], [0, 0]);
    assert!(longest_ttft(&run, "A") < Duration::from_millis(500), "{:?}", longest_ttft(&run, "A"));
}

#[test]
fn gate_without_names_delays_all_tenants() {
    let [named, nameless] = [TenantRule::Names, TenantRule::WithoutNames]
        .map(|rule| longest_ttft(&run(Profile::Queue, Contender::Tenants(rule), tenants()), "A"));
    assert!(3 * named < nameless, "{named:?} and {nameless:?}");
}
