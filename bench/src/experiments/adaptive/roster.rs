//! Who is held against whom.

use std::time::Instant;

use tidegate::config::AdaptiveConfig;

use super::contender::{Contender, Fixed, Ours, Terms};
use super::oracle::Oracle;
use super::stage::Stage;

/// Makes a contender for a run.
pub(crate) type Maker = Box<dyn Fn(&Terms, Instant) -> Box<dyn Contender> + Send + Sync>;

/// One who takes part.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) make: Maker,
}

/// The name of ours.
pub(crate) const OURS: &str = "ours";
/// The name of the best that can be done.
pub(crate) const ORACLE: &str = "oracle";
/// The fixed numbers, four times too small and too large.
pub(crate) const TOO_SMALL: &str = "fixed, a quarter";
pub(crate) const TOO_LARGE: &str = "fixed, four times";

/// Of a scenario whose oracle is known. The fixed numbers are wrong by four times from what is best at the beginning.
pub(crate) fn entries(stage: &Stage, oracle: &Oracle) -> Vec<Entry> {
    let first = oracle.limits.first().copied().unwrap_or(1);
    let best = oracle.contender(stage);
    vec![
        entry(OURS, |terms, now| Ours::new(terms, AdaptiveConfig::default(), now)),
        entry(ORACLE, move |_, _| best.clone()),
        entry(TOO_SMALL, move |_, _| Fixed((first / 4).max(1))),
        entry(TOO_LARGE, move |_, _| Fixed(first * 4)),
    ]
}

fn entry<C: Contender + 'static>(
    name: &'static str,
    make: impl Fn(&Terms, Instant) -> C + Send + Sync + 'static,
) -> Entry {
    Entry { name, make: Box::new(move |terms, now| Box::new(make(terms, now))) }
}
