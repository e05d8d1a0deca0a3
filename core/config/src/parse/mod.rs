//! Reads TOML, JSON and builders into a checked [`Config`].
//!
//! Every source is converted to one generic tree, and the tree is read once. So the same mistake
//! has the same error in every source: the key path, what was given, what is allowed, and for files
//! the line. All problems are collected before any is reported.
//!
//! Invariant: every value of the result is in its declared range, and no error repeats a value that
//! may be a credential.

mod conflicts;
mod fallback;
mod json;
mod limit;
mod pool;
mod rates;
mod shares;
mod target;
mod toml;

use self::limit::LimitLayers;
pub(super) use self::pool::replica_list;
pub use self::pool::replicas_in_file;
use super::schema::declaration::{Group, names};
use super::schema::given::Given;
use super::schema::problems::Problems;
use super::schema::setting::{Scalar, Setting};
use super::schema::tree::{Node, Value};
use super::schema::{CAP, TOOL, TOP};
use super::{Config, ConfigError, LimitConfig, OnFull, ReplicaConfig, TargetConfig, ToolConfig};

/// Reads a configuration from TOML.
pub(super) fn from_toml(text: &str) -> Result<Config, ConfigError> {
    let problems = Problems::default();
    let config = toml::read(text, &problems).map(|root| read_config(&root, &problems));
    // Without a root there was a problem, so this default is never seen.
    problems.into_result(config.unwrap_or_default())
}

/// Reads a configuration from JSON.
pub(super) fn from_json(value: &serde_json::Value) -> Result<Config, ConfigError> {
    from_tree(&json::read(value))
}

/// Reads a list of replicas from JSON.
///
/// # Errors
/// Every problem found.
pub fn replicas_from_json(list: &serde_json::Value) -> Result<Vec<ReplicaConfig>, ConfigError> {
    replica_list(&json::read(list))
}

/// Reads a configuration from the tree that a builder wrote.
pub(super) fn from_tree(root: &Node) -> Result<Config, ConfigError> {
    let problems = Problems::default();
    let config = read_config(root, &problems);
    problems.into_result(config)
}

fn read_config(root: &Node, problems: &Problems) -> Config {
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
    let Some(top) = root.section(&names(&[&TOP])) else { return config };

    top.set("mode", &mut config.mode, &());
    top.set("transport", &mut config.transport, &());
    if let Some(given) = top.get("tools") {
        config.tools = given
            .named()
            .into_iter()
            .filter_map(|(name, given)| Some((name.to_owned(), read_tool(given)?)))
            .collect();
    }

    // Each layer is read over the one before: top-level tenants, then defaults, then the target.
    let mut base = TargetConfig::new("default");
    let mut limit = limit::LimitLayers::default();
    if let Some(given) = top.get("tenants") {
        base.tenants.overlay(given, &());
        shares::check_floors(&top, &base);
    }
    if let Some(given) = top.get("budgets") {
        config.budgets = rates::read_budgets(given);
    }
    let fallback = top.get("defaults").and_then(|given| given.child("fallback"));
    if let Some(given) = top.get("defaults") {
        target::read_defaults(given, &mut base, &mut limit, &config.budgets);
    }
    let inherited = target::Inherited { base: &base, limit: &limit, fallback, budgets: &config.budgets };
    config.targets = target::read_targets(top.get("targets"), &inherited, problems);
    config.default_target = base;
    target::resolve_default_tpot(top.get("defaults"), &mut config, &limit);
    if problems.count() == 0 {
        rates::check_unused(&top, &config);
    }
    config
}

/// Reads a tool: its cap, or a table.
fn read_tool(given: Given<'_>) -> Option<ToolConfig> {
    if !matches!(given.value, Value::Table(_)) {
        return given.read(|value| usize::read(value, &CAP)).map(ToolConfig::with_cap);
    }
    let section = given.section(&names(&[&TOOL]))?;
    if !section.has("cap") {
        section.reject(&[], "needs a \"cap\"");
    }
    let mut tool = ToolConfig::default();
    tool.read(&section);
    let mut limit = LimitLayers::for_tool();
    limit.read(&section);
    limit.reject_awaiting(&section);
    if section.has("cap") {
        limit.check_order(&section, tool.cap, "cap");
    }
    tool.limit = limit.resolve(tool.cap, tool.latency.is_some());
    if tool.limit == LimitConfig::Fixed && tool.latency.is_some() {
        section.reject(&["latency"], limit.fixed_reason("latency"));
    }
    if tool.rps.is_some() && tool.rpm.is_some() {
        section.reject(&["rpm"], "a tool has one rate; remove this or \"rps\"");
    }
    if tool.on_full == OnFull::Refuse && tool.wait.is_some() {
        section.reject(
            &["wait"],
            "has no effect with on_full = \"refuse\"; remove it, or set on_full = \"wait\"",
        );
    }
    Some(tool)
}
