//! Property tests: any input is read or rejected without a panic, no value of a configuration is
//! out of range, no error contains a secret, and all sources give the same result.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::FULL;
use crate::{
    AdaptiveConfig, Config, ConfigError, Decrease, Detector, LimitConfig, Matcher, Percentile, RateConfig,
    TargetConfig, TenantConfig,
};

/// Keys for random trees. Most are valid, so that the trees have nested tables.
const KEYS: &[&str] = &[
    "mode",
    "defaults",
    "targets",
    "tenants",
    "tools",
    "transport",
    "share",
    "store",
    "name",
    "strict",
    "password_env",
    "cluster",
    "sentinel",
    "url",
    "models",
    "cap",
    "queue",
    "wait",
    "on_full",
    "deadline",
    "first_token",
    "idle",
    "ttft",
    "tpot",
    "limit",
    "start",
    "min",
    "awaiting",
    "decrease",
    "step",
    "detector",
    "quantile",
    "window",
    "tick",
    "band",
    "hold",
    "latency",
    "retry",
    "default_tenant",
    "weight",
    "attempts",
    "base",
    "max",
    "ratio",
    "connect",
    "http2_streams",
    "budgets",
    "budget",
    "rpm",
    "tpm",
    "burst",
    "counting",
    "rps",
    "lanes",
    "interactive",
    "batch",
    "floor",
    "backlog",
    "short_bias",
    "predict",
    "max_prompt",
    "kv_tokens",
    "kv_headroom",
    "tokenizer",
    "fallback",
    "model",
    "key_env",
    "forward_headers",
    "openai",
    "groq",
    "acme",
    "capp",
    "",
    "a b",
    "\n",
    "ключ",
];
const WORDS: &[&str] = &[
    "adaptive",
    "fixed",
    "served",
    "percentile",
    "wait",
    "refuse",
    "off",
    "local",
    "none",
    "30s",
    "500ms",
    "1h30m",
    "-1s",
    "18446744073709551615s 1000ms",
    "1e309d",
    "8",
    "2M",
    "1.5k",
    "99999999999999999999M",
    "objective",
    "openai",
    "groq",
    "acme",
    "gpt-4o*",
    "**",
    "https://api.openai.com/v1",
    "https://u:p@h",
    "http://[::1",
    "ünïcode",
    "",
    "\0",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..70_000).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0.0..100.0).prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
        ".{0,30}".prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    let key = prop_oneof![9 => prop::sample::select(KEYS).prop_map(str::to_owned), 1 => ".{0,12}"];
    leaf().prop_recursive(6, 120, 8, move |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::from),
            5 => vec((key.clone(), inner), 0..8).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn tenant_is_in_range(tenant: &TenantConfig) -> bool {
    (0.001..=1e6).contains(&tenant.weight)
        && tenant.cap.is_none_or(|cap| (1..=65_536).contains(&cap))
        && (0.0..=1.0).contains(&tenant.floor)
        && tenant.tpm.is_none_or(is_count)
}

fn is_count(count: u64) -> bool {
    (1..=1_000_000_000_000).contains(&count)
}

fn rates_are_in_range(rates: &RateConfig) -> bool {
    let RateConfig { rpm, rpd, tpm, tpd, itpm, otpm, burst, counting: _, headers: _ } = rates;
    [rpm, rpd].into_iter().flatten().all(|rate| (1..=1_000_000_000).contains(rate))
        && [tpm, tpd, itpm, otpm].into_iter().flatten().all(|rate| is_count(*rate))
        && (Duration::from_millis(100)..=Duration::from_secs(60)).contains(burst)
}

fn limit_is_in_range(limit: &LimitConfig, cap: usize) -> bool {
    let LimitConfig::Adaptive(AdaptiveConfig { start, min, detector, decrease, awaiting }) = limit else {
        return true;
    };
    let decrease = match decrease {
        Decrease::Served => true,
        Decrease::Factor(share) => (0.1..=0.99).contains(share),
        Decrease::Step(slots) => (1..=65_536).contains(slots),
    };
    let detector = match detector {
        Detector::Exceedance => true,
        Detector::Percentile(Percentile { quantile, window, tick, band, hold }) => {
            (0.01..=0.999).contains(quantile)
                && (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(window)
                && *tick >= Duration::from_millis(100)
                && tick <= window
                && (0.0..=0.9).contains(band)
                && *hold <= 1_000
        }
    };
    1 <= *min
        && min <= start
        && *start <= cap
        && awaiting.is_none_or(|calls| (1..=65_536).contains(&calls))
        && decrease
        && detector
}

fn floors(target: &TargetConfig) -> f64 {
    let tenants = target.tenants.values().map(|tenant| tenant.floor);
    tenants.chain(target.lanes.iter().map(|lane| lane.floor)).sum()
}

/// Returns `true` if the budget of a target exists, and its chain of fallbacks names only existing
/// targets and has no cycle.
fn references_are_valid(config: &Config, target: &TargetConfig) -> bool {
    let budget = target.budget.as_ref().is_none_or(|name| config.budgets.contains_key(name));
    let mut at = target;
    for _ in 0..=config.targets.len() {
        let Some(name) = &at.fallback else { return budget };
        let Some(next) = config.targets.iter().find(|target| target.name == *name) else { return false };
        at = next;
    }
    false
}

/// Returns `true` if every value of a target is in its range.
fn target_is_in_range(target: &TargetConfig) -> bool {
    let month = Duration::from_secs(30 * 86_400);
    let possible = |time: Duration| time >= Duration::from_millis(1) && time <= month;
    (1..=65_536).contains(&target.cap)
        && target.queue <= 1_000_000
        && possible(target.deadline)
        && possible(target.aging)
        && [target.wait, target.first_token, target.ttft]
            .into_iter()
            .chain(target.lanes.iter().flat_map(|lane| [lane.wait, lane.ttft]))
            .flatten()
            .all(|time| possible(time) && time <= target.deadline)
        && target.backlog <= 1_000_000
        && target.short_bias.is_none_or(possible)
        && [target.max_prompt, target.kv_tokens].into_iter().flatten().all(is_count)
        && (0.0..=0.9).contains(&target.kv_headroom)
        && target.tpot.is_none_or(|time| possible(time) && time <= target.deadline)
        && limit_is_in_range(&target.limit, target.cap)
        && (target.limit != LimitConfig::Fixed || target.tpot.is_none())
        && rates_are_in_range(&target.rates)
        && (target.budget.is_none() || target.rates == RateConfig::default())
        && target.lanes.iter().all(|lane| (0.0..=1.0).contains(&lane.floor))
        && target.default_tenant.floor == 0.0
        && floors(target) <= 1.0 + 1e-6
        && [target.wait, target.first_token, target.ttft, target.idle, target.stall]
            .into_iter()
            .flatten()
            .all(possible)
        && target.retry.base <= target.retry.max
        && (1..=100).contains(&target.retry.attempts)
        && tenant_is_in_range(&target.default_tenant)
        && target.tenants.iter().all(|(id, tenant)| !id.is_empty() && tenant_is_in_range(tenant))
}

fn check(result: Result<Config, ConfigError>) {
    match result {
        Ok(config) => {
            assert!(
                config.targets.iter().chain([&config.default_target]).all(target_is_in_range),
                "{config:?}"
            );
            assert!(config.tools.values().all(|tool| (1..=65_536).contains(&tool.cap)), "{config:?}");
            assert!(config.tools.values().all(|tool| limit_is_in_range(&tool.limit, tool.cap)), "{config:?}");
            assert!(config.tools.values().all(|tool| tool.rps.is_none() || tool.rpm.is_none()), "{config:?}");
            assert!(config.budgets.values().all(rates_are_in_range), "{config:?}");
            assert!((1..=40).contains(&config.share.name.len()), "{config:?}");
            let mut all = config.targets.iter().chain([&config.default_target]);
            assert!(all.all(|target| references_are_valid(&config, target)), "{config:?}");
            Matcher::new(&config.targets).unwrap();
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(
                error
                    .to_string()
                    .lines()
                    .all(|line| line.contains(": ") || line.starts_with("the configuration"))
            );
        }
    }
}

/// Generates valid settings of a target, as JSON.
fn valid_target() -> impl Strategy<Value = Value> {
    let time = prop_oneof![
        (1u64..600).prop_map(Value::from),
        (0.001..600.0).prop_map(Value::from),
        (1u64..600_000).prop_map(|ms| json!(format!("{ms}ms"))),
    ];
    let keys = (
        prop::option::of((1..=65_536u64).prop_map(Value::from)),
        prop::option::of((0..=1_000_000u64).prop_map(Value::from)),
        prop::option::of(prop_oneof![time.clone(), Just(json!("none")), Just(json!(false))]),
        prop::option::of(prop_oneof![Just(json!("wait")), Just(json!("refuse"))]),
        prop::option::of(time),
        prop::option::of(
            ((0.001..1e6), (0.0..=0.5))
                .prop_map(|(weight, floor)| json!({"acme": {"weight": weight, "cap": 3, "floor": floor}})),
        ),
        prop::option::of(prop_oneof![
            (1..=1_000_000u64).prop_map(Value::from),
            (1..=9_000u64).prop_map(|number| json!(format!("{number}k"))),
        ]),
        prop::option::of((0.0..=0.5).prop_map(|floor| json!({"batch": {"floor": floor, "wait": "1ms"}}))),
        prop::option::of((0.0..=0.9).prop_map(Value::from)),
        prop::option::of(prop_oneof![
            Just(json!("adaptive")),
            Just(json!("fixed")),
            (1..99usize, 0.1..=0.99).prop_map(|(start, share)| json!({"start": start, "decrease": share})),
            (1..99usize, 0.0..=0.9).prop_map(|(min, band)| json!({"min": min, "detector": {"band": band}})),
        ]),
    );
    keys.prop_map(|(cap, queue, wait, on_full, idle, tenants, tpm, lanes, kv_headroom, limit)| {
        let keys = [
            ("cap", cap),
            ("queue", queue),
            ("wait", wait),
            ("on_full", on_full),
            ("idle", idle),
            ("tenants", tenants),
            ("tpm", tpm),
            ("lanes", lanes),
            ("kv_headroom", kv_headroom),
            ("limit", limit),
        ];
        let given = keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Object(given.collect::<Map<_, _>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_json_is_read_or_rejected(tree in tree()) {
        check(Config::from_json(tree));
    }

    #[test]
    fn any_text_is_read_or_rejected(text in ".{0,200}") {
        check(Config::from_toml(&text));
    }

    #[test]
    fn any_damaged_file_is_read_or_rejected(at in 0..FULL.len(), cut in 0usize..20, put in ".{0,8}") {
        prop_assume!(FULL.is_char_boundary(at));
        let rest = FULL.get(at + cut..).unwrap_or_default();
        check(Config::from_toml(&format!("{}{put}{rest}", &FULL[..at])));
    }

    #[test]
    fn any_string_is_a_duration_or_rejected(text in "[0-9a-z. µ-]{0,30}") {
        check(Config::from_json(json!({"defaults": {"deadline": text}})));
    }

    #[test]
    fn toml_and_json_give_the_same_configuration(
        defaults in valid_target(),
        targets in prop::collection::hash_map("[a-z]{1,8}", valid_target(), 0..5),
        tools in prop::collection::hash_map(".{0,2}[a-z]", 1u64..100, 0..4),
    ) {
        let targets: Map<String, Value> = targets
            .into_iter()
            .map(|(name, mut target)| {
                target["url"] = json!(format!("http://{name}.example/v1"));
                (name, target)
            })
            .collect();
        let tree = json!({"defaults": defaults, "targets": targets, "tools": tools});
        let text = toml::to_string(&tree).unwrap();
        match (Config::from_toml(&text), Config::from_json(tree)) {
            (Ok(toml), Ok(json)) => prop_assert_eq!(toml, json),
            (Err(toml), Err(json)) => {
                prop_assert_eq!(toml.to_string().lines().count(), json.to_string().lines().count());
            }
            (toml, json) => prop_assert!(false, "{:?}\n{:?}", toml, json),
        }
    }

    #[test]
    fn floors_are_rejected_if_their_sum_exceeds_one(
        tenants in prop::collection::btree_map("[a-z]{1,3}", 0u32..=60, 0..5),
        lanes in prop::array::uniform3(0u32..=60),
    ) {
        // The floors are generated as hundredths, because the sum of integers is exact.
        let sum: u32 = tenants.values().chain(&lanes).sum();
        let share = |hundredths: &u32| json!({"floor": f64::from(*hundredths) / 100.0});
        let tenants: Map<String, Value> = tenants.iter().map(|(id, floor)| (id.clone(), share(floor))).collect();
        let [interactive, standard, batch] = lanes.map(|floor| share(&floor));
        let lanes = json!({"interactive": interactive, "standard": standard, "batch": batch});
        let read = Config::from_json(json!({"targets": {"openai": {"tenants": tenants, "lanes": lanes}}}));
        match read {
            Ok(_) => prop_assert!(sum <= 100, "{}", sum),
            Err(error) => {
                prop_assert!(sum > 100, "{}: {}", sum, error);
                let said = format!("the floors sum to {}, above 1", f64::from(sum) / 100.0);
                prop_assert!(error.to_string().contains(&said), "{}", error);
            }
        }
    }

    #[test]
    fn fallbacks_are_rejected_if_they_form_a_cycle(next in vec(prop::option::of(0usize..6), 6)) {
        let targets: Map<String, Value> = next
            .iter()
            .enumerate()
            .map(|(at, next)| {
                let fallback = next.map_or(json!(false), |next| json!(format!("t{next}")));
                let url = format!("http://10.0.0.{at}/v1");
                (format!("t{at}"), json!({"url": url, "models": format!("m{at}"), "fallback": fallback}))
            })
            .collect();
        // Without a cycle, a chain of six targets ends before the eight steps taken here.
        let step = |of: &[Option<usize>]| of.iter().map(|at| of[(*at)?]).collect::<Vec<_>>();
        let endless = step(&step(&step(&next))).iter().any(Option::is_some);
        let read = Config::from_json(json!({"targets": targets}));
        prop_assert_eq!(read.is_err(), endless, "{:?}", read);
        check(read);
    }

    #[test]
    fn errors_never_repeat_a_misplaced_credential(
        key in prop::sample::select(KEYS),
        inner in prop::sample::select(KEYS),
        secret in "sk-[A-Za-z0-9]{30,60}",
        form in 0..5,
    ) {
        let value = match form {
            0 => secret.clone(),
            1 => format!("https://me:{secret}@host.example/v1"),
            2 => format!("https://host.example/v1?key={secret}"),
            3 => format!("me:{secret}@host.example"),
            _ => format!("https:///{secret}@host"),
        };
        let trees = [
            json!({key: value.as_str()}),
            json!({key: {inner: value.as_str()}}),
            json!({"targets": {"openai": {key: value.as_str()}}}),
            json!({"targets": {"openai": {key: {inner: value.as_str()}}}}),
        ];
        for tree in trees {
            let text = toml::to_string(&tree).unwrap();
            for result in [Config::from_json(tree), Config::from_toml(&text), Config::from_toml(&text.replace('\'', ""))] {
                if let Err(error) = result {
                    prop_assert!(!format!("{error} {error:?}").contains(&secret), "{error}");
                }
            }
        }
    }
}

#[test]
fn deeply_nested_trees_are_rejected() {
    let mut tree = json!(8);
    for _ in 0..500 {
        tree = json!({"targets": [tree]});
    }
    check(Config::from_json(tree.clone()));
    assert!(Config::from_json(tree).is_err());
    let depth = 100_000;
    for text in [
        format!("mode = {}", "[".repeat(depth)),
        format!("mode = {}", "{a=".repeat(depth)),
        format!("{}a = 1", "a.".repeat(depth)),
        format!("[{}a]", "a.".repeat(depth)),
        format!("[[{}a]]", "a.".repeat(depth)),
    ] {
        assert!(Config::from_toml(&text).is_err());
    }
}
