//! Reads TOML, JSON and builders into a checked [`Config`].
//!
//! Every source is first converted to one tree of untyped values. Therefore the same mistake has
//! the same error in every source: the key path, what was given, what is allowed, and for files the
//! line. The error has all problems of the configuration: a function that reports a problem adds it
//! to [`Problems`], and reading continues.
//!
//! Invariants: every value of a [`Config`] is in its declared range, and no error repeats a value
//! that may be a credential.

mod conflicts;
mod fallback;
mod floors;
mod json;
mod limit;
mod pool;
mod rates;
mod target;
mod toml;

use self::limit::LimitLayers;
pub(super) use self::pool::replica_list;
pub use self::pool::replicas_in_file;
pub use self::target::is_variable_name;
use super::schema::{CAP_RANGE, Given, Node, Problems, Scalar, Setting, TOOL, TOP};
use super::{Config, ConfigError, LimitConfig, OnFull, ReplicaConfig, ShareConfig, ShareStore, ToolConfig};

impl Config {
    /// Reads a configuration from TOML.
    ///
    /// ```
    /// let config = tidegate_config::Config::from_toml("[targets]\nopenai = 64\n")?;
    /// assert_eq!(config.targets[0].cap, 64);
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Returns every problem of the configuration, each with its line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Problems::check(|problems| {
            let config = toml::read(text, problems).map(|root| read_config(&root, problems));
            // Without a root a problem was reported, so this default is never returned.
            config.unwrap_or_default()
        })
    }

    /// Reads a configuration from JSON. The Python and Node packages convert dicts and objects to
    /// it.
    ///
    /// A request is sent to the first target that matches it, so the order of the keys of `targets`
    /// must be preserved (feature `preserve_order` of `serde_json`).
    ///
    /// # Errors
    /// Returns every problem of the configuration, without lines.
    pub fn from_json(value: serde_json::Value) -> Result<Self, ConfigError> {
        Self::from_tree(&json::read(&value))
    }

    /// Reads a configuration from JSON or a builder, converted to a tree.
    pub(super) fn from_tree(root: &Node) -> Result<Self, ConfigError> {
        Problems::check(|problems| read_config(root, problems))
    }
}

/// Reads a list of at most [`MAX_REPLICAS`](crate::MAX_REPLICAS) replicas from JSON: base URLs, or
/// objects with the keys of a replica.
///
/// # Errors
/// Returns every problem of the list.
pub fn replicas_from_json(list: &serde_json::Value) -> Result<Vec<ReplicaConfig>, ConfigError> {
    replica_list(&json::read(list))
}

/// Reads the whole configuration. The result is not valid if a problem was reported.
fn read_config(root: &Node, problems: &Problems) -> Config {
    let mut config = Config::default();
    let top = Given::new("", root, problems);
    if !top.is_table() {
        top.reject(format!("the configuration must be a table; got {}", root.value.describe()));
        return config;
    }
    top.check_table(&[&TOP]);
    config.read(&top);
    let tools = top.get("tools").map(|given| given.named()).unwrap_or_default();
    config.tools =
        tools.iter().filter_map(|(name, given)| Some(((*name).to_owned(), read_tool(given)?))).collect();
    if let Some(given) = top.get("share") {
        read_share(&given, &mut config.share);
    }

    // Later layers replace keys of earlier ones: top-level tenants, then `defaults`, then the
    // target.
    let mut base = target::TargetReader::new(&config.budgets);
    top.set("tenants", &mut base.config.tenants, &());
    floors::check_floors(&top, &base.config);
    let defaults = top.get("defaults");
    if let Some(given) = &defaults {
        base.read_defaults(given);
    }
    (config.targets, config.default_target) = target::read_targets(top.get("targets"), defaults, base);
    if problems.count() == 0 {
        rates::check_unused(&top, &config);
        conflicts::check_shared(&top, &config);
    }
    config
}

/// Reads `share`: a table, or only its store, as in `share = "local"`.
fn read_share(given: &Given<'_>, share: &mut ShareConfig) {
    if given.is_table() {
        share.password_env = target::read_variable(given, "password_env", "REDIS_PASSWORD");
        share.overlay(given, &());
    } else if let Some(store) =
        given.read(|value| ShareStore::read(value, &()).map_err(|invalid| invalid.also(", or a table")))
    {
        share.store = store;
        if let Some((_, text)) = share.contradiction() {
            given.reject(text);
        }
    }
}

/// Reads a tool from a table, or from a number, which is the cap of the tool. Returns `None` if the
/// value is neither a table nor a valid cap.
fn read_tool(given: &Given<'_>) -> Option<ToolConfig> {
    if !given.is_table() {
        return given.read(|value| usize::read(value, &CAP_RANGE)).map(ToolConfig::with_cap);
    }
    given.check_table(&[&TOOL]);
    if !given.has("cap") {
        given.reject("needs a \"cap\"");
    }
    let mut tool = ToolConfig::default();
    tool.read(given);
    let mut limit = LimitLayers { cap_given: true, ..LimitLayers::default() };
    limit.read(given);
    if limit.keys.awaiting.is_some() {
        let text = "has no effect for tools, whose calls have no first token; remove it";
        given.reject_key("limit.awaiting", text);
    }
    if given.has("cap") {
        limit.check_order(given, tool.cap, "cap");
    }
    tool.limit = limit.resolve(given, tool.cap, tool.latency.is_some());
    if tool.limit == LimitConfig::Fixed && tool.latency.is_some() {
        given.reject_key("latency", limit.fixed_reason(given, "latency"));
    }
    if tool.rps.is_some() && tool.rpm.is_some() {
        given.reject_key("rpm", "a tool has one rate; remove this or \"rps\"");
    }
    if tool.on_full == OnFull::Refuse && tool.wait.is_some() {
        given.reject_key(
            "wait",
            "has no effect with on_full = \"refuse\"; remove it, or set on_full = \"wait\"",
        );
    }
    Some(tool)
}
