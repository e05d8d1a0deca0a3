//! Reads rates: of a target, and of budgets that several targets share.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::schema::RATES;
use crate::schema::declaration::Group;
use crate::schema::given::{Given, Section};
use crate::schema::nearest;
use crate::schema::setting::{BUDGET_NAME, InvalidValue, Setting};
use crate::{Config, RateConfig, TargetConfig};

/// Shared rates by name.
pub(super) type Budgets = BTreeMap<Arc<str>, RateConfig>;

/// Reads `budgets`. Includes budgets with invalid values, so that the targets that name them are
/// not rejected too.
pub(super) fn read_budgets(given: Given<'_>) -> Budgets {
    let budget = |(name, given): (&str, Given<'_>)| {
        let mut rates = RateConfig::default();
        rates.overlay(given, &());
        (Arc::from(name), rates)
    };
    given.named().into_iter().map(budget).collect()
}

/// Rejects budgets that no target names.
pub(super) fn check_unused(top: &Section<'_>, config: &Config) {
    let Some(given) = top.get("budgets") else { return };
    let targets = config.targets.iter().chain([&config.default_target]);
    let named: HashSet<&Arc<str>> = targets.filter_map(|target| target.budget.as_ref()).collect();
    for name in config.budgets.keys().filter(|name| !named.contains(name)) {
        if let Some(given) = given.child(name) {
            given
                .reject("has no effect, because no target names it as its \"budget\"; remove it, or name it");
        }
    }
}

/// Reads the rates of a target, or the budget that it shares. Each replaces an inherited value of
/// the other. Both together are rejected.
pub(super) fn read_rates(section: &Section<'_>, into: &mut TargetConfig, budgets: &Budgets) {
    if let Some(given) = section.get("budget") {
        check_budget(&given, &mut into.budget, budgets);
    }
    if into.budget.is_none() {
        return into.rates.read(section);
    }
    if section.has("budget") {
        into.rates = RateConfig::default();
    }
    for given in RATES.names().filter_map(|key| section.get(key)) {
        given.reject(
            "the target has the rates of its budget; set this key there, or set budget = \"none\" here",
        );
    }
}

/// Rejects the name of an unknown budget, and removes it.
fn check_budget(given: &Given<'_>, budget: &mut Option<Arc<str>>, budgets: &Budgets) {
    let Some(name) = budget.take_if(|name| !budgets.contains_key(name)) else { return };
    let names: Vec<&str> = budgets.keys().map(|name| &**name).collect();
    let advice = nearest::suggest_name(&name, &names, "there are no [budgets]");
    given.reject(InvalidValue::expected(BUDGET_NAME.expected).hint(advice).message(given.value));
}
