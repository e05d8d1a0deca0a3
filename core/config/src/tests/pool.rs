//! Tests of the keys of a pool, its sources of replicas, its limit and its URLs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    AdaptiveConfig, Config, LimitConfig, Pool, PoolConfig, Replica, ReplicaConfig, ReplicaSource, Target,
    TargetConfig,
};

/// A file with every key of a pool, each with a value other than its default.
const FULL: &str = r#"
[targets.llama.pool]
replicas = [
  "http://10.0.0.1:8000/v1/",
  { url = "https://H2.example", weight = 2, models = ["a", "b"], kv_tokens = "400k" },
]
cap = 64
health = "/ready?deep=1"
poll = "250ms"
down_after = "3s"
cut_after = 5
slow_start = "none"
session = "X-Conversation"
affinity = false
hedge = "800ms"
key_env = "VLLM_API_KEY"
"#;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn target(settings: Value) -> TargetConfig {
    Config::from_json(json!({"targets": {"llama": settings}})).unwrap().targets.remove(0)
}

fn pool(settings: Value) -> PoolConfig {
    target(json!({"pool": settings})).pool.unwrap()
}

fn adaptive() -> LimitConfig {
    LimitConfig::Adaptive(AdaptiveConfig::default())
}

#[test]
fn every_pool_key_is_read() {
    let other = ReplicaConfig {
        weight: 2.0,
        models: Some(["a".into(), "b".into()].into()),
        kv_tokens: Some(400_000),
        ..ReplicaConfig::new("https://h2.example")
    };
    let expected = PoolConfig {
        source: ReplicaSource::Listed(vec![ReplicaConfig::new("http://10.0.0.1:8000/v1/"), other]),
        cap: 64,
        health: Some("/ready?deep=1".into()),
        poll: Some(Duration::from_millis(250)),
        down_after: secs(3),
        cut_after: secs(5),
        slow_start: None,
        session: Some(http::HeaderName::from_static("x-conversation")),
        affinity: false,
        hedge: Some(Duration::from_millis(800)),
        key_env: Some("VLLM_API_KEY".into()),
    };
    let read = Config::from_toml(FULL).unwrap();
    assert_eq!(read.targets[0].pool, Some(expected));

    let built = Pool::new(["http://10.0.0.1:8000/v1/"])
        .replica(Replica::new("https://H2.example").weight(2.0).model("a").model("b").kv_tokens(400_000))
        .cap(64)
        .health("/ready?deep=1")
        .poll(Duration::from_millis(250))
        .down_after(secs(3))
        .cut_after(secs(5))
        .slow_start(None)
        .session("X-Conversation")
        .affinity(false)
        .hedge(Duration::from_millis(800))
        .key_env("VLLM_API_KEY");
    assert_eq!(Config::builder().target(Target::new("llama").pool(built)).build().unwrap(), read);
}

#[test]
fn pool_keys_have_defaults_and_can_be_switched_off() {
    let listed = PoolConfig::from_replicas(vec![ReplicaConfig::new("http://h:1")]);
    assert_eq!(pool(json!(["http://h:1"])), listed);
    assert_eq!(pool(json!({"replicas": ["http://h:1/v1"]})), listed);
    assert_eq!(pool(json!({})), PoolConfig::default());
    let off = pool(json!({"health": false, "poll": "none", "session": null, "hedge": "none"}));
    assert_eq!((off.health, off.poll, off.session, off.hedge), (None, None, None, None));
}

#[test]
fn replicas_are_listed_or_named_by_dns_file_or_program() {
    let dns = ReplicaSource::Dns { url: "http://vllm.svc:8000".into(), every: secs(5) };
    assert_eq!(pool(json!({"dns": "http://VLLM.svc:8000/v1"})).source, dns);
    let dns = ReplicaSource::Dns { url: "http://vllm".into(), every: secs(30) };
    assert_eq!(pool(json!({"dns": "http://vllm:80", "dns_every": "30s"})).source, dns);
    let file = ReplicaSource::File { path: "replicas.toml".into(), every: Duration::from_millis(200) };
    assert_eq!(pool(json!({"file": "replicas.toml", "file_every": "200ms"})).source, file);
    assert_eq!(pool(json!({"cap": 8})).source, ReplicaSource::Dynamic);
    let built = |pool| Config::builder().target(Target::new("llama").pool(pool)).build().unwrap();
    let source = |config: Config| config.targets[0].pool.clone().unwrap().source;
    assert_eq!(source(built(Pool::from_dns("http://vllm").dns_every(secs(30)))), dns);
    assert_eq!(source(built(Pool::from_file("replicas.toml").file_every(Duration::from_millis(200)))), file);
    assert_eq!(source(built(Pool::dynamic())), ReplicaSource::Dynamic);
}

#[test]
fn pool_limit_is_per_replica_and_target_cap_bounds_the_sum() {
    let list = json!(["http://h:1"]);
    let capped = json!({"replicas": ["http://h:1"], "cap": 32});
    for (settings, limit, cap) in [
        (json!({"pool": list}), adaptive(), 65_536),
        (json!({"pool": list, "cap": 64}), adaptive(), 64),
        (json!({"pool": capped}), LimitConfig::Fixed, 65_536),
        (json!({"pool": capped, "cap": 64}), LimitConfig::Fixed, 64),
        (json!({"pool": capped, "ttft": "2s"}), adaptive(), 65_536),
        (json!({"pool": capped, "limit": "adaptive"}), adaptive(), 65_536),
        (json!({"pool": list, "limit": "fixed"}), LimitConfig::Fixed, 65_536),
        (json!({"pool": capped, "lanes": {"interactive": {"ttft": "1s"}}}), adaptive(), 65_536),
    ] {
        let target = target(settings.clone());
        assert_eq!((target.limit, target.cap), (limit, cap), "{settings}");
    }
    // The default start is clamped to the cap of a replica.
    let narrow = target(json!({"pool": {"replicas": ["http://h:1"], "cap": 4}, "ttft": "2s"}));
    assert_eq!(narrow.limit, LimitConfig::Adaptive(AdaptiveConfig { start: 4, ..AdaptiveConfig::default() }));
    // Settings of `defaults` count as if the target set them.
    let config = json!({"defaults": {"cap": 9}, "targets": {"llama": {"pool": list}}});
    let target = Config::from_json(config).unwrap().targets.remove(0);
    assert_eq!((target.limit, target.cap), (adaptive(), 9));
}

#[test]
fn name_of_a_pool_may_look_like_an_address() {
    let config = Config::from_json(json!({"targets": {"70": {"pool": {}}}})).unwrap();
    assert_eq!(config.targets[0].matches.urls, ["http://70", "https://70"]);
}

#[test]
fn pool_can_be_a_fallback() {
    let config = Config::from_json(json!({"targets": {
        "openai": {"cap": 8, "fallback": "llama"},
        "llama": {"pool": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"], "model": "llama-3"},
    }}));
    let urls = config.unwrap().targets.remove(1).matches.urls;
    assert_eq!(urls, ["http://llama", "https://llama", "http://10.0.0.1:8000", "http://10.0.0.2:8000"]);
}
