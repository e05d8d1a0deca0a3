//! Tests with the output of engines in its original format: metrics, lists of models, and errors.

use proptest::prelude::*;

use super::{EngineMetrics, Model, parse_metrics, parse_models};
use crate::request::MAX_MODEL;

use crate::classify::Class;
use crate::{Scanner, classify, classify_event};

const ONE: &[u8] = include_bytes!("fixtures/one_engine.txt");
const MODELS: &[u8] = include_bytes!("fixtures/models.json");

fn metrics_of(running: f64, waiting: f64) -> EngineMetrics {
    EngineMetrics { running, waiting, ..EngineMetrics::default() }
}

#[test]
fn engine_metrics_are_read() {
    let expected = EngineMetrics {
        kv_usage: Some(0.3716450216450217),
        kv_tokens: Some(443_520),
        prefix_queries: Some(2_883_412.0),
        prefix_hits: Some(1_910_256.0),
        prompt_tokens: Some(2_871_990.0),
        shares_prefixes: true,
        ..metrics_of(17.0, 3.0)
    };
    assert_eq!(parse_metrics(ONE), Some(expected));
    // Counters without suffix, and CRLF line endings.
    let bare = String::from_utf8_lossy(ONE).replace("_total{", "{").replace('\n', "\r\n");
    assert_eq!(parse_metrics(bare.as_bytes()), Some(expected));
}

/// The fixture is the output of vLLM 0.33.0 under load with little memory. Histograms were removed.
#[test]
fn metrics_of_a_real_engine_are_read() {
    let expected = EngineMetrics {
        kv_usage: Some(0.0),
        kv_tokens: Some(2_592),
        prefix_queries: Some(33_799.0),
        prefix_hits: Some(32.0),
        prompt_tokens: Some(33_799.0),
        shares_prefixes: true,
        ..metrics_of(0.0, 0.0)
    };
    assert_eq!(parse_metrics(include_bytes!("fixtures/vllm_0_33.txt")), Some(expected));
}

#[test]
fn prefix_sharing_needs_one_engine_with_prefix_caching() {
    let of = |engines: &[&str]| {
        let info = |caches: &&str| {
            format!("vllm:cache_config_info{{block_size=\"16\",{caches}num_gpu_blocks=\"9\"}} 1\n")
        };
        let calls = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n".to_owned();
        parse_metrics((calls + &engines.iter().map(info).collect::<String>()).as_bytes())
            .unwrap()
            .shares_prefixes
    };
    let on = "enable_prefix_caching=\"True\",";
    assert!(of(&[on]));
    for others in [
        &["enable_prefix_caching=\"False\","][..],
        &["enable_prefix_caching=\"None\","],
        &[""],
        &[],
        &[on, on],
    ] {
        assert!(!of(others), "{others:?}");
    }
}

#[test]
fn engines_behind_one_address_are_aggregated() {
    let expected = EngineMetrics {
        kv_usage: Some(0.6),
        kv_tokens: Some(41_000 * 16),
        prefix_queries: Some(1_600.0),
        prefix_hits: Some(816.0),
        prompt_tokens: Some(1_480.0),
        ..metrics_of(42.0, 5.0)
    };
    let seen = parse_metrics(include_bytes!("fixtures/two_engines.txt")).unwrap();
    assert!((seen.kv_usage.unwrap() - 0.6).abs() < 1e-9);
    assert_eq!(EngineMetrics { kv_usage: Some(0.6), ..seen }, expected);
}

#[test]
fn renamed_series_are_not_counted_twice() {
    let seen = parse_metrics(include_bytes!("fixtures/old_names_too.txt")).unwrap();
    let expected = EngineMetrics {
        kv_usage: Some(0.25),
        prefix_queries: Some(100.0),
        prefix_hits: Some(40.0),
        ..metrics_of(2.0, 0.0)
    };
    assert_eq!(seen, expected);
}

#[test]
fn older_and_other_engines_are_read_where_compatible() {
    let v0 = EngineMetrics { kv_usage: Some(0.0625), kv_tokens: Some(9_216 * 16), ..metrics_of(4.0, 1.0) };
    assert_eq!(parse_metrics(include_bytes!("fixtures/v0.txt")), Some(v0));
    let sglang = EngineMetrics { kv_usage: Some(0.28), kv_tokens: Some(471_258), ..metrics_of(8.0, 2.0) };
    assert_eq!(parse_metrics(include_bytes!("fixtures/sglang.txt")), Some(sglang));
    assert_eq!(parse_metrics(include_bytes!("fixtures/another_server.txt")), None);
    assert_eq!(parse_metrics(b"<html>404</html>"), None);
}

#[test]
fn invalid_samples_are_ignored() {
    let base = "vllm:num_requests_running{a=\"}\\\"\",b=\"x\"} 1 1700000000\nvllm:num_requests_waiting 2\n";
    assert_eq!(parse_metrics(base.as_bytes()), Some(metrics_of(1.0, 2.0)));
    for more in [
        "vllm:kv_cache_usage_perc NaN",
        "vllm:kv_cache_usage_perc -1",
        "vllm:kv_cache_usage_perc{engine=\"0} 1",
        "vllm:num_requests_running +Inf",
        "vllm:num_requests_running many",
        "vllm:num_requests_running_by_someone 7",
        "vllm:cache_config_info{num_gpu_blocks=\"None\",block_size=\"16\"} 1",
        "vllm:cache_config_info{num_gpu_blocks=\"99999999999999999999\",block_size=\"16\"} 1",
        "vllm:cache_config_info{num_gpu_blocks=\"9999999999999999999\",block_size=\"16\"} 1",
    ] {
        assert_eq!(parse_metrics(format!("{base}{more}\n").as_bytes()), Some(metrics_of(1.0, 2.0)), "{more}");
    }
    let brimming = format!("{base}vllm:kv_cache_usage_perc 1.2\n");
    assert_eq!(parse_metrics(brimming.as_bytes()).unwrap().kv_usage, Some(1.0));
}

#[test]
fn models_of_a_server_are_read() {
    let base: std::sync::Arc<str> = "meta-llama/Llama-3.1-8B-Instruct".into();
    let expected = [
        Model { name: base.clone(), max_tokens: Some(131_072), parent: None },
        Model { name: "support-lora".into(), max_tokens: None, parent: Some(base) },
    ];
    assert_eq!(parse_models(MODELS).unwrap(), expected);
    assert_eq!(
        parse_models(br#"{"data": [{"id": 7}, "x", {"id": "m", "max_model_len": -1}]}"#).unwrap().len(),
        1
    );
    assert_eq!(parse_models(br#"{"object": "list", "data": []}"#), Some(Vec::new()));
    // Calls can name any of these models, so the list of a replica must not lack one.
    for (length, is_read) in [(MAX_MODEL, true), (MAX_MODEL + 1, false)] {
        let list = format!(r#"{{"data": [{{"id": "{}"}}]}}"#, "m".repeat(length));
        assert_eq!(parse_models(list.as_bytes()).unwrap().len() == 1, is_read, "{length} bytes");
    }
    let forged = r#"{"data": [{"id": "m\n  http://good:1\n    healthy"}, {"id": "\u001b[2J"}]}"#;
    assert_eq!(parse_models(forged.as_bytes()), Some(Vec::new()), "reports list names in lines");
    for other in ["", "[]", "{}", r#"{"data": {}}"#, r#"{"error": {"message": "Unauthorized"}}"#] {
        assert_eq!(parse_models(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn full_engine_is_reported_in_either_format() {
    let body = include_bytes!("fixtures/full.json");
    let (status, headers) = (http::StatusCode::SERVICE_UNAVAILABLE, http::HeaderMap::new());
    let verdict = classify(status, &headers, body, std::time::SystemTime::UNIX_EPOCH);
    assert!(verdict.class == Class::Overloaded && verdict.never_executed && verdict.retryable);
    let mut events = Vec::new();
    Scanner::new().push(include_bytes!("fixtures/full.sse"), |event| events.push(event.data.to_vec()));
    let verdict = classify_event(&events[0]);
    assert!(verdict.class == Class::Overloaded && verdict.never_executed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = (parse_metrics(&bytes), parse_models(&bytes));
    }

    /// Valid metrics and lists of models that are cut off, or into which text is inserted, cause no
    /// panic.
    #[test]
    fn damaged_metrics_do_not_panic(at in 0..ONE.len(), patch in "[ -~\"{}\\\\\n=é]{0,6}", cut in any::<bool>()) {
        let mut bytes = ONE.to_vec();
        bytes.splice(at..at, patch.bytes());
        if cut {
            bytes.truncate(at + patch.len());
        }
        if let Some(seen) = parse_metrics(&bytes) {
            prop_assert!(seen.running >= 0.0 && seen.waiting >= 0.0);
            prop_assert!(seen.kv_usage.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
        let half: Vec<u8> = MODELS.iter().copied().take(at).chain(patch.bytes()).collect();
        let _ = parse_models(&half);
    }

    /// Written metrics are read back, for any engines and any order of labels.
    #[test]
    fn written_metrics_are_read_back(engines in prop::collection::vec((0_u32..900, 0_u32..900, "[a-z}{,=\" \\\\]{0,8}"), 1..5)) {
        let mut text = String::new();
        for (at, (running, waiting, model)) in engines.iter().enumerate() {
            let model = model.replace('\\', "\\\\").replace('"', "\\\"");
            text += &format!("vllm:num_requests_running{{model_name=\"{model}\",engine=\"{at}\"}} {running}.0\n");
            text += &format!("vllm:num_requests_waiting{{engine=\"{at}\",model_name=\"{model}\"}} {waiting}.0\n");
        }
        let seen = parse_metrics(text.as_bytes()).unwrap();
        prop_assert_eq!(seen.running, engines.iter().map(|(running, ..)| f64::from(*running)).sum::<f64>());
        prop_assert_eq!(seen.waiting, engines.iter().map(|(_, waiting, _)| f64::from(*waiting)).sum::<f64>());
    }
}
