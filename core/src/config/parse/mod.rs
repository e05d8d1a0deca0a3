//! From text, dict or builder to a checked [`Config`].
//!
//! Every source becomes one generic [`tree`], and one walker turns the tree into the model, so that a mistake gets the same
//! answer wherever it was made: the full path of the key, what was given, what is allowed, and for files the line. All
//! problems are gathered before any is reported.
//!
//! Invariant: what leaves here is in the ranges that the model states, and no error repeats a value that may be a credential.

mod admission;
mod conflicts;
mod fallback;
mod json;
mod limit;
mod nearest;
mod pool;
mod problems;
mod rates;
mod section;
mod shares;
mod target;
mod toml;
pub(super) mod tree;
mod value;

pub use self::pool::replicas_in_file;
pub(super) use self::pool::told;
use self::problems::Problems;
use self::section::Given;
pub use self::tree::describe_text;
use self::tree::{Node, Value};
use self::value::{count, duration, flag, number, one_of, or_none, whole};
use super::{
    Config, ConfigError, LimitConfig, Mode, OnFull, ReplicaConfig, TargetConfig, ToolConfig, TransportConfig,
};

const TOP: &[&str] = &["mode", "defaults", "targets", "tenants", "budgets", "tools", "transport"];
const TOOL: &[&str] = &["cap", "limit", "latency", "queue", "wait", "on_full", "rps", "rpm"];
const TRANSPORT: &[&str] = &[
    "connect",
    "proxy_from_env",
    "pool_idle",
    "pool_idle_timeout",
    "http2_streams",
    "http2_prior_knowledge",
];

/// Where each key belongs, for one that is found elsewhere.
struct KeyLocation {
    described: &'static str,
    keys: &'static [&'static str],
}

const PLACES: &[KeyLocation] = &[
    KeyLocation { described: "the top level", keys: TOP },
    KeyLocation { described: "\"targets.NAME\" or \"defaults\"", keys: target::SETTINGS },
    KeyLocation { described: "\"targets.NAME\"", keys: target::OWN },
    KeyLocation { described: "\"pool\" of a target", keys: pool::POOL },
    KeyLocation { described: "a replica of a \"pool\"", keys: pool::REPLICA },
    KeyLocation { described: "\"retry\" of a target or of \"defaults\"", keys: target::RETRY },
    KeyLocation { described: "\"targets.NAME\", \"defaults\" or \"budgets.NAME\"", keys: rates::RATES },
    KeyLocation { described: "\"tenants.ID\" or \"default_tenant\"", keys: shares::TENANT },
    KeyLocation { described: "\"lanes\" of a target or of \"defaults\"", keys: shares::LANES },
    // The rest of a tool's keys have counterparts in a target, which are nearer.
    KeyLocation { described: "\"tools.NAME\"", keys: &["latency"] },
    KeyLocation { described: "\"limit\" of a target, of \"defaults\" or of a tool", keys: limit::LIMIT },
    KeyLocation { described: "\"detector\" of a limit", keys: limit::PERCENTILE },
    KeyLocation { described: "\"transport\"", keys: TRANSPORT },
];

/// Every key, by the heading under which the reference of settings has it.
#[cfg(test)]
pub(super) const KEYS: &[(&str, &[&str])] = &[
    ("Top level", TOP),
    ("Targets", target::OWN),
    ("Targets", target::SETTINGS),
    ("Targets", target::RETRY),
    ("Pools", pool::POOL),
    ("Pools", pool::REPLICA),
    ("Limits", limit::LIMIT),
    ("Limits", limit::DECREASE),
    ("Limits", limit::PERCENTILE),
    ("Rates", rates::RATES),
    ("Lanes", shares::LANES),
    ("Lanes", shares::LANE),
    ("Tenants", shares::TENANT),
    ("Tools", TOOL),
    ("Transport", TRANSPORT),
];

const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe), ("off", Mode::Off)];
const ON_FULL: &[(&str, OnFull)] =
    &[(OnFull::Wait.as_str(), OnFull::Wait), (OnFull::Refuse.as_str(), OnFull::Refuse)];

/// The range of every cap.
const CAP: std::ops::RangeInclusive<usize> = 1..=65_536;
/// The range of every queue bound.
const QUEUE: std::ops::RangeInclusive<usize> = 0..=1_000_000;

/// Reads TOML.
pub(super) fn from_toml(text: &str) -> Result<Config, ConfigError> {
    let problems = Problems::default();
    let config = toml::read(text, &problems).map(|root| walk(&root, &problems));
    // Without a root there was a problem, so this default is never seen.
    problems.into_result(config.unwrap_or_default())
}

/// Reads JSON.
pub(super) fn from_json(value: &serde_json::Value) -> Result<Config, ConfigError> {
    from_tree(&json::read(value))
}

/// Reads a list of replicas from JSON.
pub fn replicas_from_json(list: &serde_json::Value) -> Result<Vec<ReplicaConfig>, ConfigError> {
    told(&json::read(list))
}

/// Reads what a builder wrote.
pub(super) fn from_tree(root: &Node) -> Result<Config, ConfigError> {
    let problems = Problems::default();
    let config = walk(root, &problems);
    problems.into_result(config)
}

fn walk(root: &Node, problems: &Problems) -> Config {
    let mut config = Config::default();
    if !matches!(root.value, Value::Table(_)) {
        problems.add(
            root.line,
            "",
            format!("the configuration must be a table; got {}", root.value.describe()),
        );
        return config;
    }
    let root = Given { path: String::new(), line: root.line, value: &root.value, problems };
    let Some(top) = root.section(TOP) else { return config };

    top.set("mode", &mut config.mode, one_of(MODES));
    if let Some(given) = top.get("transport") {
        transport(given, &mut config.transport);
    }
    if let Some(given) = top.get("tools") {
        config.tools = given
            .named()
            .into_iter()
            .filter_map(|(name, given)| Some((name.to_owned(), tool(given)?)))
            .collect();
    }

    // Each layer is read over the one below it: top-level tenants, then defaults, then the target's own words.
    let mut base = TargetConfig::new("default");
    let mut limit = limit::LimitLayers::default();
    if let Some(given) = top.get("tenants") {
        shares::tenants(given, &mut base.tenants);
        shares::check_floors(&top, &base);
    }
    if let Some(given) = top.get("budgets") {
        config.budgets = rates::budgets(given);
    }
    let fallback = top.get("defaults").and_then(|given| given.child("fallback"));
    if let Some(given) = top.get("defaults") {
        target::defaults(given, &mut base, &mut limit, &config.budgets);
    }
    let inherited = target::Inherited { base: &base, limit: &limit, fallback, budgets: &config.budgets };
    config.targets = target::targets(top.get("targets"), &inherited, problems);
    config.default_target = base;
    target::default_tpot(top.get("defaults"), &mut config, &limit);
    if problems.count() == 0 {
        rates::unused(&top, &config);
    }
    config
}

fn transport(given: Given<'_>, into: &mut TransportConfig) {
    let Some(section) = given.section(TRANSPORT) else { return };
    section.set("connect", &mut into.connect, duration);
    section.set("proxy_from_env", &mut into.proxy_from_env, flag);
    section.set("pool_idle", &mut into.pool_idle, whole(0..=65_536));
    section.set("pool_idle_timeout", &mut into.pool_idle_timeout, duration);
    section.set("http2_streams", &mut into.http2_streams, whole(1..=10_000));
    section.set("http2_prior_knowledge", &mut into.http2_prior_knowledge, flag);
}

/// A tool is its cap, or a table that holds one.
fn tool(given: Given<'_>) -> Option<ToolConfig> {
    if !matches!(given.value, Value::Table(_)) {
        return given.read(whole(CAP)).map(ToolConfig::with_cap);
    }
    let section = given.section(TOOL)?;
    if !section.has("cap") {
        section.reject(&[], "needs a \"cap\": a tool is named in order to be capped");
    }
    let mut tool = ToolConfig::with_cap(*CAP.start());
    section.set("cap", &mut tool.cap, whole(CAP));
    section.set("latency", &mut tool.latency, or_none(duration));
    let mut limit = limit::LimitLayers::of_a_tool();
    limit.read(&section);
    limit.cannot_await(&section);
    if section.has("cap") {
        limit.order(&section, tool.cap, "cap");
    }
    tool.limit = limit.in_force(tool.cap, tool.latency.is_some());
    if tool.limit == LimitConfig::Fixed && tool.latency.is_some() {
        section.reject(&["latency"], limit.why_fixed("latency"));
    }
    section.set("queue", &mut tool.queue, whole(QUEUE));
    section.set("wait", &mut tool.wait, or_none(duration));
    section.set("on_full", &mut tool.on_full, one_of(ON_FULL));
    section.set("rps", &mut tool.rps, or_none(number(0.001..=1e6)));
    section.set("rpm", &mut tool.rpm, or_none(count(rates::REQUESTS)));
    if tool.rps.is_some() && tool.rpm.is_some() {
        section.reject(&["rpm"], "a tool has one rate; drop this or \"rps\"");
    }
    if tool.on_full == OnFull::Refuse && tool.wait.is_some() {
        section.reject(
            &["wait"],
            "a tool that refuses has nothing that waits; drop it, or set on_full = \"wait\"",
        );
    }
    Some(tool)
}
