//! Lists the settings in force as key paths and values, for `tidegate check`.

use super::schema::{Lines, show_duration};
use super::{
    LimitConfig, PoolConfig, RateConfig, ReplicaConfig, ReplicaSource, ShareConfig, ShareStore, TargetConfig,
    ToolConfig, TransportConfig,
};

impl TargetConfig {
    /// Returns the settings of the target, including defaults, as key paths and values with units.
    /// Omits settings without effect, such as the rates of a target with a shared budget.
    ///
    /// ```
    /// let config = tidegate_config::Config::from_toml("targets.openai = 64")?;
    /// let settings = config.targets[0].settings();
    /// assert_eq!(settings[0], ("cap".to_owned(), "64 slots".to_owned()));
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    pub fn settings(&self) -> Lines {
        let mut lines = self.lines("");
        lines.splice(1..1, limit(&self.limit));
        if self.budget.is_none() {
            lines.extend(self.rates.settings());
        }
        if self.model.is_some() || self.key_env.is_some() {
            lines.push(line("model", self.model.as_deref().unwrap_or("the caller's")));
            let no_key = "none: the caller's credential, on the same host only";
            lines.push(line("key_env", self.key_env.as_deref().unwrap_or(no_key)));
        }
        if !self.forward_headers.is_empty() {
            let names: Vec<&str> = self.forward_headers.iter().map(|name| name.as_str()).collect();
            lines.push(line("forward_headers", names.join(", ")));
        }
        lines.extend(self.pool.iter().flat_map(pool));
        lines
    }
}

impl RateConfig {
    /// Returns the rates as key paths and values; see [`TargetConfig::settings`].
    pub fn settings(&self) -> Lines {
        self.lines("")
    }
}

impl ToolConfig {
    /// Returns the settings of the tool as key paths and values; see [`TargetConfig::settings`].
    pub fn settings(&self) -> Lines {
        let mut lines = self.lines("");
        lines.splice(1..1, limit(&self.limit).into_iter().filter(|(key, _)| key != "limit.awaiting"));
        lines
    }
}

impl ShareConfig {
    /// Returns the settings of shared limits as key paths and values; see
    /// [`TargetConfig::settings`]. Those of a Redis server are omitted for another store.
    pub fn settings(&self) -> Lines {
        let mut lines = self.lines("");
        if matches!(self.store, ShareStore::Redis(_)) {
            lines.push(line("password_env", self.password_env.as_deref().unwrap_or("none")));
        } else {
            lines.retain(|(key, _)| matches!(key.as_str(), "store" | "name" | "strict"));
        }
        lines
    }
}

impl TransportConfig {
    /// Returns the settings of connections as key paths and values; see [`TargetConfig::settings`].
    pub fn settings(&self) -> Lines {
        self.lines("")
    }
}

fn line(key: &str, value: impl Into<String>) -> (String, String) {
    (key.to_owned(), value.into())
}

/// Returns the key `limit` with `fixed` or `adaptive` and, if the limit is adaptive, the keys and
/// values of its settings.
fn limit(limit: &LimitConfig) -> Lines {
    let LimitConfig::Adaptive(settings) = limit else { return vec![line("limit", "fixed")] };
    [vec![line("limit", "adaptive")], settings.lines("limit")].concat()
}

/// Returns the settings of a pool, including the source of its replicas, as key paths (`pool.cap`)
/// and values.
fn pool(pool: &PoolConfig) -> Lines {
    let mut lines = match &pool.source {
        ReplicaSource::Listed(replicas) => {
            let path = |index| format!("pool.replicas[{index}]");
            replicas.iter().enumerate().map(|(index, member)| (path(index), replica(member))).collect()
        }
        ReplicaSource::Dns { url, every } => {
            vec![line("pool.dns", &**url), line("pool.dns_every", show_duration(*every))]
        }
        ReplicaSource::File { path, every } => vec![
            line("pool.file", path.display().to_string()),
            line("pool.file_every", show_duration(*every)),
        ],
        ReplicaSource::Dynamic => vec![line("pool.replicas", "set by the program (set_replicas)")],
    };
    lines.extend(pool.lines("pool"));
    lines.push(line("pool.key_env", pool.key_env.as_deref().unwrap_or("none")));
    lines
}

/// Returns the URL of a replica, followed by its settings, as one line of text.
fn replica(ReplicaConfig { url, weight, models, kv_tokens }: &ReplicaConfig) -> String {
    let models = models.iter().map(|models| format!(", models {}", models.join(", ")));
    let kv_tokens = kv_tokens.iter().map(|tokens| format!(", kv_tokens {tokens}"));
    format!("{url}, weight {weight}") + &models.chain(kv_tokens).collect::<String>()
}
