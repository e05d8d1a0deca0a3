//! Builders, which let a Rust program write a configuration without a file. They accept the same
//! keys as a file, and [`ConfigBuilder::build`] reports the same errors.
//!
//! A builder only records the keys that were set, as a tree of untyped values. Files are converted
//! to the same kind of tree. [`ConfigBuilder::build`] reads and checks the tree.

use std::time::Duration;

use super::schema::{Builder, Table, Value};
use super::{
    Budget, Config, ConfigBuilder, ConfigError, Lane, LaneSettings, LimitSettings, Pool, Replica,
    ReplicaConfig, Share, Target, Tenant, Tool, parse,
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
    /// Checks every value and fills in the defaults.
    ///
    /// # Errors
    /// Returns every problem, such as values out of range, names used twice, and settings that
    /// contradict each other.
    pub fn build(self) -> Result<Config, ConfigError> {
        Config::from_tree(&Value::Table(self.keys).into())
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// Declares setters of builders. Each setter calls one method of [`Builder`], such as `set` or
/// `add`, with the given arguments.
macro_rules! setters {
    ($($Builder:ident {
        $( $(#[doc = $doc:literal])+ $name:ident($($argument:ident: $type:ty),*) => $method:ident($($value:expr),+); )+
    })+) => {$(
        impl $Builder {
            $(
                $(#[doc = $doc])+
                pub fn $name(self $(, $argument: $type)*) -> Self {
                    self.$method($($value),+)
                }
            )+
        }
    )+};
}

setters! {
    ConfigBuilder {
        /// Sets `defaults`: the settings of requests that match no target, and of each target that
        /// does not set them itself. `set` receives a [`Target`] without any key, and returns it
        /// with the default settings. [`ConfigBuilder::build`] fails if `set` sets `url`, `models`,
        /// `pool`, `model`, `key_env` or `forward_headers`, which only a single target can have.
        ///
        /// ```
        /// # use tidegate_config::Config;
        /// let config = Config::builder().defaults(|target| target.cap(8).idle(None)).build()?;
        /// assert_eq!(config.default_target.cap, 8);
        /// # Ok::<(), tidegate_config::ConfigError>(())
        /// ```
        defaults(set: impl FnOnce(Target) -> Target) => set("defaults", set(Target::new("default")));

        /// Adds a target to `targets`. A request is sent to the first target that matches it, in
        /// the order in which the targets were added.
        target(target: Target) => add("targets", &target.name, target.keys);

        /// Adds a tenant to the top-level `tenants`: its settings apply at all targets. `id` is the
        /// tenant id.
        tenant(id: impl Into<String>, tenant: Tenant) => add("tenants", &id.into(), tenant.keys);

        /// Adds a budget called `name` to `budgets`: rates of requests and tokens that all targets
        /// share whose [`Target::budget`] is `name`.
        budget(name: impl Into<String>, budget: Budget) => add("budgets", &name.into(), budget.keys);

        /// Adds a tool called `name` to `tools`. `tool` is a [`Tool`], or a number, which becomes
        /// the cap of a tool with the default settings.
        tool(name: impl Into<String>, tool: impl Into<Tool>) => add("tools", &name.into(), tool.into().keys);

        /// Sets `share`: which processes share the caps of targets and tools that have the same
        /// names.
        ///
        /// ```
        /// # use tidegate_config::{Config, Share, ShareStore};
        /// let config = Config::builder().share(Share::local().name("web").strict(true)).build()?;
        /// assert_eq!(config.share.store, ShareStore::Local);
        /// # Ok::<(), tidegate_config::ConfigError>(())
        /// ```
        share(share: Share) => set("share", share);
    }

    Share {
        /// Sets `password_env`: the environment variable with the password of the server.
        password_env(variable: impl Into<String>) => set("password_env", text(variable));
    }

    Target {
        /// Adds a base URL to `url`. The target takes the requests to this URL and to all paths
        /// below it.
        url(url: impl Into<String>) => append("url", text(url));

        /// Sets `url = "none"`: the target takes no requests, and its slots are acquired by name
        /// (`Gate::acquire_slot`).
        slots_only() => set("url", text("none"));

        /// Adds a model name or pattern (`gpt-4o*`) to `models`. The target takes only requests for
        /// its models.
        model(pattern: impl Into<String>) => append("models", text(pattern));

        /// Sets `pool`: the replicas of the target.
        pool(pool: Pool) => set("pool", pool);

        /// Sets `limit` to adaptive: the gate changes the number of slots in force, up to the cap,
        /// as these settings state.
        limit(settings: LimitSettings) => set("limit", settings);

        /// Sets `limit = "fixed"`: the number of slots always equals the cap.
        fixed() => set("limit", text("fixed"));

        /// Adds a tenant to the `tenants` of this target: its settings apply at this target only.
        /// `id` is the tenant id.
        tenant(id: impl Into<String>, tenant: Tenant) => add("tenants", &id.into(), tenant.keys);

        /// Adds settings for `lane`, a priority class of calls, to the `lanes` of this target.
        lane(lane: Lane, settings: LaneSettings) => add("lanes", lane.as_str(), settings.keys);

        /// Sets `model`: the model that is requested for calls that fall back to this target. To
        /// select the requests that the target takes by their model, use [`Target::model`].
        fallback_model(name: impl Into<String>) => set("model", text(name));

        /// Sets `key_env`: the name of the environment variable with the credential for calls that
        /// fall back to this target.
        key_env(variable: impl Into<String>) => set("key_env", text(variable));

        /// Adds the name of a request header to `forward_headers`. The header of the caller is then
        /// forwarded with calls that fall back to this target, even if the target is on another
        /// server or has a [`Target::key_env`]. Without this key, such targets receive only a fixed
        /// list of headers, such as `content-type`.
        forward_header(name: impl Into<String>) => append("forward_headers", text(name));
    }

    Tool {
        /// Sets `limit` to adaptive: the gate changes the number of slots in force, up to the cap,
        /// as these settings state.
        limit(settings: LimitSettings) => set("limit", settings);

        /// Sets `limit = "fixed"`: the number of slots always equals the cap.
        fixed() => set("limit", text("fixed"));
    }

    Pool {
        /// Adds a replica to `replicas`. `replica` is a [`Replica`] or a base URL.
        replica(replica: impl Into<Replica>) => append("replicas", replica.into());

        /// Sets `dns_every`: the time between two lookups of the host (1 s to 1 h, 5 s by default).
        /// Only for pools of [`Pool::from_dns`].
        dns_every(interval: Duration) => set("dns_every", interval);

        /// Sets `file_every`: the time between two reads of the file (100 ms to 1 h, 1 s by
        /// default). Only for pools of [`Pool::from_file`].
        file_every(interval: Duration) => set("file_every", interval);

        /// Sets `key_env`: the name of the environment variable with the API key for requests to
        /// `/v1/models` of the replicas.
        key_env(variable: impl Into<String>) => set("key_env", text(variable));
    }

    Replica {
        /// Adds the full name of a model that the replica serves to `models`. If no model is added,
        /// the models are requested from the replica (`/v1/models`).
        model(name: impl Into<String>) => append("models", text(name));
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
}

impl Replica {
    /// Creates a replica at this base URL, with or without `/v1`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { keys: Table::default() }.set("url", text(url))
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
