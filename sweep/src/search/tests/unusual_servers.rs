//! Tests of the search with unusual servers and events.

use proptest::prelude::*;

use super::server_models::ServerModel;
use super::simulated_sweep::Play;
use super::table::others;
use crate::observation::{
    AttemptFailure, AttemptObservation, BlockedBy, CallObservation, FailureCause, LimitHint, LoadSample,
    ReportedRates,
};
use crate::search::{Search, SearchAction, SearchSettings};
use crate::search_result::Binding;

fn model(name: &str) -> ServerModel {
    others().into_iter().find(|other| other.0 == name).map(|other| other.1).expect("a model of that name")
}

#[test]
fn total_failure_ends_the_search_early() {
    let played = Play::new(model("everything fails"), 5_001).play(6_000);
    let answer = played.search.answer();
    assert_eq!((answer.cap, answer.binding), (None, None));
    assert!(
        answer.because.contains("fail at the lowest cap too") && answer.because.contains("500"),
        "{}",
        answer.because
    );
    assert!(played.calls < 100, "{}", played.calls);
}

#[test]
fn background_failures_are_not_a_limit() {
    let played = Play::new(model("usl 35, 1 % fails"), 5_001).play(6_000);
    assert_eq!(played.search.answer().binding, Some(Binding::Saturation));
}

#[test]
fn unlimited_server_reports_not_reached() {
    let settings = SearchSettings { max_cap: 64, ..SearchSettings::default() };
    let answer = Play::new(ServerModel { settings, ..model("no limit") }, 5_001).play(6_000).search.answer();
    assert_eq!((answer.cap, answer.binding, answer.open_above), (Some(64), Some(Binding::NotReached), true));
}

#[test]
fn objective_met_only_below_the_start_cap_is_found() {
    // The median time to first token is 0.64 s at cap 3, and 0.76 s at the start cap 4.
    let sweep = |ttft: f64| {
        let settings = SearchSettings { ttft: Some(ttft), ..SearchSettings::default() };
        let server = ServerModel { noise: 0.02, settings, ..ServerModel::usl(0.3, 0.0) };
        Play::new(server, 5_001).play(6_000)
    };
    let answer = sweep(0.7).search.answer();
    assert_eq!((answer.cap, answer.confirmed), (Some(3), true), "{answer:?}");
    let played = sweep(0.1);
    let answer = played.search.answer();
    assert_eq!(answer.cap, None);
    let expected = "not even at cap 1, the lowest cap measured: the median TTFT was 0.40";
    assert!(answer.because.contains(expected), "{}", answer.because);
    assert!(played.calls < 200, "{}", played.calls);
}

#[test]
fn early_stop_gives_a_partial_answer() {
    for calls in [0, 3, 60, 150, 250] {
        let played = Play::new(model("hard 20 under usl 35"), 5_001).play(calls);
        let answer = played.search.answer();
        assert!(!answer.confirmed && !answer.because.is_empty());
        assert!(answer.cap.is_none_or(|cap| cap <= 20), "{answer:?}");
        assert_eq!(answer.cap.is_some(), calls >= 60, "{calls}: {answer:?}");
    }
}

#[test]
fn waits_for_a_server_that_recovers_from_overload() {
    let answer = Play::new(model("closed after 24"), 5_001).play(6_000).search.answer();
    assert_eq!(answer.cap, Some(24));
    assert!(answer.notes.iter().any(|note| note.contains("recover")), "{:?}", answer.notes);
}

#[test]
fn plan_estimates_are_ordered() {
    let (least, likely, most) = Search::new(SearchSettings::default()).remaining_calls();
    assert!(0 < least && least < likely && likely < most && most < 20_000, "{least} {likely} {most}");
}

#[test]
fn rejected_requests_end_the_search_at_once() {
    let mut search = Search::new(SearchSettings::default());
    assert!(matches!(search.next(0.0), SearchAction::Measure { .. }));
    for i in 0..20 {
        let failure = Some(AttemptFailure {
            cause: FailureCause::Request,
            status: Some(400),
            retry_after: None,
            hint: None,
        });
        let at = f64::from(i);
        search.on_attempt(&AttemptObservation {
            sent_at: at,
            ended_at: at,
            position: 1,
            failure,
            rates: ReportedRates::default(),
        });
    }
    assert!(search.is_settled());
    assert_eq!(search.next(30.0), SearchAction::Done);
    assert!(search.answer().because.contains("requests themselves are rejected"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For arbitrary observations in any order, the search does not panic, keeps caps within their
    /// range, and ends.
    #[test]
    fn arbitrary_events_never_break_the_search(seed in any::<u64>(), failing in 0.0..1.0_f64, settings in settings()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut search = Search::new(settings.clone());
        let mut now = 0.0;
        for _ in 0..400 {
            match search.next(now) {
                SearchAction::Done => break,
                SearchAction::Rest { seconds } => {
                    prop_assert!((0.0..=120.0).contains(&seconds));
                    now += seconds;
                }
                SearchAction::Measure { step, cap, .. } => {
                    prop_assert!((settings.min_cap..=settings.max_cap).contains(&cap), "{cap}");
                    for _ in 0..rng.usize(0..120) {
                        if search.is_settled() {
                            break;
                        }
                        now += rng.f64();
                        see(&mut search, &mut rng, now, step, cap, failing);
                    }
                }
            }
            let answer = search.answer();
            if let (Some(cap), Some((low, high))) = (answer.cap, answer.interval) {
                prop_assert!(low <= cap && cap <= high, "{answer:?}");
            }
        }
    }
}

fn settings() -> impl Strategy<Value = SearchSettings> {
    (1..4_usize, 1..20_usize, 1..300_usize, any::<bool>()).prop_map(|(min_cap, start, more, objective)| {
        SearchSettings {
            min_cap,
            start,
            max_cap: min_cap + more,
            ttft: objective.then_some(0.5),
            ..SearchSettings::default()
        }
    })
}

fn see(search: &mut Search, rng: &mut fastrand::Rng, now: f64, step: usize, cap: usize, failing: f64) {
    let causes = [
        FailureCause::Limited,
        FailureCause::Overloaded,
        FailureCause::Server,
        FailureCause::Timeout,
        FailureCause::Request,
    ];
    let hints = [None, Some(LimitHint::Requests), Some(LimitHint::Tokens), Some(LimitHint::Concurrency)];
    let holds = [
        None,
        Some(BlockedBy::Nothing),
        Some(BlockedBy::Tokens),
        Some(BlockedBy::CoolDown),
        Some(BlockedBy::Kv),
    ];
    let failure = (rng.f64() < failing).then(|| AttemptFailure {
        cause: causes[rng.usize(0..causes.len())],
        status: Some(429),
        retry_after: rng.bool().then(|| rng.f64()),
        hint: hints[rng.usize(0..hints.len())],
    });
    let seconds = 5.0 * rng.f64();
    search.on_load_sample(&LoadSample {
        at: now,
        cap,
        in_flight: rng.usize(0..=cap),
        waiting: rng.usize(0..9),
        held_by: holds[rng.usize(0..holds.len())],
        client_cpu: rng.bool().then(|| rng.f64()),
        client_lag: 0.2 * rng.f64(),
        machine_cpu: None,
        engine: None,
        sent: 0,
    });
    search.on_attempt(&AttemptObservation {
        sent_at: now - seconds,
        ended_at: now,
        position: rng.usize(0..=cap + 1),
        failure: failure.clone(),
        rates: ReportedRates::default(),
    });
    search.on_call(&CallObservation {
        work: rng.usize(0..100),
        step: step.saturating_sub(rng.usize(0..2)),
        queued_at: now - seconds,
        admitted_at: now - seconds * rng.f64(),
        ended_at: now,
        slot_seconds: seconds * rng.f64(),
        attempts: rng.u32(0..5),
        ttft: rng.bool().then(|| rng.f64()),
        tpot: None,
        longest_pause: rng.bool().then(|| 3.0 * rng.f64()),
        input_tokens: rng.u64(0..50),
        output_tokens: rng.u64(0..50),
        counted: true,
        failure,
    });
}
