//! Tests of the results of whole sweeps: the answer, the caps in force, the requests that are sent,
//! and the files that are written.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Request, Response};
use serde_json::Value;
use tidegate::config::TargetConfig;
use tidegate_sim::engine::EngineConfig;
use tidegate_sim::{Faults, SimConfig, Simulator};
use tidegate_sweep::sweep_outcome::CheckResult;
use tidegate_sweep::{Binding, Lengths, MixOptions, StepVerdict, Sweep, SweepEnd, SweepOptions};

use crate::upstream::{Upstream, json_response};
use crate::{Directory, options, run, run_paused_seeded, sweep};

fn limited(limit: usize) -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(limit), ..Faults::default() })
}

#[test]
fn finds_a_limit_of_ten_and_leaves_nothing_in_flight() {
    let upstream = limited(10);
    let outcome = sweep(options(), &upstream);
    assert_eq!((outcome.ended, outcome.answer.cap), (SweepEnd::Found, Some(10)), "{:?}", outcome.answer);
    assert_eq!(outcome.answer.binding, Some(Binding::ConcurrencyLimit));
    assert!(outcome.lines.contains("cap = 10"), "{}", outcome.lines);
    let stats = upstream.simulator().stats();
    assert_eq!((upstream.log.open(), stats.in_flight), (0, 0));
    assert_eq!(outcome.spend.attempts, upstream.log.requests());
    assert!(
        outcome.spend.calls <= outcome.spend.attempts && outcome.spend.calls < 1_500,
        "{:?}",
        outcome.spend
    );
}

#[test]
fn cool_down_recovery_does_not_affect_the_answer() {
    // Without waiting for the recovery, the answers are 16 and 21.
    for limit in [17, 24] {
        let mix = MixOptions::Synthetic {
            input: Lengths { mean: 40, spread: 0.6 },
            output: Lengths { mean: 24, spread: 0.6 },
        };
        let outcome = sweep(SweepOptions { mix, ..options() }, &limited(limit));
        assert_eq!(outcome.answer.cap, Some(limit), "{:?}", outcome.answer);
    }
}

#[test]
fn exact_output_needs_an_output_limit_in_each_request() {
    let directory = Directory::new("exact");
    std::fs::create_dir_all(&directory.0).unwrap();
    let path = directory.0.join("prompts.jsonl");
    std::fs::write(&path, "{\"messages\": [], \"max_tokens\": 7}\n{\"messages\": []}\n").unwrap();
    let new = |output| {
        let mix = MixOptions::Lines { path: path.clone(), output };
        Sweep::new(SweepOptions { mix, exact_output: true, ..options() })
    };
    let error = new(None).unwrap_err().to_string();
    assert!(error.contains("request 2 of the file") && error.contains("--exact-output"), "{error}");
    assert!(new(Some(9)).is_ok());
}

#[test]
fn responses_without_a_stream_meet_no_objective_for_the_first_token() {
    let answer = r#"{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}}"#;
    let upstream = Upstream::scripted(Faults::default(), move |_, _| json_response(200, answer));
    let mut options = options();
    options.search.ttft = Some(0.5);
    let outcome = sweep(options, &upstream);
    let because = outcome.answer.because;
    assert_eq!(outcome.answer.cap, None, "{because}");
    let expected = "not even at cap 1, the lowest cap measured: the TTFT is unknown, because no response";
    assert!(because.contains(expected), "{because}");
}

#[test]
fn sweeps_are_deterministic() {
    let [one, two] = [(); 2].map(|()| sweep(options(), &limited(10)));
    assert_eq!(one, two);
}

/// A gate spares the memory of a vLLM server on this machine, but a sweep measures it.
#[test]
fn calls_fill_the_memory_of_a_local_engine() {
    // The simulator's answers do not identify vLLM. The second call is the first one of the gate.
    let answer = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}],"prompt_token_ids":null}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "\n\ndata: [DONE]\n\n"
    );
    let script = move |nth: usize, _: &Request<Bytes>| {
        let response = Response::builder().header("content-type", "text/event-stream");
        (nth == 1).then(|| response.body(Bytes::from_static(answer.as_bytes())).unwrap())
    };
    let engine = EngineConfig { num_blocks: 60, max_model_len: 400, ..EngineConfig::default() };
    let config = SimConfig { workers: 1, engine, ..SimConfig::calibrated() };
    let lengths = |mean| Lengths { mean, spread: 0.3 };
    let options = SweepOptions {
        url: "http://localhost:8000".to_owned(),
        mix: MixOptions::Synthetic { input: lengths(40), output: lengths(100) },
        engine_metrics: true,
        ..options()
    };
    // Some servers are configured with the size of their memory.
    let target = TargetConfig { kv_tokens: Some(960), ..TargetConfig::new("local") };
    for target in [None, Some(target)] {
        let upstream = Upstream::over(Simulator::new(config.clone()).unwrap(), script);
        let sweep = Sweep::new(options.clone()).unwrap();
        let sweep = target.into_iter().fold(sweep, |sweep, target| sweep.target(target).unwrap());
        let outcome = run_paused_seeded(run(sweep, &upstream)).unwrap();
        for step in &outcome.steps {
            assert!(step.in_flight > 0.95 * step.cap as f64, "{} of {} slots", step.in_flight, step.cap);
        }
        assert_eq!(outcome.answer.binding, Some(Binding::KvCliff), "{}", outcome.answer.because);
    }
}

#[test]
fn cap_is_respected_and_filled() {
    let upstream = limited(1_000);
    let outcome = sweep(options(), &upstream);
    assert_eq!(upstream.log.max_open.load(Ordering::SeqCst), 32);
    assert_eq!(outcome.answer.binding, Some(Binding::NotReached), "{:?}", outcome.answer);
    for check in &outcome.checks {
        assert_ne!(check.passed, CheckResult::No, "{check:?}");
    }
    for step in outcome.steps.iter().filter(|step| step.verdict == StepVerdict::Accepted) {
        assert!(step.in_flight > 0.97 * step.cap as f64, "{step:?}");
    }
}

#[test]
fn every_step_sends_the_same_work() {
    let upstream = limited(1_000);
    sweep(options(), &upstream);
    // Prompt texts after the nonce, by the step and the index in the nonce.
    let mut asked: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for body in upstream.log.bodies.lock().iter().skip(1) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let prompt = body["messages"][0]["content"].as_str().unwrap();
        let (nonce, rest) = prompt.split_once(']').unwrap();
        let place = nonce.rsplit('-').next().unwrap();
        *asked.entry(place.to_owned()).or_default().entry(rest.to_owned()).or_default() += 1;
    }
    assert!(asked.values().all(|texts| texts.len() == 1), "an index has one text");
    assert!(asked["0"].values().sum::<usize>() >= 3, "each step begins with the first index");
}

#[test]
fn repeated_step_continues_in_the_mix_with_an_objective() {
    let directory = Directory::new("mix");
    let mut options = options();
    options.search.ttft = Some(60.0);
    let sweep = tidegate_sweep::Sweep::new(options).unwrap().keep(&directory.0);
    run_paused_seeded(run(sweep, &limited(1_000))).unwrap();
    let log = std::fs::read_to_string(directory.0.join(tidegate_sweep::CALL_LOG_FILE)).unwrap();
    // The lowest and the highest index of each step, by cap.
    let mut steps: BTreeMap<u64, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    for line in log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let [cap, step, work] = ["cap", "step", "work"].map(|key| line[key].as_u64().unwrap());
        let (low, high) = steps.entry(cap).or_default().entry(step).or_insert((work, work));
        (*low, *high) = ((*low).min(work), (*high).max(work));
    }
    let mut repeated = 0;
    for (cap, steps) in steps {
        let ranges: Vec<(u64, u64)> = steps.into_values().collect();
        assert_eq!(ranges[0].0, 0, "cap {cap}");
        for pair in ranges.windows(2) {
            // Calls that had not ended at the end of a step are sent again.
            assert!((pair[0].0 + 1..=pair[0].1 + 1).contains(&pair[1].0), "cap {cap}: {pair:?}");
            repeated += 1;
        }
    }
    assert!(repeated >= 2, "{repeated}");
}

#[test]
fn token_rate_is_recognized_by_the_gates_reason() {
    let faults = serde_json::json!({"token_rate": {"tokens_per_minute": 60_000.0, "burst_s": 5.0}});
    let upstream = Upstream::new(serde_json::from_value(faults).unwrap());
    let directory = Directory::new("rate");
    let sweep = tidegate_sweep::Sweep::new(options()).unwrap().keep(&directory.0);
    run_paused_seeded(run(sweep, &upstream)).unwrap();
    let journal = std::fs::read_to_string(directory.0.join("journal.jsonl")).unwrap();
    // The server's headers make the gate hold calls back, and the search observes that.
    assert!(journal.contains(r#""held_by":"tokens""#));
    assert!(journal.contains(r#""limit":60000.0"#));
}

#[test]
fn every_call_is_logged_with_timestamps() {
    let directory = Directory::new("log");
    let upstream = limited(10);
    let sweep = tidegate_sweep::Sweep::new(options()).unwrap().keep(&directory.0);
    let outcome = run_paused_seeded(run(sweep, &upstream)).unwrap();
    let log = std::fs::read_to_string(directory.0.join(tidegate_sweep::CALL_LOG_FILE)).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // All calls except the preflight call.
    assert_eq!(lines.len(), outcome.spend.calls - 1);
    for line in &lines {
        let at = |key: &str| line[key].as_f64().unwrap();
        assert!(at("queued_at") <= at("admitted_at") && at("admitted_at") <= at("released_at"), "{line}");
        assert!(line["in_flight"].as_u64().unwrap() <= 32, "{line}");
    }
    let retried = lines.iter().filter(|line| line["retries"]["limited"].as_u64() > Some(0)).count();
    assert!(retried > 0);
    assert!(!outcome.series.is_empty());
}
