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

/// Rates that several targets share, by name.
pub(crate) type Budgets = BTreeMap<Arc<str>, RateConfig>;

builders! {
    /// Builds a [`Config`]. Created by [`Config::builder`].
    ConfigBuilder;
}

settings! {
    /// The configuration of a gate, with defaults filled in and every value in its range.
    pub struct Config, table TOP "Config", builders [];
    fields {
        /// Targets in the order of the file: the first that matches a request takes it.
        targets: Vec<TargetConfig> = Vec::new();
        /// The settings of targets that are not configured: one for each origin, credential and model.
        default_target: TargetConfig = TargetConfig::default();
        /// Tools by name.
        tools: BTreeMap<String, ToolConfig> = BTreeMap::new();
    }
    keys {
        /// Whether the gate acts, only measures, or is off. The environment variable `TIDEGATE`
        /// (`on`, `observe` or `off`) overrides it.
        mode: Mode = Mode::Enforce, ();
        /// The settings of connections, of all targets.
        transport: TransportConfig = TransportConfig::default(), ();
        /// Rates that several targets share, by name: the targets that name it as their `budget`.
        budgets: Budgets = Budgets::new(), ();
    }
    special {
        /// The settings of every target that does not set them itself, and of targets that are not
        /// configured.
        defaults: Kind::Table(&SETTINGS) => "";
        /// The targets by name: a table, or just the cap. The first target that matches a request
        /// takes it, in the order of the file.
        targets: Kind::NamedOrCap("TargetConfig") => "";
        /// The tenants of every target by name. `defaults.tenants` replaces single keys of it, and
        /// `targets.NAME.tenants` single keys of both.
        tenants: Kind::Named(&TENANT) => "";
        /// The tools by name: a table, or just the cap.
        tools: Kind::NamedOrCap("ToolConfig") => "";
    }
}
