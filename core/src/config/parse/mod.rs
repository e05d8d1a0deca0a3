//! From text, dict or builder to a checked [`Config`].
//!
//! Every source becomes one generic [`tree`], and one walker turns the tree into the model, so that a mistake gets the same
//! answer wherever it was made: the full path of the key, what was given, what is allowed, and for files the line. All
//! problems are gathered before any is reported.
//!
//! Invariant: what leaves here is in the ranges that the model states, and no error repeats a value that may be a credential.

mod conflicts;
mod json;
mod nearest;
mod problems;
mod section;
mod target;
mod toml;
pub(super) mod tree;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::problems::Problems;
use self::section::Spot;
pub(super) use self::tree::describe_text;
use self::tree::{Node, Value};
use self::value::{duration, flag, one_of, or_off, whole};
use super::{Config, Mode, OnFull, TargetConfig, TenantConfig, ToolConfig, TransportConfig};
use crate::Error;

const TOP: &[&str] = &["mode", "defaults", "targets", "tenants", "tools", "transport"];
const TOOL: &[&str] = &["cap", "queue", "wait", "on_full"];
const TRANSPORT: &[&str] = &[
    "connect",
    "proxy_from_env",
    "pool_idle",
    "pool_idle_timeout",
    "http2_streams",
    "http2_prior_knowledge",
];

/// Where each key belongs, for one that is found elsewhere.
struct Place {
    described: &'static str,
    keys: &'static [&'static str],
}

const PLACES: &[Place] = &[
    Place { described: "the top level", keys: TOP },
    Place { described: "\"targets.NAME\" or \"defaults\"", keys: target::SETTINGS },
    Place { described: "\"targets.NAME\"", keys: target::MATCHES },
    Place { described: "\"retry\" of a target or of \"defaults\"", keys: target::RETRY },
    Place { described: "\"tenants.ID\" or \"default_tenant\"", keys: target::TENANT },
    Place { described: "\"transport\"", keys: TRANSPORT },
];

const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe), ("off", Mode::Off)];
const ON_FULL: &[(&str, OnFull)] = &[("wait", OnFull::Wait), ("refuse", OnFull::Refuse)];

/// The range of every cap.
const CAP: std::ops::RangeInclusive<usize> = 1..=65_536;
/// The range of every queue bound.
const QUEUE: std::ops::RangeInclusive<usize> = 0..=1_000_000;

/// Reads TOML; `file` is how errors call it.
pub(super) fn from_toml(text: &str, file: Option<&str>) -> Result<Config, Error> {
    let problems = Problems::default();
    let config = toml::read(text, &problems).map(|root| walk(&root, &problems));
    problems.into_result(file)?;
    // Without a root there was a problem, so this default is never seen.
    Ok(config.unwrap_or_default())
}

/// Reads JSON.
pub(super) fn from_json(value: &serde_json::Value) -> Result<Config, Error> {
    from_tree(&json::read(value))
}

/// Reads what a builder wrote.
pub(super) fn from_tree(root: &Node) -> Result<Config, Error> {
    let problems = Problems::default();
    let config = walk(root, &problems);
    problems.into_result(None)?;
    Ok(config)
}

fn walk(root: &Node, problems: &Problems) -> Config {
    let mut config = Config::default();
    if !matches!(root.value, Value::Table(_)) {
        problems.add(root.line, format!("the configuration must be a table; got {}", root.value.describe()));
        return config;
    }
    let root = Spot { path: String::new(), line: root.line, value: &root.value, problems };
    let Some(top) = root.section(TOP) else { return config };

    top.set("mode", &mut config.mode, one_of(MODES));
    if let Some(spot) = top.get("transport") {
        transport(spot, &mut config.transport);
    }
    if let Some(spot) = top.get("tools") {
        config.tools = spot
            .named()
            .into_iter()
            .filter_map(|(name, spot)| Some((name.to_owned(), tool(spot)?)))
            .collect();
    }

    // Each layer is read over the one below it: top-level tenants, then defaults, then the target's own words.
    let mut base = TargetConfig::named("default");
    if let Some(spot) = top.get("tenants") {
        target::tenants(spot, &mut base.tenants);
    }
    if let Some(spot) = top.get("defaults") {
        target::defaults(spot, &mut base);
    }
    if let Some(spot) = top.get("targets") {
        config.targets = target::targets(spot, &base);
    }
    config.default_target = base;
    config
}

fn transport(spot: Spot<'_>, into: &mut TransportConfig) {
    let Some(section) = spot.section(TRANSPORT) else { return };
    section.set("connect", &mut into.connect, duration);
    section.set("proxy_from_env", &mut into.proxy_from_env, flag);
    section.set("pool_idle", &mut into.pool_idle, whole(0..=65_536));
    section.set("pool_idle_timeout", &mut into.pool_idle_timeout, duration);
    section.set("http2_streams", &mut into.http2_streams, whole(1..=10_000));
    section.set("http2_prior_knowledge", &mut into.http2_prior_knowledge, flag);
}

/// A tool is its cap, or a table that holds one.
fn tool(spot: Spot<'_>) -> Option<ToolConfig> {
    if !matches!(spot.value, Value::Table(_)) {
        return spot.read(whole(CAP)).map(ToolConfig::capped);
    }
    let section = spot.section(TOOL)?;
    if !section.has("cap") {
        section.complain(&[], "needs a \"cap\": a tool is named in order to be capped");
    }
    let mut tool = ToolConfig::capped(*CAP.start());
    section.set("cap", &mut tool.cap, whole(CAP));
    section.set("queue", &mut tool.queue, whole(QUEUE));
    section.set("wait", &mut tool.wait, or_off(duration));
    section.set("on_full", &mut tool.on_full, one_of(ON_FULL));
    if tool.on_full == OnFull::Refuse && tool.wait.is_some() {
        section.complain(
            &["wait"],
            "a tool that refuses has nothing that waits; drop it, or set on_full = \"wait\"",
        );
    }
    Some(tool)
}

/// Tenants by their ids.
type Tenants = BTreeMap<Arc<str>, TenantConfig>;
