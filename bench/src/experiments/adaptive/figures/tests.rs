//! Tests of the figures of a run: which calls are counted, and when a limit counts as settled.

use super::*;
use crate::experiments::adaptive::prepared_scenario::{Phase, Server, TERMS};
use crate::experiments::adaptive::scenarios::Scenario;
use crate::experiments::adaptive::upstream::{Change, FirstToken};
use crate::experiments::adaptive::workload::{Habits, Mix, Part};
use crate::trace_lengths::Work;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a prepared scenario with two phases of a minute each, at a constant load.
fn prepared() -> PreparedScenario {
    let phase = Phase { seconds: 60, load: 1.0, habits: Habits::PLAIN, change: Change::No };
    let scenario = Scenario {
        name: "two phases",
        held_out: false,
        server: Server::Hosted { at_once: 10, rate: None, first_token: FirstToken::QUICK },
        mix: Mix::Lengths { prompt: (100.0, 0.5), output: (100.0, 0.5) },
        terms: TERMS,
        phases: vec![phase; 2],
    };
    PreparedScenario::with_capacity(scenario, Part::First, 1.0).unwrap()
}

/// Returns the figures of `calls`. Each call has its arrival time since the start of the run, its
/// outcome, and the time from its arrival to its first token (`None` without a token).
fn judged(calls: &[(Duration, CallOutcome, Option<Duration>)]) -> Figures {
    let work = Work { prompt: 100, output: 100 };
    let inputs = RunInputs {
        seed: 1,
        terms: TERMS,
        arrivals: calls
            .iter()
            .map(|(at, ..)| Arrival { at: *at, work, streams: true, leaves: None })
            .collect(),
        changes: Vec::new(),
        budget: None,
        expected_output: 100,
        until: s(120),
    };
    let result = |(at, how, took): &(Duration, CallOutcome, Option<Duration>)| CallResult {
        how: *how,
        sent: Some(*at),
        first_token: took.map(|took| *at + took),
    };
    let played = RunResult {
        results: calls.iter().map(result).collect(),
        seconds: Vec::new(),
        attempts: calls.len() as u64,
        rejected: 0,
        notes: Vec::new(),
    };
    let oracle = Oracle { limits: vec![10, 10], bands: vec![(9, 11), (9, 11)] };
    Figures::of(&prepared(), &inputs, &oracle, &played)
}

#[test]
fn call_that_timed_out_across_a_step_counts_as_late_before_it() {
    let figures = judged(&[(s(30), CallOutcome::Served, Some(s(1))), (s(45), CallOutcome::TimedOut, None)]);
    assert_eq!(figures.sent, Share { met: 1, of: 2 });
    assert!((figures.ttft_p99_s - PATIENCE.as_secs_f64()).abs() < 0.5, "{figures:?}");
    // Late before the step, answered after it.
    assert_eq!(judged(&[(s(50), CallOutcome::Served, Some(s(12)))]).sent, Share { met: 0, of: 1 });
}

#[test]
fn step_excuses_open_calls_and_calls_soon_after() {
    let open = [
        (s(59), CallOutcome::Served, Some(s(5))),
        (s(59), CallOutcome::TimedOut, None),
        (s(59), CallOutcome::Refused, None),
    ];
    let soon = [(s(5), CallOutcome::Served, Some(s(3))), (s(69), CallOutcome::TimedOut, None)];
    let none = Share { met: 0, of: 0 };
    for calls in [&open[..], &soon] {
        let figures = judged(calls);
        assert_eq!((figures.sent, figures.asked), (none, none));
    }
    assert_eq!(judged(&[(s(70), CallOutcome::TimedOut, None)]).sent, Share { met: 0, of: 1 });
}

#[test]
fn rejected_calls_count_as_missed_and_abandoned_ones_do_not() {
    let figures = judged(&[
        (s(20), CallOutcome::Served, Some(s(1))),
        (s(20), CallOutcome::TurnedAway, None),
        (s(20), CallOutcome::Broken, None),
        (s(20), CallOutcome::Refused, None),
        (s(20), CallOutcome::Left, None),
    ]);
    assert_eq!(figures.sent, Share { met: 1, of: 3 });
    assert_eq!(figures.asked, Share { met: 1, of: 4 });
}

fn seconds(limits: &[(usize, usize)]) -> Vec<Second> {
    let second = |limit| Second {
        limit,
        bound: 1,
        in_flight: limit,
        awaiting: 0,
        waiting: 1,
        held: false,
        pressed: true,
    };
    limits.iter().flat_map(|(limit, times)| vec![second(*limit); *times]).collect()
}

#[test]
fn limit_that_crosses_the_band_has_not_settled() {
    assert_eq!(settled(&seconds(&[(2, 10), (20, 15), (2, 30)]), (20, 20)), None);
    assert_eq!(settled(&seconds(&[(2, 10), (20, 15), (2, 10), (20, 30), (2, 9)]), (20, 20)), Some(35.0));
    // To the end of the phase.
    assert_eq!(settled(&seconds(&[(2, 10), (20, 8)]), (20, 20)), Some(10.0));
}

#[test]
fn floor_is_judged_by_the_limit_in_force() {
    let held = |held| {
        seconds(&[(20, 15)]).into_iter().map(move |s| Second { in_flight: 1, held, ..s }).collect::<Vec<_>>()
    };
    let watched = |seconds: &[Second], band| {
        let mut figures = Figures::default();
        figures.watch(seconds, band);
        (figures.at_floor_s, figures.one_at_a_time_s)
    };
    assert_eq!(watched(&held(false), (20, 20)), (5.0, 5.0));
    assert_eq!(watched(&held(true), (20, 20)), (0.0, 0.0), "the provider holds");
    assert_eq!(watched(&held(false), (1, 4)), (0.0, 5.0), "one is as good");
}
