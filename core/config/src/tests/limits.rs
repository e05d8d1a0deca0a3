//! Tests that a target or tool has the right limit, fixed or adaptive, if `limit` is given,
//! inherited or absent.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::FULL;
use crate::{
    AdaptiveConfig, Config, Decrease, Detector, LimitConfig, LimitSettings, Percentile, Target, Tool,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(config: Value) -> Config {
    Config::from_json(config).unwrap()
}

/// Reads a configuration whose only target is `openai`, with the settings `target`, and returns the
/// limit of that target.
fn limit_of(target: Value) -> LimitConfig {
    read(json!({"targets": {"openai": target}})).targets[0].limit.clone()
}

fn adaptive() -> LimitConfig {
    LimitConfig::Adaptive(AdaptiveConfig::default())
}

fn starting(start: usize) -> LimitConfig {
    LimitConfig::Adaptive(AdaptiveConfig { start, ..AdaptiveConfig::default() })
}

#[test]
fn every_limit_key_is_read() {
    let config = Config::from_toml(FULL).unwrap();
    let limit = |name: &str| &config.targets.iter().find(|target| &*target.name == name).unwrap().limit;
    let percentile = Percentile { quantile: 0.95, window: secs(60), tick: secs(2), band: 0.1, hold: 4 };
    let openai = AdaptiveConfig {
        start: 12,
        min: 2,
        awaiting: Some(6),
        decrease: Decrease::Factor(0.8),
        detector: Detector::Percentile(percentile),
    };
    assert_eq!(limit("openai"), &LimitConfig::Adaptive(openai));
    let llama = AdaptiveConfig { decrease: Decrease::Step(3), ..AdaptiveConfig::default() };
    assert_eq!(limit("llama"), &LimitConfig::Adaptive(llama));
    assert_eq!((limit("anthropic"), limit("spare")), (&LimitConfig::Fixed, &LimitConfig::Fixed));
    assert_eq!(config.default_target.limit, adaptive());
    assert_eq!(config.targets[1].tpot, Some(Duration::from_millis(80)));
}

#[test]
fn limit_is_fixed_with_a_cap_and_no_objective() {
    for (target, expected) in [
        (json!({}), adaptive()),
        (json!({"ttft": "2s"}), adaptive()),
        (json!(64), LimitConfig::Fixed),
        (json!({"cap": 64}), LimitConfig::Fixed),
        (json!({"cap": 64, "ttft": "none"}), LimitConfig::Fixed),
        (json!({"cap": 64, "ttft": "2s"}), adaptive()),
        (json!({"cap": 64, "limit": "adaptive"}), adaptive()),
        (json!({"cap": 64, "limit": {}}), adaptive()),
        (json!({"limit": "fixed"}), LimitConfig::Fixed),
        (json!({"cap": 64, "ttft": "2s", "limit": "fixed"}), LimitConfig::Fixed),
        (json!({"cap": 64, "lanes": {"interactive": {"ttft": "1s"}}}), adaptive()),
        (json!({"cap": 64, "lanes": {"interactive": {"floor": 0.5}}}), LimitConfig::Fixed),
        (json!({"url": "none"}), LimitConfig::Fixed),
        (json!({"url": "none", "cap": 4, "ttft": "2s"}), LimitConfig::Fixed),
    ] {
        assert_eq!(limit_of(target.clone()), expected, "{target}");
    }
    assert_eq!(read(json!({})).default_target.limit, adaptive());
    assert_eq!(read(json!({"defaults": {"cap": 9}})).default_target.limit, LimitConfig::Fixed);
    assert_eq!(read(json!({"targets": {"openai": {}}})).targets[0].cap, 256);
}

#[test]
fn tool_limit_is_fixed_without_a_latency() {
    for (tool, expected) in [
        (json!(32), LimitConfig::Fixed),
        (json!({"cap": 32}), LimitConfig::Fixed),
        (json!({"cap": 32, "latency": "200ms"}), adaptive()),
        (json!({"cap": 32, "latency": "none"}), LimitConfig::Fixed),
        (json!({"cap": 32, "limit": "adaptive"}), adaptive()),
        (json!({"cap": 32, "limit": {"start": 4}}), starting(4)),
        (json!({"cap": 32, "limit": "fixed"}), LimitConfig::Fixed),
    ] {
        assert_eq!(read(json!({"tools": {"db": tool}})).tools["db"].limit, expected, "{tool}");
    }
}

#[test]
fn builder_resolves_limits_like_a_file() {
    let built = |target: Target| Config::builder().target(target).build().unwrap().targets[0].limit.clone();
    assert_eq!(built(Target::new("openai")), adaptive());
    assert_eq!(built(Target::new("openai").cap(64)), LimitConfig::Fixed);
    assert_eq!(built(Target::new("openai").cap(64).ttft(secs(2))), adaptive());
    assert_eq!(built(Target::new("openai").cap(64).limit(LimitSettings::new())), adaptive());
    assert_eq!(built(Target::new("openai").fixed()), LimitConfig::Fixed);
    assert_eq!(built(Target::new("openai").slots_only()), LimitConfig::Fixed);
    let tool = |tool: Tool| Config::builder().tool("db", tool).build().unwrap().tools["db"].limit.clone();
    assert_eq!(tool(8.into()), LimitConfig::Fixed);
    assert_eq!(tool(Tool::new(8).latency(secs(1))), adaptive());
    assert_eq!(tool(Tool::new(8).latency(None).limit(LimitSettings::new())), adaptive());
    assert_eq!(tool(Tool::new(8).fixed()), LimitConfig::Fixed);
}

#[test]
fn default_start_is_clamped_to_min_and_cap() {
    assert_eq!(limit_of(json!({"cap": 3, "ttft": 2})), starting(3));
    let LimitConfig::Adaptive(keys) = limit_of(json!({"limit": {"min": 20}})) else { panic!("fixed") };
    assert_eq!((keys.min, keys.start), (20, 20));
}

#[test]
fn defaults_count_as_set_by_the_target() {
    let limit = |defaults: Value, target: Value| {
        read(json!({"defaults": defaults, "targets": {"openai": target}})).targets[0].limit.clone()
    };
    assert_eq!(limit(json!({"cap": 9}), json!({})), LimitConfig::Fixed);
    assert_eq!(limit(json!({"cap": 9}), json!({"ttft": 2})), adaptive());
    assert_eq!(limit(json!({"ttft": 2}), json!(9)), adaptive());
    assert_eq!(limit(json!({"ttft": 2}), json!({"cap": 9, "ttft": false})), LimitConfig::Fixed);
    assert_eq!(limit(json!({"limit": "adaptive"}), json!(9)), adaptive());
    assert_eq!(limit(json!({"limit": "fixed"}), json!({"ttft": 2})), LimitConfig::Fixed);
    assert_eq!(limit(json!({"limit": "fixed"}), json!({"limit": {"start": 5}})), starting(5));
    assert_eq!(limit(json!({"limit": {"start": 5}}), json!({"limit": "fixed"})), LimitConfig::Fixed);
    assert_eq!(limit(json!({"limit": {"start": 5}}), json!({"limit": "adaptive"})), starting(5));
}

#[test]
fn limit_of_a_target_replaces_single_keys_of_defaults() {
    let config = read(json!({
        "defaults": {"limit": {
            "start": 16, "min": 2, "awaiting": 9, "decrease": {"step": 4}, "detector": {"quantile": 0.5, "hold": 1},
        }},
        "targets": {"openai": {"limit": {
            "min": 3, "awaiting": "none", "decrease": "served", "detector": {"hold": 7},
        }}},
    }));
    let percentile = Percentile { quantile: 0.5, hold: 7, ..Percentile::default() };
    let expected = AdaptiveConfig {
        start: 16,
        min: 3,
        awaiting: None,
        decrease: Decrease::Served,
        detector: Detector::Percentile(percentile),
    };
    assert_eq!(config.targets[0].limit, LimitConfig::Adaptive(expected));
}

#[test]
fn inherited_tpot_is_removed_with_a_fixed_limit() {
    let config = read(json!({
        "defaults": {"tpot": "50ms"},
        "targets": {"openai": 8, "groq": {"limit": "fixed"}, "mistral": {"cap": 8, "ttft": 1}},
    }));
    let tpot = |config: &Config| config.targets.iter().map(|target| target.tpot).collect::<Vec<_>>();
    let kept = Some(Duration::from_millis(50));
    assert_eq!(tpot(&config), [None, None, kept]);
    // With a fixed limit in `defaults`, its `tpot` applies to targets with an adaptive limit only.
    let config = read(json!({
        "defaults": {"cap": 64, "tpot": "50ms"},
        "targets": {"openai": {"ttft": "2s"}, "groq": {}, "mistral": 8},
    }));
    assert_eq!(tpot(&config), [kept, None, None]);
    assert_eq!(config.default_target.tpot, None);
}

/// Generates settings of an adaptive limit, some of which contradict each other.
fn limit() -> impl Strategy<Value = Value> {
    let slots = || prop::option::of((1..40usize).prop_map(Value::from));
    let decrease = prop_oneof![
        Just(json!("served")),
        (0.1..=0.99).prop_map(Value::from),
        (1..9usize).prop_map(|step| json!({"step": step})),
    ];
    let detector = prop_oneof![
        Just(json!("exceedance")),
        Just(json!("percentile")),
        (0.01..=0.999, 1..9u32).prop_map(|(quantile, hold)| json!({"quantile": quantile, "hold": hold})),
    ];
    let keys = (slots(), slots(), slots(), prop::option::of(decrease), prop::option::of(detector));
    let table = keys.prop_map(|(start, min, awaiting, decrease, detector)| {
        let keys = [
            ("start", start),
            ("min", min),
            ("awaiting", awaiting),
            ("decrease", decrease),
            ("detector", detector),
        ];
        let given = keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Object(given.collect::<Map<_, _>>())
    });
    prop_oneof![1 => Just(json!("adaptive")), 1 => Just(json!("fixed")), 4 => table]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn min_start_and_cap_are_in_order_or_rejected(
        cap in prop::option::of(1..40usize),
        objective in any::<bool>(),
        limit in prop::option::of(limit()),
        below in prop::option::of(limit()),
    ) {
        let mut target = json!({});
        if let Some(cap) = cap {
            target["cap"] = cap.into();
        }
        if objective {
            target["ttft"] = 2.into();
        }
        if let Some(limit) = &limit {
            target["limit"] = limit.clone();
        }
        let mut tree = json!({"targets": {"openai": target}});
        if let Some(below) = &below {
            tree["defaults"] = json!({"limit": below});
        }
        // A second implementation of the rule by which the limit is fixed or adaptive.
        let fixed = match limit.as_ref().or(below.as_ref()) {
            Some(limit) => limit == &json!("fixed"),
            None => cap.is_some() && !objective,
        };
        let said = |layer: &Option<Value>, key: &str| {
            layer.as_ref().and_then(|limit| limit.get(key)).and_then(Value::as_u64)
        };
        let (start, min) = (said(&limit, "start"), said(&limit, "min"));
        let (start_below, min_below) = (said(&below, "start"), said(&below, "min"));
        let sound = |start: Option<u64>, min: Option<u64>, ceiling: u64| {
            let start = start.unwrap_or(ceiling);
            start <= ceiling && min.is_none_or(|min| min <= start)
        };
        let ceiling = cap.unwrap_or(256) as u64;
        let wrong = !sound(start, min, ceiling) || !sound(start_below, min_below, 256);
        match Config::from_json(tree) {
            Ok(config) => {
                prop_assert!(!wrong);
                match &config.targets[0].limit {
                    LimitConfig::Fixed => prop_assert!(fixed),
                    LimitConfig::Adaptive(keys) => {
                        prop_assert!(!fixed);
                        let floor = min.unwrap_or_else(|| {
                            min_below.unwrap_or(1).min(ceiling).min(start.unwrap_or(ceiling))
                        });
                        prop_assert_eq!(keys.min as u64, floor);
                        prop_assert_eq!(keys.start as u64, start.or(start_below).unwrap_or(8).clamp(floor, ceiling));
                    }
                }
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains("is above"), "{}", text);
                prop_assert!(wrong, "{}", text);
            }
        }
    }
}
