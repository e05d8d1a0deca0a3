//! Tests the search in the main scenarios with a few seeds each: checks the binding limit, the cap
//! and its interval. The ignored test in `table` prints the figures over many seeds.

use super::server_models::{Bucket, ServerModel};
use super::simulated_sweep::Play;
use super::table::scenarios;
use crate::search::SearchSettings;
use crate::search_result::{Binding, SweepAnswer};

const SEEDS: std::ops::Range<u64> = 5_001..5_004;

fn answer(model: &ServerModel, seed: u64) -> (SweepAnswer, usize) {
    let played = Play::new(model.clone(), seed).play(6_000);
    (played.search.answer(), played.calls)
}

#[test]
fn finds_and_names_limits_and_rates() {
    for (name, model, class) in scenarios() {
        if matches!(class, Binding::Saturation | Binding::RequestRate) || name.contains("quick rises") {
            continue;
        }
        let (truth, throughput, highest) = model.truth();
        for seed in SEEDS {
            let (answer, calls) = answer(&model, seed);
            let cap = answer.cap.unwrap_or_default();
            assert_eq!(answer.binding, Some(class), "{name}, {seed}: {}", answer.because);
            assert!((1..=highest).contains(&cap), "{name}, {seed}: {cap} of {highest}");
            assert!(throughput(cap) >= 0.9 * throughput(truth), "{name}, {seed}: {cap} instead of {truth}");
            assert!(answer.interval.is_some_and(|(low, high)| low <= cap && cap <= high), "{name}, {seed}");
            assert!(calls < 3_000, "{name}, {seed}: {calls} calls");
            assert!(class != Binding::Client || !answer.confirmed, "{name}, {seed}: {answer:?}");
            // Only a server that does not name the limited rate gets both.
            let is_unnamed = name.ends_with("Retry-After") || name.ends_with("bare");
            let rates = (answer.rpm.is_some(), answer.tpm.is_some());
            let is_token_rate = class == Binding::TokenRate;
            assert_eq!(rates, (is_token_rate && is_unnamed, is_token_rate), "{name}, {seed}");
        }
    }
}

#[test]
fn reported_request_rate_is_the_answer_whatever_the_bucket_holds() {
    // Full, the bucket holds the requests of a minute. Above cap 12.2, it is emptied slowly.
    let bucket = Bucket { cap: 12.2, seconds: 60.0, headers: true, retry_after: true, by_tokens: false };
    let model = ServerModel { bucket: Some(bucket), ..ServerModel::usl(0.005, 0.0) };
    for seed in SEEDS {
        let (answer, _) = answer(&model, seed);
        assert_eq!(answer.binding, Some(Binding::RequestRate), "{seed}: {answer:?}");
        assert_eq!((answer.confirmed, answer.tpm), (true, None), "{seed}: {answer:?}");
        assert!(answer.because.contains("requests per minute (its response headers report"), "{answer:?}");
    }
}

#[test]
fn goodput_under_a_rate_limit_counts_calls_within_the_objective() {
    let settings = SearchSettings { ttft: Some(0.42), ..SearchSettings::default() };
    let name = "tokens 12, headers";
    for (_, model, _) in scenarios().into_iter().filter(|scenario| scenario.0 == name) {
        let (answer, _) = answer(&ServerModel { settings: settings.clone(), ..model }, 5_001);
        assert_eq!(answer.binding, Some(Binding::TokenRate), "{answer:?}");
        let value = |estimate: Option<crate::search_result::Estimate>| estimate.map_or(0.0, |it| it.value);
        let share = value(answer.goodput) / value(answer.throughput);
        assert!((0.2..0.8).contains(&share), "{answer:?}");
        let expected = format!("Only {:.0} % of the calls met the objective", 100.0 * share);
        assert!(answer.notes.iter().any(|note| note.starts_with(&expected)), "{answer:?}");
    }
}

#[test]
fn distinguishes_saturation_from_a_limit() {
    let slow_to_change = ["usl 35, as load grows", "usl 35, slow after 50"];
    let played = |name: &str| name.starts_with("usl peak") || slow_to_change.contains(&name);
    for (name, model, _) in scenarios().into_iter().filter(|scenario| played(scenario.0)) {
        let (truth, throughput, _) = model.truth();
        for seed in SEEDS {
            let (answer, _) = answer(&model, seed);
            let cap = answer.cap.unwrap_or_default();
            assert_eq!(answer.binding, Some(Binding::Saturation), "{name}, {seed}: {}", answer.because);
            assert!(
                throughput(cap.max(1)) >= 0.93 * throughput(truth),
                "{name}, {seed}: {cap} instead of {truth}"
            );
        }
    }
}

#[test]
fn limit_of_24_needs_fewer_than_900_calls_and_is_explained() {
    for (name, model, _) in scenarios().into_iter().filter(|scenario| scenario.0 == "hard 24") {
        for seed in SEEDS {
            let (answer, calls) = answer(&model, seed);
            assert_eq!((answer.cap, answer.confirmed), (Some(24), true), "{name}");
            assert!(calls < 900, "{calls}");
            assert_eq!(answer.notes, Vec::<String>::new());
            assert!(
                answer
                    .because
                    .starts_with("The server accepts 24 concurrent calls; of calls sent as the 25th, "),
                "{}",
                answer.because
            );
            assert!(answer.because.ends_with(" got a 429."), "{}", answer.because);
        }
    }
}

#[test]
fn same_events_give_the_same_answer() {
    for (_, model, _) in scenarios().into_iter().take(4) {
        let (one, other) = (answer(&model, 5_001), answer(&model, 5_001));
        assert_eq!(one, other);
    }
}

/// A slow period of 15 s is not taken for a change of the server, whenever the period occurs,
/// because the search measures a slow step again.
#[test]
fn momentary_slowdown_is_not_a_change_of_the_server() {
    for from in (20..300).step_by(20) {
        let from = f64::from(from);
        let model = ServerModel { stumble: Some((from, from + 15.0, 2.0)), ..ServerModel::peak(35.0) };
        let (truth, throughput, _) = model.truth();
        let (answer, calls) = answer(&model, 5_001);
        let cap = answer.cap.unwrap_or(1);
        assert_eq!(answer.binding, Some(Binding::Saturation), "{from}: {}", answer.because);
        assert!(throughput(cap) >= 0.93 * throughput(truth), "{from}: {cap} instead of {truth}");
        assert!(calls < 3_000, "{from}: {calls}");
    }
}

#[test]
fn notes_a_server_whose_limit_grows_with_load() {
    for (name, model, _) in scenarios().into_iter().filter(|scenario| scenario.0 == "24, as load grows") {
        for seed in SEEDS {
            let (answer, _) = answer(&model, seed);
            assert_eq!(answer.cap, Some(24), "{name}");
            assert!(
                answer.notes.iter().any(|note| note.contains("only as the load grows")),
                "{:?}",
                answer.notes
            );
        }
    }
}
