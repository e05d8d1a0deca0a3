//! Who is held against whom.

use std::time::Instant;

use tidegate::config::AdaptiveConfig;

use super::contender::{Contender, Fixed, Ours, Terms};
use super::oracle::Oracle;
use super::peers;
use super::stage::Stage;

/// Makes a contender for a run.
pub(crate) type Maker = Box<dyn Fn(&Terms, Instant) -> Box<dyn Contender> + Send + Sync>;

/// One who takes part.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) make: Maker,
}

/// As what it takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ours,
    /// The best fixed limit of each phase.
    Oracle,
    /// A quarter of what is best at the beginning.
    TooSmall,
    /// Four times of it.
    TooLarge,
    /// Another controller.
    Peer,
}

/// Of a scenario whose oracle is known.
pub(crate) fn entries(stage: &Stage, oracle: &Oracle) -> Vec<Entry> {
    let first = oracle.limits.first().copied().unwrap_or(1);
    let best = oracle.contender(stage);
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
