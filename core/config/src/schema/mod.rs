//! The schema of the configuration: each key is declared here once, in [`settings!`] tables.

#[macro_use]
mod declaration;
mod given;
mod keywords;
mod limit;
pub(crate) mod nearest;
mod pool;
mod problems;
mod setting;
mod target;
mod tool;
mod tree;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::{declaration::*, given::*, problems::*, setting::*};
pub use self::{keywords::*, limit::*, pool::*, target::*, tool::*, tree::*};

/// The range of every number of slots.
pub(crate) const CAP: RangeInclusive<usize> = 1..=65_536;
/// The range of every length of a queue.
const QUEUE: RangeInclusive<usize> = 0..=1_000_000;
/// The range of every rate of requests. It lies within what `governor` counts in.
const REQUESTS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The range of every number of tokens.
const TOKENS: RangeInclusive<u64> = 1..=1_000_000_000_000;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

settings! {
    /// The configuration of a gate.
    table TOP "Config";
    /// Whether the gate acts, only measures, or is off. The environment variable `TIDEGATE` (`on`,
    /// `observe` or `off`) overrides it.
    mode: <Mode as Setting>::kind(&()) => "enforce";
    /// The settings of every target that does not set them itself, and of targets that are not
    /// configured.
    defaults: Kind::Table(&SETTINGS) => "";
    /// The targets by name: a table, or just the cap. The first target that matches a request takes
    /// it, in the order of the file.
    targets: Kind::NamedOrCap("TargetConfig") => "";
    /// The tenants of every target by name. `defaults.tenants` replaces single keys of it, and
    /// `targets.NAME.tenants` single keys of both.
    tenants: Kind::Named(&TENANT) => "";
    /// Rates that several targets share, by name: the targets that name it as their `budget`.
    budgets: Kind::Named(&RATES) => "";
    /// The tools by name: a table, or just the cap.
    tools: Kind::NamedOrCap("ToolConfig") => "";
    /// The settings of connections, of all targets.
    transport: Kind::Table(&TRANSPORT) => "";
}

/// The whole configuration of a gate, with defaults filled in and every value in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether the gate acts, only measures, or is off.
    pub mode: Mode,
    /// Targets in the order of the file: the first that matches a request takes it.
    pub targets: Vec<TargetConfig>,
    /// The settings of targets that are not configured: one for each origin, credential and model.
    pub default_target: TargetConfig,
    /// Tools by name.
    pub tools: BTreeMap<String, ToolConfig>,
    /// Rates that several targets share, by name.
    pub budgets: BTreeMap<Arc<str>, RateConfig>,
    /// The settings of connections, of all targets.
    pub transport: TransportConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            targets: Vec::new(),
            default_target: TargetConfig::new("default"),
            tools: BTreeMap::new(),
            budgets: BTreeMap::new(),
            transport: TransportConfig::default(),
        }
    }
}
