//! Configurations written in Rust: the same keys, checks and errors as a file.
//!
//! A builder only records the keys that were set, as the tree that a file would give.
//! [`ConfigBuilder::build`] reads and checks them.

use std::time::Duration;

use super::schema::{Builder, Table, Value};
use super::{
    Budget, Config, ConfigBuilder, ConfigError, Lane, LaneSettings, LimitSettings, Mode, Pool, Replica,
    ReplicaConfig, Target, Tenant, Tool, Transport, parse,
};

impl Config {
    /// Starts a configuration in code. Keys that are not set keep their defaults.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_config::{Config, Target, Tenant, Tool};
    ///
    /// let config = Config::builder()
    ///     .target(Target::new("openai").cap(64).ttft(Duration::from_secs(2)))
    ///     .tenant("acme", Tenant::new().weight(2.0))
    ///     .tool("db", 8)
    ///     .tool("search", Tool::new(4).wait(Duration::from_secs(5)))
    ///     .build()?;
    /// assert_eq!(config.targets[0].cap, 64);
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }
}

impl ConfigBuilder {
    /// Sets `mode`: whether the gate acts, only measures, or is off.
    pub fn mode(self, mode: Mode) -> Self {
        self.set("mode", mode)
    }

    /// Sets `defaults`: the settings of every target that does not set them itself, and of targets
    /// that are not configured. URLs and models are rejected there.
    ///
    /// ```
    /// # use tidegate_config::Config;
    /// let config = Config::builder().defaults(|target| target.cap(8).idle(None)).build()?;
    /// assert_eq!(config.default_target.cap, 8);
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    pub fn defaults(self, set: impl FnOnce(Target) -> Target) -> Self {
        self.set("defaults", set(Target::new("default")))
    }

    /// Adds a target to `targets`. The first target that matches a request takes it, in the order
    /// of these calls.
    pub fn target(self, target: Target) -> Self {
        self.add("targets", &target.name, target.keys)
    }

    /// Adds a tenant of every target to `tenants`.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.add("tenants", &id.into(), tenant.keys)
    }

    /// Adds rates to `budgets`, which the targets share that name them ([`Target::budget`]).
    pub fn budget(self, name: impl Into<String>, budget: Budget) -> Self {
        self.add("budgets", &name.into(), budget.keys)
    }

    /// Adds a tool to `tools`: a [`Tool`], or its cap.
    pub fn tool(self, name: impl Into<String>, tool: impl Into<Tool>) -> Self {
        self.add("tools", &name.into(), tool.into().keys)
    }

    /// Sets `transport`: the settings of connections.
    pub fn transport(self, transport: Transport) -> Self {
        self.set("transport", transport)
    }

    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// Every key that is out of range or in conflict.
    pub fn build(self) -> Result<Config, ConfigError> {
        Config::from_tree(&Value::Table(self.keys).into())
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

impl Target {
    /// Adds a base URL to `url`. The target takes the requests to it and to all paths below it.
    pub fn url(self, url: impl Into<String>) -> Self {
        self.append("url", text(url))
    }

    /// Sets `url = "none"`: no request is the target's, and its slots are acquired by name
    /// (`Gate::acquire_slot`).
    pub fn slots_only(self) -> Self {
        self.set("url", text("none"))
    }

    /// Adds a model name or pattern (`gpt-4o*`) to `models`.
    pub fn model(self, pattern: impl Into<String>) -> Self {
        self.append("models", text(pattern))
    }

    /// Sets `pool`: the replicas of the target.
    pub fn pool(self, pool: Pool) -> Self {
        self.set("pool", pool)
    }

    /// Sets `limit` to adaptive with these settings. The cap is its upper bound.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", settings)
    }

    /// Sets `limit = "fixed"`: all slots of the cap, always.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }

    /// Adds a named tenant to `tenants`.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.add("tenants", &id.into(), tenant.keys)
    }

    /// Adds the settings of a lane to `lanes`.
    pub fn lane(self, lane: Lane, settings: LaneSettings) -> Self {
        self.add("lanes", lane.as_str(), settings.keys)
    }

    /// Sets `model`: the model to request for calls that fall back to this target. The models of
    /// the target's own requests are set by [`Target::model`].
    pub fn fallback_model(self, name: impl Into<String>) -> Self {
        self.set("model", text(name))
    }

    /// Sets `key_env`: the environment variable with the credential for calls that fall back to
    /// this target.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }

    /// Adds a header of the caller to `forward_headers`, which this target receives from calls that
    /// fall back to it on another server or with [`Target::key_env`].
    pub fn forward_header(self, name: impl Into<String>) -> Self {
        self.append("forward_headers", text(name))
    }
}

impl Tool {
    /// Sets `limit` to adaptive with these settings. The cap is its upper bound.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", settings)
    }

    /// Sets `limit = "fixed"`: all slots of the cap, always.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }
}

impl Pool {
    /// Creates a pool of these replicas.
    pub fn new<R: Into<Replica>>(replicas: impl IntoIterator<Item = R>) -> Self {
        replicas.into_iter().fold(Self::default(), Self::replica)
    }

    /// Creates a pool of the addresses of a host: `url` is scheme `http`, host and port.
    pub fn from_dns(url: impl Into<String>) -> Self {
        Self::default().set("dns", text(url))
    }

    /// Creates a pool of the replicas that a file names.
    pub fn from_file(path: impl Into<String>) -> Self {
        Self::default().set("file", text(path))
    }

    /// Creates a pool whose replicas the program sets (`Gate::set_replicas`).
    pub fn dynamic() -> Self {
        Self::default()
    }

    /// Adds a replica to `replicas`.
    pub fn replica(self, replica: impl Into<Replica>) -> Self {
        self.append("replicas", replica.into())
    }

    /// Sets `dns_every`: the time between two lookups.
    pub fn dns_every(self, interval: Duration) -> Self {
        self.set("dns_every", interval)
    }

    /// Sets `file_every`: the time between two reads of the file.
    pub fn file_every(self, interval: Duration) -> Self {
        self.set("file_every", interval)
    }

    /// Sets `key_env`: the environment variable with the key for requests to `/v1/models`.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }
}

impl Replica {
    /// Creates a replica at this base URL, with or without `/v1`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { keys: Table::default() }.set("url", text(url))
    }

    /// Adds a model to `models`, which the replica serves. Without any, the replica is asked.
    pub fn model(self, name: impl Into<String>) -> Self {
        self.append("models", text(name))
    }

    /// Reads replicas as a file's would be read.
    ///
    /// # Errors
    /// Every invalid value.
    pub fn members(replicas: impl IntoIterator<Item = Self>) -> Result<Vec<ReplicaConfig>, ConfigError> {
        let list = replicas.into_iter().map(|replica| Value::from(replica).into()).collect();
        parse::replica_list(&Value::List(list).into())
    }
}

impl<U: Into<String>> From<U> for Replica {
    fn from(url: U) -> Self {
        Self::new(url)
    }
}
