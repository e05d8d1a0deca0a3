//! The configuration written in Rust: the same keys as the file, the same checks, the same errors.
//!
//! A builder only notes what it was told, as the tree that a file would have given; [`ConfigBuilder::build`] has it read like
//! any other. Values are checked there, not when they are set. Builders have no `Debug`: a URL is not checked for a password
//! before it is read.

mod limit;
mod pool;
mod rates;
mod shares;
mod target;
mod tool;

use std::time::Duration;

pub use self::limit::LimitSettings;
pub use self::pool::{Pool, Replica};
pub use self::rates::Budget;
pub use self::shares::{LaneSettings, Tenant};
pub use self::target::{Retry, Target};
pub use self::tool::{Tool, Transport};
use super::parse::tree::{Node, Table, Value};
use super::{Config, ConfigError, Mode, parse};

impl Config {
    /// Starts a configuration in code. Keys that are not set keep the defaults of the [table](super).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::config::{Config, Target, Tenant, Tool};
    ///
    /// let config = Config::builder()
    ///     .target(Target::new("openai").cap(64).ttft(Duration::from_secs(2)).tenant("acme", Tenant::new().weight(2.0)))
    ///     .tool("db", 8)
    ///     .tool("search", Tool::new(4).wait(Duration::from_secs(5)))
    ///     .build()?;
    /// assert_eq!(config.targets[0].cap, 64);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn builder() -> ConfigBuilder {
        ConfigBuilder::default()
    }
}

/// Builds a [`Config`].
#[derive(Clone, Default)]
pub struct ConfigBuilder {
    root: Table,
}

impl ConfigBuilder {
    /// `mode`: whether the gate acts, measures, or stands aside.
    pub fn mode(mut self, mode: Mode) -> Self {
        let word = match mode {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
            Mode::Off => "off",
        };
        self.root.put("mode", text(word));
        self
    }

    /// `defaults`: what targets get that do not say otherwise, and those that nobody configured. A URL or model set here is
    /// an error.
    ///
    /// ```
    /// # use tidegate::config::Config;
    /// let config = Config::builder().defaults(|target| target.cap(8).idle(None)).build()?;
    /// assert_eq!(config.default_target.cap, 8);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn defaults(mut self, set: impl FnOnce(Target) -> Target) -> Self {
        self.root.put("defaults", Value::Table(set(Target::new("default")).keys));
        self
    }

    /// `targets.NAME`. The first that matches a request takes it, in the order of these calls.
    pub fn target(mut self, target: Target) -> Self {
        self.root.add("targets", target.name, target.keys);
        self
    }

    /// `tenants.ID`: a tenant's share of every target that does not say otherwise.
    pub fn tenant(mut self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.root.add("tenants", id.into(), tenant.keys);
        self
    }

    /// `budgets.NAME`: rates that the targets share which name it ([`Target::budget`]).
    pub fn budget(mut self, name: impl Into<String>, budget: Budget) -> Self {
        self.root.add("budgets", name.into(), budget.keys);
        self
    }

    /// `tools.NAME`: a [`Tool`], or just its cap.
    pub fn tool(mut self, name: impl Into<String>, tool: impl Into<Tool>) -> Self {
        self.root.add("tools", name.into(), tool.into().keys);
        self
    }

    /// `transport`: connection settings.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.root.put("transport", Value::Table(transport.keys));
        self
    }

    /// Checks everything and fills in the defaults.
    ///
    /// # Errors
    /// Every key that is out of range or in conflict.
    pub fn build(self) -> Result<Config, ConfigError> {
        parse::from_tree(&Node { value: Value::Table(self.root), line: None })
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn whole(number: usize) -> Value {
    // Every usize fits: it has at most 64 bits.
    Value::Whole(number as i128)
}

fn count(number: u64) -> Value {
    Value::Whole(number.into())
}

/// `None` switches off.
fn or_none(value: Option<Value>) -> Value {
    value.unwrap_or(Value::Bool(false))
}

fn time(time: impl Into<Option<Duration>>) -> Value {
    or_none(time.into().map(Value::Time))
}
