//! The rates that a provider allows: a target's own, and those that several targets share.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::nearest;
use super::section::{Given, Section};
use super::value::{InvalidValue, burst, count, name_of, one_of, or_none};
use crate::config::{Config, Counting, HeaderPolicy, RateConfig, TargetConfig};

pub(super) const RATES: &[&str] =
    &["rpm", "rpd", "tpm", "tpd", "itpm", "otpm", "burst", "counting", "headers"];

const COUNTING: &[(&str, Counting)] = &[
    (Counting::Auto.as_str(), Counting::Auto),
    (Counting::Sum.as_str(), Counting::Sum),
    (Counting::Larger.as_str(), Counting::Larger),
    (Counting::Actual.as_str(), Counting::Actual),
    (Counting::Input.as_str(), Counting::Input),
];
const HEADERS: &[(&str, HeaderPolicy)] = &[
    (HeaderPolicy::Follow.as_str(), HeaderPolicy::Follow),
    (HeaderPolicy::Lower.as_str(), HeaderPolicy::Lower),
    (HeaderPolicy::Ignore.as_str(), HeaderPolicy::Ignore),
];

/// The range of every rate of requests; it lies within what `governor` counts in.
pub(super) const REQUESTS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The range of every amount of tokens.
pub(super) const TOKENS: RangeInclusive<u64> = 1..=1_000_000_000_000;

const BUDGET: &str = "the name of one of [budgets]";

/// Shared rates by name.
pub(super) type Budgets = BTreeMap<Arc<str>, RateConfig>;

/// `budgets`. One with a mistake in it is there all the same, so that what names it is not wrong as well.
pub(super) fn budgets(given: Given<'_>) -> Budgets {
    let budget = |(name, given): (&str, Given<'_>)| {
        let mut rates = RateConfig::default();
        if let Some(section) = given.section(RATES) {
            read(&section, &mut rates);
        }
        (Arc::from(name), rates)
    };
    given.named().into_iter().map(budget).collect()
}

/// Budgets that no target is part of: nothing would keep to them.
pub(super) fn unused(top: &Section<'_>, config: &Config) {
    let Some(given) = top.get("budgets") else { return };
    let targets = config.targets.iter().chain([&config.default_target]);
    let named: HashSet<&Arc<str>> = targets.filter_map(|target| target.budget.as_ref()).collect();
    for name in config.budgets.keys().filter(|name| !named.contains(name)) {
        if let Some(given) = given.child(name) {
            given.reject("no target names it as its \"budget\"");
        }
    }
}

/// A target's own rates, or the budget that it shares. Each takes the place of the other where a lower layer said it; in one
/// breath they contradict each other.
pub(super) fn of_target(section: &Section<'_>, into: &mut TargetConfig, budgets: &Budgets) {
    if let Some(given) = section.get("budget") {
        into.budget = shared(&given, budgets);
    }
    if into.budget.is_none() {
        return read(section, &mut into.rates);
    }
    if section.has("budget") {
        into.rates = RateConfig::default();
    }
    for given in RATES.iter().filter_map(|key| section.get(key)) {
        given.reject(
            "the rates of this target are those of its budget; set it there, or budget = \"none\" here",
        );
    }
}

/// The name of a budget; `None` where it is switched off or wrong.
fn shared(given: &Given<'_>, budgets: &Budgets) -> Option<Arc<str>> {
    let name = given.read(or_none(name_of(BUDGET)))??;
    if budgets.contains_key(&*name) {
        return Some(name);
    }
    let names: Vec<&str> = budgets.keys().map(|name| &**name).collect();
    let advice = nearest::suggest_name(&name, &names, "there are no [budgets]");
    given.reject(InvalidValue::expected(BUDGET).hint(advice).message(given.value));
    None
}

fn read(section: &Section<'_>, into: &mut RateConfig) {
    section.set("rpm", &mut into.rpm, or_none(count(REQUESTS)));
    section.set("rpd", &mut into.rpd, or_none(count(REQUESTS)));
    section.set("tpm", &mut into.tpm, or_none(count(TOKENS)));
    section.set("tpd", &mut into.tpd, or_none(count(TOKENS)));
    section.set("itpm", &mut into.itpm, or_none(count(TOKENS)));
    section.set("otpm", &mut into.otpm, or_none(count(TOKENS)));
    section.set("burst", &mut into.burst, burst);
    section.set("counting", &mut into.counting, one_of(COUNTING));
    section.set("headers", &mut into.headers, one_of(HEADERS));
}
