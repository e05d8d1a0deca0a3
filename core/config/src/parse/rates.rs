//! Reads the rates of a target (its maximum requests and tokens per minute and per day), and checks
//! the budgets that targets share.

use std::collections::HashSet;

use crate::schema::{BUDGET_NAME, Budgets, Given, InvalidValue, RATES, suggest};
use crate::{Config, RateConfig, TargetConfig};

/// Reports each shared budget that no target uses.
pub(super) fn check_unused(top: &Given<'_>, config: &Config) {
    let targets = config.targets.iter().chain([&config.default_target]);
    let used: HashSet<&str> = targets.filter_map(|target| target.budget.as_deref()).collect();
    for (name, given) in top.get("budgets").iter().flat_map(Given::named) {
        if !used.contains(name) {
            given
                .reject("has no effect, because no target names it as its \"budget\"; remove it, or name it");
        }
    }
}

/// Reads the rates in `given`, the table of a target or `defaults`, into `into`. If `into` names a
/// shared budget, which replaces the rates, reports any rates in `given` instead.
///
/// The caller must have read the name of the budget into `into` before. A name in `given` that
/// `budgets` does not have is first reported and removed. A known name in `given` removes the rates
/// that `into` has inherited.
pub(super) fn read_rates(given: &Given<'_>, into: &mut TargetConfig, budgets: &Budgets) {
    let own_budget = given.get("budget");
    let unknown = into.budget.take_if(|name| own_budget.is_some() && !budgets.contains_key(name));
    if let (Some(given), Some(name)) = (&own_budget, unknown) {
        let names: Vec<&str> = budgets.keys().map(|name| &**name).collect();
        let advice = suggest::suggest_name(&name, &names, "there are no [budgets]");
        given.reject(InvalidValue::expected(BUDGET_NAME.expected).hint(advice).message(given.value));
    }
    if into.budget.is_none() {
        return into.rates.read(given);
    }
    if own_budget.is_some() {
        into.rates = RateConfig::default();
    }
    for given in RATES.names().filter_map(|key| given.get(key)) {
        given.reject(
            "the target has the rates of its budget; set this key there, or set budget = \"none\" here",
        );
    }
}
