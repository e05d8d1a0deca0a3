//! Tests of how the settings of sizes, tokens, budgets, floors and fallbacks are read and
//! inherited.

use std::time::Duration;

use serde_json::{Value, json};

use super::FULL;
use crate::{
    Config, CostRule, Counting, HeaderPolicy, LaneConfig, Predict, RateConfig, TargetConfig, TenantConfig,
    Tokenizer,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(config: Value) -> Config {
    Config::from_json(config).unwrap()
}

fn target<'a>(config: &'a Config, name: &str) -> &'a TargetConfig {
    config.targets.iter().find(|target| &*target.name == name).unwrap()
}

#[test]
fn every_admission_key_is_read() {
    let config = Config::from_toml(FULL).unwrap();
    let openai = target(&config, "openai");
    assert_eq!((openai.backlog, openai.cost), (20_000, CostRule::Tokens));
    assert_eq!((openai.short_bias, openai.reclaim), (Some(Duration::from_millis(200)), true));
    assert_eq!((openai.predict, openai.max_prompt), (Predict::Objective, Some(200_000)));
    assert!(openai.ask_usage);
    let own = RateConfig {
        rpm: Some(600),
        tpm: Some(1_000_000),
        burst: secs(1),
        counting: Counting::Sum,
        headers: HeaderPolicy::Ignore,
        ..RateConfig::default()
    };
    assert_eq!((&openai.rates, &openai.budget), (&own, &None));
    let [interactive, standard, batch] = &openai.lanes;
    assert_eq!(*interactive, LaneConfig { floor: 0.5, ttft: Some(secs(1)), ..LaneConfig::default() });
    assert_eq!(*standard, LaneConfig::default());
    assert_eq!(*batch, LaneConfig { queue: Some(400), ..LaneConfig::default() });
    assert_eq!(openai.fallback.as_deref(), Some("spare"));

    let llama = target(&config, "llama");
    assert_eq!((llama.kv_tokens, llama.kv_headroom), (Some(400_000), 0.2));
    assert_eq!((llama.cost, llama.tokenizer, llama.predict), (CostRule::Kv, Tokenizer::Vllm, Predict::Off));
    assert_eq!((&llama.fallback, llama.model.as_deref()), (&None, Some("llama-3-70b")));

    let spare = target(&config, "spare");
    assert_eq!((spare.model.as_deref(), spare.key_env.as_deref()), (Some("mixtral"), Some("SPARE_KEY")));
    assert_eq!(spare.forward_headers, ["x-tenant-id", "x-team"]);
    assert_eq!(spare.fallback.as_deref(), Some("llama"), "from defaults");

    let account = RateConfig {
        rpm: Some(500),
        rpd: Some(10_000),
        tpm: Some(2_000_000),
        tpd: Some(1_000_000_000),
        itpm: Some(450_000),
        otpm: Some(1_500_000),
        burst: secs(2),
        counting: Counting::Actual,
        headers: HeaderPolicy::Lower,
    };
    assert_eq!(config.budgets.len(), 1);
    assert_eq!(config.budgets["account"], account);
    for target in [target(&config, "anthropic"), &config.default_target] {
        assert_eq!(target.budget.as_deref(), Some("account"));
        assert_eq!(target.rates, RateConfig::default());
        assert_eq!(target.lanes[2].wait, Some(secs(120)));
    }
}

#[test]
fn counts_are_numbers_or_text_with_a_unit() {
    let forms = [
        (json!(1), 1),
        (json!(2e6), 2_000_000),
        (json!("450k"), 450_000),
        (json!("450K"), 450_000),
        (json!("2M"), 2_000_000),
        (json!("1.5M"), 1_500_000),
        (json!("0.001k"), 1),
        (json!("1000000M"), 1_000_000_000_000),
    ];
    for (given, expected) in forms {
        let config = read(json!({"defaults": {"tpm": given}}));
        assert_eq!(config.default_target.rates.tpm, Some(expected), "{given}");
    }
    for given in [
        "1.5",
        "k",
        ".5k",
        "1.0001k",
        "-1k",
        "+1k",
        "1e3k",
        "1 k",
        "2m",
        "2G",
        "1_0k",
        "999999999999999999999M",
    ] {
        assert!(Config::from_json(json!({"defaults": {"tpm": given}})).is_err(), "{given}");
    }
}

#[test]
fn own_rates_and_a_shared_budget_replace_each_other() {
    let config = read(json!({
        "budgets": {"account": {"tpm": 5}},
        "defaults": {"tpm": 7, "burst": 1},
        "targets": {"openai": {"budget": "account"}, "groq": {"rpm": 3}},
    }));
    let openai = target(&config, "openai");
    assert_eq!((openai.budget.as_deref(), &openai.rates), (Some("account"), &RateConfig::default()));
    let groq = &target(&config, "groq").rates;
    assert_eq!((groq.rpm, groq.tpm, groq.burst), (Some(3), Some(7), secs(1)));

    let config = read(json!({
        "budgets": {"account": {}},
        "defaults": {"budget": "account"},
        "targets": {"openai": {"budget": false, "tpm": 9}, "groq": 8},
    }));
    let openai = target(&config, "openai");
    assert_eq!((&openai.budget, openai.rates.tpm), (&None, Some(9)));
    assert_eq!(target(&config, "groq").budget.as_deref(), Some("account"));
}

#[test]
fn floors_may_sum_to_one() {
    // None of these sums is exactly 1 in binary.
    for floors in [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.333_333_333_4, 0.333_333_333_3, 0.333_333_333_3]] {
        let [acme, beta, batch] = floors;
        let tenants = json!({"acme": {"floor": acme}, "beta": {"floor": beta}});
        let config = read(json!({"defaults": {"tenants": tenants, "lanes": {"batch": {"floor": batch}}}}));
        assert_eq!(config.default_target.lanes[2].floor, batch);
    }
    let error =
        Config::from_json(json!({"tenants": {"a": {"floor": 0.7}, "b": {"floor": 0.3001}}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tenants: the floors sum to 1.0001, above 1 (tenants.a 0.7, tenants.b 0.3001); lower one of them"
    );
}

#[test]
fn lane_settings_of_a_target_replace_single_keys_of_defaults() {
    let config = read(json!({
        "defaults": {"ttft": 2, "lanes": {"batch": {"queue": 5, "wait": 60, "ttft": 30}, "standard": {"floor": 0.2}}},
        "targets": {"openai": {"lanes": {"batch": {"ttft": "none", "floor": 0.1}}}},
    }));
    let [_, standard, batch] = &target(&config, "openai").lanes;
    assert_eq!(standard.floor, 0.2);
    assert_eq!(*batch, LaneConfig { floor: 0.1, queue: Some(5), wait: Some(secs(60)), ttft: None });
}

#[test]
fn default_fallback_applies_to_every_target_but_itself() {
    let config = read(json!({
        "defaults": {"fallback": "spare"},
        "targets": {
            "openai": 8,
            "groq": {"fallback": "none"},
            "bedrock": {"url": "none"},
            "spare": {"url": "http://10.0.0.1", "models": ["small"]},
        },
    }));
    let to = |name| target(&config, name).fallback.as_deref();
    assert_eq!([to("openai"), to("groq"), to("bedrock"), to("spare")], [Some("spare"), None, None, None]);
    assert_eq!(config.default_target.fallback.as_deref(), Some("spare"));
    assert_eq!(target(&config, "spare").model.as_deref(), Some("small"), "the only name there is");
    assert_eq!(target(&config, "openai").model, None);
}

#[test]
fn fallback_with_several_urls_needs_all_urls_of_the_target() {
    // `small` falls back to another model of the same provider, `other` to the same model with
    // another key. No request reaches `other` directly.
    let config = read(json!({
        "targets": {
            "large": {"url": ["https://a.example/v1", "https://b.example/v1"], "models": "large", "fallback": "small"},
            "small": {"url": ["https://a.example", "https://b.example"], "models": "small*", "model": "small-2", "fallback": "other"},
            "other": {"url": ["https://a.example", "https://b.example"], "models": "small-2", "key_env": "OTHER_KEY"},
        },
    }));
    assert_eq!(target(&config, "small").model.as_deref(), Some("small-2"));
    assert_eq!(target(&config, "other").key_env.as_deref(), Some("OTHER_KEY"));
}

#[test]
fn fallback_without_a_model_needs_all_models_of_the_target() {
    let config = read(json!({
        "targets": {
            "mine": {"url": "http://10.0.0.1/v1", "models": ["llama-3-*", "qwen"], "fallback": "theirs"},
            "theirs": {"url": "http://10.0.0.2/v1", "models": ["llama-*", "qwen"], "fallback": "openai"},
            "openai": {"model": "gpt-4o-mini"},
        },
    }));
    assert_eq!(target(&config, "theirs").model, None, "they stay the caller's");
    assert_eq!(target(&config, "openai").matches.urls.first().unwrap(), "https://api.openai.com");
}

#[test]
fn default_tenant_has_no_floor() {
    let config = read(json!({"defaults": {"default_tenant": {"floor": 0, "tpm": 5}}}));
    let tenant = TenantConfig { tpm: Some(5), ..TenantConfig::default() };
    assert_eq!(config.default_target.default_tenant, tenant);
}
