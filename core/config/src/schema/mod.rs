//! The schema of the configuration: each key is declared once, in a [`settings!`] table.

#[macro_use]
mod key_declaration;
mod given_value;
mod keywords;
mod limit;
mod pool;
mod problems;
mod setting;
mod share;
pub(crate) mod suggest;
mod target;
mod tool;
mod value_tree;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::{given_value::*, key_declaration::*, problems::*, setting::*};
pub use self::{keywords::*, limit::*, pool::*, share::*, target::*, tool::*, value_tree::*};

/// The valid range of each key that is a number of slots.
pub(crate) const CAP_RANGE: RangeInclusive<usize> = 1..=65_536;
/// The valid range of each key that is a maximum number of queued calls.
const QUEUE_RANGE: RangeInclusive<usize> = 0..=1_000_000;
/// The valid range of each key that is a rate of requests, per minute or per day.
const REQUEST_RANGE: RangeInclusive<u64> = 1..=1_000_000_000;
/// The valid range of each key that is a number of tokens or a rate of tokens.
const TOKEN_RANGE: RangeInclusive<u64> = 1..=1_000_000_000_000;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The shared budgets: rates that several targets share, by the name of the budget.
pub(crate) type Budgets = BTreeMap<Arc<str>, RateConfig>;

builders! {
    /// Builds a [`Config`]. Created by [`Config::builder`].
    ConfigBuilder;
}

settings! {
    /// The configuration of a gate, with defaults filled in and every value in its range.
    pub struct Config, table TOP "Config", builders [ConfigBuilder];
    fields {
        /// The targets in the order of the file. A request is sent to the first one that matches
        /// it.
        targets: Vec<TargetConfig> = Vec::new();
        /// The settings of targets that are not configured. Requests that no target matches get one
        /// such target for each origin, credential and model.
        default_target: TargetConfig = TargetConfig::default();
        /// The tools by name.
        tools: BTreeMap<String, ToolConfig> = BTreeMap::new();
        /// Which processes share the caps of targets and tools. Off by default.
        share: ShareConfig = ShareConfig::default();
    }
    keys {
        /// Whether the gate acts on calls, only measures them, or is off. The environment variable
        /// `TIDEGATE` (`on`, `observe` or `off`) overrides this key.
        mode: Mode = Mode::Enforce, ();
        /// The settings of the connections to all targets.
        transport: TransportConfig = TransportConfig::default(), ();
        /// Rates that several targets share, by name. A target shares the one that its `budget`
        /// names.
        budgets: Budgets = Budgets::new(), ();
    }
    special {
        /// The settings that apply to each target that does not set them itself, and to targets
        /// that are not configured.
        defaults: Kind::Table(&SETTINGS) => "";
        /// The targets by name: a table, or only the cap. A request is sent to the first target
        /// that matches it, in the order of the file.
        targets: Kind::NamedOrCap("TargetConfig") => "";
        /// The tenants of all targets by name. The keys of a tenant in `defaults.tenants` replace
        /// those given here, and the keys in `targets.NAME.tenants` replace both.
        tenants: Kind::Named(&TENANT) => "";
        /// The tools by name: a table, or only the cap.
        tools: Kind::NamedOrCap("ToolConfig") => "";
        /// Whether processes share the caps of targets and tools that have the same names: a table,
        /// or only its `store`. With `"local"`, all processes of the same user on this machine with
        /// the same `name` share them, and with the URL of a Redis or Valkey server all processes
        /// that use it.
        share: Kind::TableOr(&SHARE, Box::new(<ShareStore as Setting>::kind(&()))) => "auto";
    }
}
