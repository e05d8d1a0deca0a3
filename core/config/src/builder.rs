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
    /// Returns a builder of a configuration. Keys that are not set have their defaults.
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
    /// Sets `mode`: whether the gate acts on calls, only measures them, or is off.
    pub fn mode(self, mode: Mode) -> Self {
        self.set("mode", mode)
    }

    /// Sets `defaults`: the settings that apply to each target that does not set them itself, and
    /// to targets that are not configured. `set` receives an empty target. If it sets URLs, models
    /// or a pool, [`ConfigBuilder::build`] fails.
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

    /// Adds a target to `targets`. A request is sent to the first target that matches it, in the
    /// order in which the targets were added.
    pub fn target(self, target: Target) -> Self {
        self.add("targets", &target.name, target.keys)
    }

    /// Adds the settings of a tenant at all targets to `tenants`. `id` is the tenant id.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.add("tenants", &id.into(), tenant.keys)
    }

    /// Adds rates to `budgets`. The targets that set [`Target::budget`] to this name share them.
    pub fn budget(self, name: impl Into<String>, budget: Budget) -> Self {
        self.add("budgets", &name.into(), budget.keys)
    }

    /// Adds a tool to `tools`: a [`Tool`], or only its cap.
    pub fn tool(self, name: impl Into<String>, tool: impl Into<Tool>) -> Self {
        self.add("tools", &name.into(), tool.into().keys)
    }

    /// Sets `transport`: the settings of the connections to all targets.
    pub fn transport(self, transport: Transport) -> Self {
        self.set("transport", transport)
    }

    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// Returns every problem: values out of range, names used twice, and settings that contradict
    /// each other.
    pub fn build(self) -> Result<Config, ConfigError> {
        Config::from_tree(&Value::Table(self.keys).into())
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

impl Target {
    /// Adds a base URL to `url`. The target takes the requests to this URL and to all paths below
    /// it.
    pub fn url(self, url: impl Into<String>) -> Self {
        self.append("url", text(url))
    }

    /// Sets `url = "none"`: the target takes no requests, and its slots are acquired by name
    /// (`Gate::acquire_slot`).
    pub fn slots_only(self) -> Self {
        self.set("url", text("none"))
    }

    /// Adds a model name or pattern (`gpt-4o*`) to `models`. The target takes only requests for its
    /// models.
    pub fn model(self, pattern: impl Into<String>) -> Self {
        self.append("models", text(pattern))
    }

    /// Sets `pool`: the replicas of the target.
    pub fn pool(self, pool: Pool) -> Self {
        self.set("pool", pool)
    }

    /// Sets `limit` to adaptive, with these settings. The cap is the upper bound of the limit.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", settings)
    }

    /// Sets `limit = "fixed"`: the number of slots in force is always the cap.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }

    /// Adds the settings of a tenant at this target to `tenants`. `id` is the tenant id.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.add("tenants", &id.into(), tenant.keys)
    }

    /// Adds the settings of a lane to `lanes`.
    pub fn lane(self, lane: Lane, settings: LaneSettings) -> Self {
        self.add("lanes", lane.as_str(), settings.keys)
    }

    /// Sets `model`: the model that is requested for calls that fall back to this target. The
    /// models of other requests are set by [`Target::model`].
    pub fn fallback_model(self, name: impl Into<String>) -> Self {
        self.set("model", text(name))
    }

    /// Sets `key_env`: the name of the environment variable with the credential for calls that fall
    /// back to this target.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }

    /// Adds the name of a header to `forward_headers`. This header of the caller is forwarded with
    /// calls that fall back to this target on another server or with [`Target::key_env`].
    pub fn forward_header(self, name: impl Into<String>) -> Self {
        self.append("forward_headers", text(name))
    }
}

impl Tool {
    /// Sets `limit` to adaptive, with these settings. The cap is the upper bound of the limit.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", settings)
    }

    /// Sets `limit = "fixed"`: the number of slots in force is always the cap.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }
}

impl Pool {
    /// Creates a pool of these replicas.
    pub fn new<R: Into<Replica>>(replicas: impl IntoIterator<Item = R>) -> Self {
        replicas.into_iter().fold(Self::default(), Self::replica)
    }

    /// Creates a pool in which each IP address of a host is a replica. `url` has scheme `http`, a
    /// host and a port, such as `http://vllm.internal:8000`.
    pub fn from_dns(url: impl Into<String>) -> Self {
        Self::default().set("dns", text(url))
    }

    /// Creates a pool of the replicas that the file at `path` lists.
    pub fn from_file(path: impl Into<String>) -> Self {
        Self::default().set("file", text(path))
    }

    /// Creates a pool whose replicas are set later by `Gate::set_replicas`.
    pub fn dynamic() -> Self {
        Self::default()
    }

    /// Adds a replica to `replicas`.
    pub fn replica(self, replica: impl Into<Replica>) -> Self {
        self.append("replicas", replica.into())
    }

    /// Sets `dns_every`: the time between two lookups of the host (1 s to 1 h, 5 s by default).
    pub fn dns_every(self, interval: Duration) -> Self {
        self.set("dns_every", interval)
    }

    /// Sets `file_every`: the time between two reads of the file (100 ms to 1 h, 1 s by default).
    pub fn file_every(self, interval: Duration) -> Self {
        self.set("file_every", interval)
    }

    /// Sets `key_env`: the name of the environment variable with the API key for requests to
    /// `/v1/models` of the replicas.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }
}

impl Replica {
    /// Creates a replica at this base URL, with or without `/v1`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { keys: Table::default() }.set("url", text(url))
    }

    /// Adds the full name of a model that the replica serves to `models`. Without any, the models
    /// are requested from the replica (`/v1/models`).
    pub fn model(self, name: impl Into<String>) -> Self {
        self.append("models", text(name))
    }

    /// Checks replicas by the rules of a configuration file, and returns their settings.
    ///
    /// # Errors
    /// Returns every problem: invalid values, a replica given twice, or more than
    /// [`MAX_REPLICAS`](crate::MAX_REPLICAS) replicas.
    pub fn parse_all(replicas: impl IntoIterator<Item = Self>) -> Result<Vec<ReplicaConfig>, ConfigError> {
        let list = replicas.into_iter().map(|replica| Value::from(replica).into()).collect();
        parse::replica_list(&Value::List(list).into())
    }
}

impl<U: Into<String>> From<U> for Replica {
    fn from(url: U) -> Self {
        Self::new(url)
    }
}
