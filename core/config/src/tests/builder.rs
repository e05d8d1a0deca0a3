//! Tests that a builder gives the same configurations and errors as a file.

use std::time::Duration;

use serde_json::json;

use super::FULL;
use crate::{
    AdaptiveConfig, Budget, Config, CostRule, Counting, Decrease, Detector, HeaderPolicy, Lane, LaneSettings,
    LimitConfig, LimitSettings, Mode, OnFull, Percentile, Predict, Retry, Share, ShareStore, Target,
    TargetConfig, Tenant, Tokenizer, Tool, Transport,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn adaptive(target: &TargetConfig) -> &AdaptiveConfig {
    match &target.limit {
        LimitConfig::Adaptive(keys) => keys,
        LimitConfig::Fixed => panic!("{} is fixed", target.name),
    }
}

#[test]
fn builder_and_file_give_the_same_configuration() {
    let percentile = Percentile { quantile: 0.95, window: secs(60), tick: secs(2), band: 0.1, hold: 4 };
    let limit = LimitSettings::new()
        .start(12)
        .min(2)
        .awaiting(6)
        .decrease(Decrease::Factor(0.8))
        .detector(Detector::Percentile(percentile));
    let openai = Target::new("openai")
        .model("gpt-4o*")
        .model("o3")
        .cap(48)
        .queue(1_000)
        .wait(secs(30))
        .on_full(OnFull::Refuse)
        .deadline(secs(5_400))
        .first_token(secs(45))
        .idle(None)
        .stall(None)
        .ttft(Duration::from_millis(2_500))
        .tpot(Duration::from_millis(80))
        .limit(limit)
        .aging(secs(10))
        .retry(Retry::new().attempts(5).base(Duration::from_millis(250)).max(secs(20)).ratio(0.3).reserve(4))
        .default_tenant(Tenant::new().weight(3.0).queue(9).tpm(90_000).shed(false))
        .tenant("acme", Tenant::new().weight(4.0))
        .tenant("beta", Tenant::new().cap(1).floor(0.1))
        .lane(Lane::Interactive, LaneSettings::new().floor(0.5).ttft(secs(1)))
        .lane(Lane::Batch, LaneSettings::new().wait(None))
        .backlog(20_000)
        .cost(CostRule::Tokens)
        .short_bias(Duration::from_millis(200))
        .reclaim(true)
        .predict(Predict::Objective)
        .max_prompt(200_000)
        .budget(None)
        .rpm(600)
        .tpm(1_000_000)
        .burst(secs(1))
        .counting(Counting::Sum)
        .headers(HeaderPolicy::Ignore)
        .ask_usage(true)
        .fallback("spare");
    let llama = Target::new("llama")
        .url("http://10.0.0.1:8000/v1/")
        .model("llama-3-70b")
        .fallback(None)
        .budget(None)
        .kv_tokens(400_000)
        .kv_headroom(0.2)
        .limit(LimitSettings::new().decrease(Decrease::Step(3)))
        .cost(CostRule::Kv)
        .tokenizer(Tokenizer::Vllm)
        .predict(Predict::Off);
    let account = Budget::new()
        .rpm(500)
        .rpd(10_000)
        .tpm(2_000_000)
        .tpd(1_000_000_000)
        .itpm(450_000)
        .otpm(1_500_000)
        .burst(secs(2))
        .counting(Counting::Actual)
        .headers(HeaderPolicy::Lower);
    let config = Config::builder()
        .mode(Mode::Observe)
        .defaults(|target| {
            target
                .queue(500)
                .deadline(secs(300))
                .idle(secs(60))
                .retry(Retry::new().attempts(3).ratio(0.1))
                .default_tenant(Tenant::new().cap(6))
                .tenant("acme", Tenant::new().cap(20))
                .lane(Lane::Batch, LaneSettings::new().queue(400).wait(secs(120)))
                .budget("account")
                .fallback("llama")
        })
        .tenant("acme", Tenant::new().weight(2.0).queue(7).floor(0.2).tpm(250_000))
        .tenant("batch", Tenant::new().weight(0.5).shed(false))
        .budget("account", account)
        .target(Target::new("anthropic").cap(32))
        .target(openai)
        .target(llama)
        .target(
            Target::new("spare")
                .url("HTTP://10.0.0.2:80")
                .fixed()
                .fallback_model("mixtral")
                .key_env("SPARE_KEY")
                .forward_header("X-Tenant-Id")
                .forward_header("x-team"),
        )
        .tool("db", 8)
        .tool("search", Tool::new(4).queue(16).wait(secs(5)).rpm(90).latency(Duration::from_millis(200)))
        .tool(
            "shell",
            Tool::new(1)
                .on_full(OnFull::Refuse)
                .rps(0.5)
                .limit(LimitSettings::new().detector(Detector::Percentile(Percentile::default()))),
        )
        .share(Share::default().store(ShareStore::Off).name("web_1").strict(true))
        .transport(
            Transport::new()
                .connect(secs(3))
                .proxy_from_env(false)
                .pool_idle(16)
                .pool_idle_timeout(secs(20))
                .http2_streams(50)
                .http2_prior_knowledge(true),
        )
        .build()
        .unwrap();
    assert_eq!(config, Config::from_toml(FULL).unwrap());
}

#[test]
fn builder_and_json_give_the_same_errors() {
    let built = Config::builder()
        .defaults(|target| target.url("https://api.openai.com"))
        .tenant("acme", Tenant::new().weight(-1.0).cap(0))
        .target(Target::new("openai").cap(0).url("https://me:sk-secret@api.openai.com"))
        .target(Target::new("pool").queue(2_000_000))
        .tool("", 0)
        .build();
    let read = Config::from_json(json!({
        "defaults": {"url": ["https://api.openai.com"]},
        "tenants": {"acme": {"weight": -1.0, "cap": 0}},
        "targets": {
            "openai": {"cap": 0, "url": ["https://me:sk-secret@api.openai.com"]},
            "pool": {"queue": 2_000_000},
        },
        "tools": {"": {"cap": 0}},
    }));
    let (built, read) = (built.unwrap_err(), read.unwrap_err());
    assert_eq!(built.to_string().lines().count(), 8, "{built}");
    // The builder writes a list with one item where a file may have a plain string.
    assert_eq!(built.to_string(), read.to_string());
    assert!(!built.to_string().contains("sk-secret"));
}

#[test]
fn durations_of_a_builder_are_exact_and_checked() {
    let odd = Duration::from_nanos(1_234_567_891);
    let config = Config::builder().target(Target::new("openai").ttft(odd)).build().unwrap();
    assert_eq!(config.targets[0].ttft, Some(odd));

    let error = Config::builder().target(Target::new("openai").ttft(Duration::ZERO)).build().unwrap_err();
    assert!(error.to_string().starts_with("targets.openai.ttft: expected a duration from 1ms"), "{error}");
    assert!(error.to_string().ends_with("got 0s"), "{error}");
    let error = Config::builder().defaults(|target| target.aging(Duration::MAX)).build().unwrap_err();
    assert!(error.to_string().starts_with("defaults.aging: "), "{error}");
}

#[test]
fn duplicate_names_in_a_builder_are_rejected() {
    let error = Config::builder()
        .target(Target::new("openai").cap(1))
        .target(Target::new("openai").cap(2))
        .tool("db", 1)
        .tool("db", 2)
        .build()
        .unwrap_err();
    let expected = "tools.db: given twice; keep one\ntargets.openai: given twice; keep one\ntargets.openai: matches the same";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn builder_writes_every_keyword() {
    let built = |set: &dyn Fn(Target) -> Target| {
        Config::builder().defaults(set).build().map(|config| config.default_target).unwrap()
    };
    for rule in [CostRule::Auto, CostRule::Tokens, CostRule::Kv, CostRule::Calls] {
        assert_eq!(built(&|target| target.cost(rule)).cost, rule);
    }
    for when in [Predict::Deadline, Predict::Objective, Predict::Off] {
        assert_eq!(built(&|target| target.predict(when)).predict, when);
    }
    for rule in [Counting::Auto, Counting::Sum, Counting::Larger, Counting::Actual, Counting::Input] {
        assert_eq!(built(&|target| target.counting(rule)).rates.counting, rule);
    }
    for what in [HeaderPolicy::Follow, HeaderPolicy::Lower, HeaderPolicy::Ignore] {
        assert_eq!(built(&|target| target.headers(what)).rates.headers, what);
    }
    for how in [Decrease::Served, Decrease::Factor(0.5), Decrease::Step(2)] {
        let target = built(&|target| target.limit(LimitSettings::new().decrease(how)));
        assert_eq!(adaptive(&target).decrease, how);
    }
    for detector in [Detector::Exceedance, Detector::Percentile(Percentile::default())] {
        let target = built(&|target| target.limit(LimitSettings::new().detector(detector.clone())));
        assert_eq!(adaptive(&target).detector, detector);
    }
    for tokenizer in [Tokenizer::Learned, Tokenizer::Vllm] {
        assert_eq!(built(&|target| target.tokenizer(tokenizer)).tokenizer, tokenizer);
    }
    let exact = Config::builder().defaults(|target| target.tokenizer(Tokenizer::Bpe)).build();
    assert_eq!(exact.is_ok(), cfg!(feature = "bpe"), "{exact:?}");
}

#[test]
fn rates_out_of_range_are_rejected() {
    let target = Target::new("openai").rpm(u64::MAX).tpm(0).burst(Duration::MAX).kv_headroom(f64::NAN);
    let error = Config::builder().target(target.rpd(u64::MAX).itpm(0)).build().unwrap_err();
    assert_eq!(error.to_string().lines().count(), 6, "{error}");
}
