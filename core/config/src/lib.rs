//! Reads, checks and builds the configuration of a gate.
//!
//! The same keys are accepted from TOML ([`Config::from_toml`]), from JSON ([`Config::from_json`])
//! and from Rust ([`Config::builder`]). `docs/reference/configuration.md` describes every key.
//!
//! Unknown keys, values out of range, and settings that contradict each other are errors. A
//! [`ConfigError`] contains all problems of the configuration. Each problem states the full path of
//! its key and, as far as they apply, what was given, what is allowed, and the most similar valid
//! key. No problem repeats a value that may be a credential.
//!
//! ```
//! use tidegate_config::Config;
//!
//! let error = Config::from_toml("targets.openai.capp = 64").unwrap_err();
//! assert_eq!(error.to_string(), "line 1: targets.openai.capp: unknown key; did you mean \"cap\"?");
//! ```
//!
//! # Structure
//!
//! - `schema` declares each key once: type, unit, range, default and documentation. The values, the
//!   parser, the builder, `tidegate check`, the reference page and the types of the Python and Node
//!   packages derive from these declarations.
//! - `parse` reads TOML, JSON and builders into one generic tree, and the tree into a [`Config`].
//!   It also resolves settings that depend on several keys: limits, fallbacks, shared budgets.
//! - [`Matcher`] finds the target of a request.

mod builder;
mod duration;
mod error;
mod lane;
mod matching;
mod parse;
mod providers;
mod schema;
mod settings_in_force;
#[cfg(test)]
mod tests;

pub use duration::parse_duration;
pub use error::{ConfigError, ConfigProblem};
pub use lane::Lane;
pub use matching::Matcher;
pub use parse::{is_variable_name, replicas_from_json, replicas_in_file};
pub use schema::{
    AdaptiveConfig, Budget, Config, ConfigBuilder, CostRule, Counting, DEFAULT_DEADLINE, Decrease, Detector,
    EngineMetricsPolicy, HeaderPolicy, LaneConfig, LaneSettings, LimitConfig, LimitSettings, MAX_REPLICAS,
    Mode, OnFull, Percentile, Pool, PoolConfig, Predict, RateConfig, RedisUrl, Replica, ReplicaConfig,
    ReplicaSource, Retry, RetryConfig, Share, ShareConfig, ShareStore, Target, TargetConfig, TargetMatch,
    Tenant, TenantConfig, Tokenizer, Tool, ToolConfig, Transport, TransportConfig, describe_text,
};
