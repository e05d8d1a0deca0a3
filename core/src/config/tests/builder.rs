//! The builder says the same as the file, right or wrong.

use std::time::Duration;

use serde_json::json;

use super::FULL;
use crate::ErrorKind;
use crate::config::{Config, Mode, OnFull, Retry, Target, Tenant, Tool, Transport};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn says_what_the_file_says() {
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
        .aging(secs(10))
        .retry(Retry::new().attempts(5).base(Duration::from_millis(250)).max(secs(20)).ratio(0.3).reserve(4))
        .default_tenant(Tenant::new().weight(3.0).queue(9))
        .tenant("acme", Tenant::new().weight(4.0))
        .tenant("beta", Tenant::new().cap(1));
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
        })
        .tenant("acme", Tenant::new().weight(2.0).queue(7))
        .tenant("batch", Tenant::new().weight(0.5))
        .target(Target::new("anthropic").cap(32))
        .target(openai)
        .target(Target::new("llama").url("http://10.0.0.1:8000/v1/").url("HTTP://10.0.0.2:80"))
        .tool("db", 8)
        .tool("search", Tool::capped(4).queue(16).wait(secs(5)))
        .tool("shell", Tool::capped(1).on_full(OnFull::Refuse))
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
fn makes_the_same_mistakes() {
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
    assert_eq!(built.kind(), ErrorKind::Config);
    assert_eq!(built.message().lines().count(), 8, "{built}");
    // A list of one is a list: only there do the sources differ from a plain string.
    assert_eq!(built.message(), read.message());
    assert!(!built.message().contains("sk-secret"));
}

#[test]
fn times_are_exact_and_judged() {
    let odd = Duration::from_nanos(1_234_567_891);
    let config = Config::builder().target(Target::new("openai").ttft(odd)).build().unwrap();
    assert_eq!(config.targets[0].ttft, Some(odd));

    let error = Config::builder().target(Target::new("openai").ttft(Duration::ZERO)).build().unwrap_err();
    assert!(error.message().starts_with("targets.openai.ttft: expected a duration from 1ms"), "{error}");
    assert!(error.message().ends_with("got 0s"), "{error}");
    let error = Config::builder().defaults(|target| target.aging(Duration::MAX)).build().unwrap_err();
    assert!(error.message().starts_with("defaults.aging: "), "{error}");
}

#[test]
fn a_name_given_twice_is_no_overwriting() {
    let error = Config::builder()
        .target(Target::new("openai").cap(1))
        .target(Target::new("openai").cap(2))
        .tool("db", 1)
        .tool("db", 2)
        .build()
        .unwrap_err();
    let expected = "tools.db: given twice; keep one\ntargets.openai: given twice; keep one\ntargets.openai: matches the same";
    assert!(error.message().starts_with(expected), "{error}");
}
