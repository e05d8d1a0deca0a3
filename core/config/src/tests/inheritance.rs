//! Tests that every key of a file is read, and that targets replace keys of `defaults`.

use std::time::Duration;

use serde_json::json;

use super::FULL;
use crate::{
    AdaptiveConfig, Config, Detector, LimitConfig, Mode, OnFull, Percentile, ShareConfig, ShareStore,
    TargetConfig, TenantConfig, ToolConfig, TransportConfig,
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn tenant(weight: f64, cap: Option<usize>, queue: Option<usize>) -> TenantConfig {
    TenantConfig { weight, cap, queue, ..TenantConfig::default() }
}

#[test]
fn empty_configurations_are_the_default() {
    assert_eq!(Config::from_toml("").unwrap(), Config::default());
    assert_eq!(Config::from_json(json!({})).unwrap(), Config::default());
    assert_eq!(Config::builder().build().unwrap(), Config::default());
    let empty = "[defaults]\n[targets]\n[tenants]\n[tools]\n[share]\n[transport]\n";
    assert_eq!(Config::from_toml(empty).unwrap(), Config::default());
}

#[test]
fn every_key_of_a_file_is_read() {
    let config = Config::from_toml(FULL).unwrap();
    assert_eq!(config.mode, Mode::Observe);
    let names: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["anthropic", "openai", "llama", "spare"], "in the order of the file");

    let openai = &config.targets[1];
    assert_eq!(openai.matches.models, ["gpt-4o*", "o3"]);
    assert!(openai.matches.urls.contains(&"https://api.openai.com".to_owned()));
    assert_eq!((openai.cap, openai.queue, openai.on_full), (48, 1_000, OnFull::Refuse));
    assert_eq!((openai.wait, openai.deadline), (Some(secs(30)), secs(5_400)));
    assert_eq!((openai.first_token, openai.idle, openai.stall), (Some(secs(45)), None, None));
    assert_eq!((openai.ttft, openai.aging), (Some(Duration::from_millis(2_500)), secs(10)));
    let retry = &openai.retry;
    assert_eq!((retry.attempts, retry.base, retry.max), (5, Duration::from_millis(250), secs(20)));
    assert_eq!((retry.ratio, retry.reserve), (0.3, 4));

    assert_eq!(config.targets[2].matches.urls, ["http://10.0.0.1:8000/v1"]);
    assert_eq!(config.targets[3].matches.urls, ["http://10.0.0.2"]);
    assert_eq!(config.tools["db"], ToolConfig::with_cap(8));
    assert_eq!(
        config.tools["search"],
        ToolConfig {
            queue: 16,
            wait: Some(secs(5)),
            rpm: Some(90),
            latency: Some(Duration::from_millis(200)),
            // The default start is 8, but the cap limits it to 4.
            limit: LimitConfig::Adaptive(AdaptiveConfig { start: 4, ..AdaptiveConfig::default() }),
            ..ToolConfig::with_cap(4)
        }
    );
    assert_eq!(
        config.tools["shell"],
        ToolConfig {
            on_full: OnFull::Refuse,
            rps: Some(0.5),
            limit: LimitConfig::Adaptive(AdaptiveConfig {
                start: 1,
                detector: Detector::Percentile(Percentile::default()),
                ..AdaptiveConfig::default()
            }),
            ..ToolConfig::with_cap(1)
        }
    );
    let share =
        ShareConfig { store: ShareStore::Off, name: "web_1".into(), strict: true, ..ShareConfig::default() };
    assert_eq!(config.share, share);
    assert_eq!(
        config.transport,
        TransportConfig {
            connect: secs(3),
            proxy_from_env: false,
            pool_idle: 16,
            pool_idle_timeout: secs(20),
            http2_streams: 50,
            http2_prior_knowledge: true,
        }
    );
}

#[test]
fn each_layer_replaces_single_keys_of_the_one_below() {
    let config = Config::from_toml(FULL).unwrap();
    let (anthropic, openai) = (&config.targets[0], &config.targets[1]);

    // This target and targets that are not configured inherit these values from `defaults`.
    for target in [anthropic, &config.default_target] {
        assert_eq!((target.queue, target.deadline, target.idle), (500, secs(300), Some(secs(60))));
        assert_eq!((target.retry.attempts, target.retry.ratio, target.retry.reserve), (3, 0.1, 10));
        assert_eq!(target.default_tenant, tenant(1.0, Some(6), None));
        let acme = TenantConfig { floor: 0.2, tpm: Some(250_000), ..tenant(2.0, Some(20), Some(7)) };
        assert_eq!(target.tenants["acme"], acme);
    }
    assert_eq!((anthropic.cap, config.default_target.cap), (32, TargetConfig::new("default").cap));

    let other = TenantConfig { tpm: Some(90_000), shed: false, ..tenant(3.0, Some(6), Some(9)) };
    assert_eq!(openai.default_tenant, other);
    let acme = TenantConfig { floor: 0.2, tpm: Some(250_000), ..tenant(4.0, Some(20), Some(7)) };
    assert_eq!(openai.tenants["acme"], acme);
    assert_eq!(openai.tenants["batch"], TenantConfig { shed: false, ..tenant(0.5, None, None) });
    assert_eq!(openai.tenants["beta"], TenantConfig { floor: 0.1, ..tenant(1.0, Some(1), None) });
    assert!(!anthropic.tenants.contains_key("beta"));
}

#[test]
fn inherited_settings_can_be_switched_off() {
    let config = Config::from_json(json!({
        "defaults": {"wait": "10s"},
        "tenants": {"acme": {"cap": 4, "queue": 2}},
        "targets": {"openai": {"wait": null, "tenants": {"acme": {"cap": "none", "queue": false}}}},
    }))
    .unwrap();
    assert_eq!(config.targets[0].wait, None);
    assert_eq!(config.targets[0].tenants["acme"], tenant(1.0, None, None));
    assert_eq!(config.default_target.wait, Some(secs(10)));
}

#[test]
fn durations_are_seconds_or_text_with_units() {
    let forms = [
        (json!("500ms"), Duration::from_millis(500)),
        (json!("30s"), secs(30)),
        (json!("1.5s"), Duration::from_millis(1_500)),
        (json!("2m"), secs(120)),
        (json!("1h30m"), secs(5_400)),
        (json!("1h 30m"), secs(5_400)),
        (json!("1hour 30min 10seconds"), secs(5_410)),
        (json!("30d"), secs(30 * 86_400)),
        (json!(30), secs(30)),
        (json!(0.001), Duration::from_millis(1)),
        (json!(2.5), Duration::from_millis(2_500)),
    ];
    for (given, expected) in forms {
        let config = Config::from_json(json!({"defaults": {"deadline": given}})).unwrap();
        assert_eq!(config.default_target.deadline, expected, "{given}");
    }
}

#[test]
fn floats_without_a_fraction_are_whole_numbers() {
    let config =
        Config::from_json(json!({"targets": {"openai": {"cap": 8.0}}, "tools": {"db": 2.0}})).unwrap();
    assert_eq!((config.targets[0].cap, config.tools["db"].cap), (8, 2));
}

#[test]
fn tenant_cap_may_exceed_the_target_cap() {
    let config = Config::from_json(json!({"targets": {"openai": {"cap": 4, "tenants": {"a": {"cap": 64}}}}}));
    assert_eq!(config.unwrap().targets[0].tenants["a"].cap, Some(64));
}

#[test]
fn short_deadline_is_valid_without_other_keys() {
    // The defaults of `idle` and `stall` are longer, and the deadline ends the call first.
    let config = Config::from_json(json!({"targets": {"openai": {"deadline": "5s"}}})).unwrap();
    assert_eq!(config.targets[0].deadline, secs(5));
}
