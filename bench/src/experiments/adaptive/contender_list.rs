//! The list of all contenders: the controllers of the number of concurrent calls that are compared
//! in a scenario.

use std::time::Instant;

use tidegate::config::AdaptiveConfig;

use super::contender::{Contender, Fixed, Ours, Terms};
use super::oracle::Oracle;
use super::peers;
use super::prepared_scenario::PreparedScenario;

/// Creates a contender for one run that starts at the given instant.
pub(crate) type Maker = Box<dyn Fn(&Terms, Instant) -> Box<dyn Contender> + Send + Sync>;

/// A contender: its name, its role, and its constructor.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) make: Maker,
}

/// The role of a contender in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ours,
    /// The best fixed limit of each phase, found by search in advance.
    Oracle,
    /// One limit for the whole run: a quarter of the oracle's limit for the first phase.
    TooSmall,
    /// One limit for the whole run: four times the oracle's limit for the first phase.
    TooLarge,
    /// Another controller than Tidegate's.
    Peer,
}

/// Returns all contenders of a scenario. `oracle` has the best limit of each phase: the contender
/// "oracle" applies them, and the two fixed limits are multiples of the first of them.
pub(crate) fn entries(prepared: &PreparedScenario, oracle: &Oracle) -> Vec<Entry> {
    let first = oracle.limits.first().copied().unwrap_or(1);
    let best = oracle.contender(prepared);
    let mut entries = vec![
        entry("ours", Role::Ours, |terms, now| Ours::new(terms, AdaptiveConfig::default(), now)),
        entry("oracle", Role::Oracle, move |_, _| best.clone()),
        entry("fixed, a quarter of the best", Role::TooSmall, move |_, _| Fixed((first / 4).max(1))),
        entry("fixed, four times the best", Role::TooLarge, move |_, _| Fixed(first * 4)),
    ];
    entries.extend(peers::ALL.map(|(name, begin)| Entry { name, role: Role::Peer, make: Box::new(begin) }));
    entries
}

fn entry<C: Contender + 'static>(
    name: &'static str,
    role: Role,
    make: impl Fn(&Terms, Instant) -> C + Send + Sync + 'static,
) -> Entry {
    Entry { name, role, make: Box::new(move |terms, now| Box::new(make(terms, now))) }
}
