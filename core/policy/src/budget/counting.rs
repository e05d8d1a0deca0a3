//! Counting rules: how providers charge tokens, and the total charged under each rule.

use super::{BudgetKind, Need};
use crate::saturate;
use tidegate_config::Counting;
use tidegate_protocol::{observe::Usage, request::Dialect};
use tidegate_tokens::Demand;

/// The counting rules under which calls are charged. [`Counting::Auto`] is resolved to one of them.
pub(super) const RULES: [Counting; 4] = [Counting::Sum, Counting::Larger, Counting::Actual, Counting::Input];

/// A number of requests or tokens under each counting rule, in the order of [`RULES`].
pub(super) type PerRule = [i64; 4];

/// Returns the counting rule of the provider that defined the dialect, or [`Counting::Sum`] if its
/// rule is not known.
pub(super) fn rule_of_dialect(dialect: Dialect) -> Counting {
    match dialect {
        Dialect::AnthropicMessages => Counting::Actual,
        Dialect::Gemini => Counting::Input,
        _ => Counting::Sum,
    }
}

/// Running totals of all charges. The difference between two copies is what was charged in between.
/// The totals wrap around on overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChargeTotals {
    /// Totals of requests, input tokens, output tokens, and of all tokens under each of [`RULES`],
    /// in this order.
    charged: [i64; 7],
}

impl ChargeTotals {
    /// Returns totals that contain only the charges of a single call with this demand.
    pub(super) fn from_demand(demand: &Demand) -> Self {
        let demand = &uncached(demand);
        let [sum, larger, actual, input_only] = RULES.map(|rule| i64::from(tokens(rule, demand)));
        let [input, output] = [demand.input, demand.output].map(|tokens| i64::from(saturate(tokens)));
        Self { charged: [1, input, output, sum, larger, actual, input_only] }
    }

    /// Returns the requests or tokens charged so far for limits of this kind, under each counting
    /// rule.
    pub(super) fn by_rule(&self, kind: BudgetKind) -> PerRule {
        let [requests, input, output, tokens @ ..] = self.charged;
        kind.select([[requests; 4], tokens, [input; 4], [output; 4]])
    }

    pub(super) fn plus(self, other: &Self) -> Self {
        self.zip(other, i64::wrapping_add)
    }

    pub(super) fn minus(self, other: &Self) -> Self {
        self.zip(other, i64::wrapping_sub)
    }

    fn zip(mut self, other: &Self, f: impl Fn(i64, i64) -> i64) -> Self {
        for (mine, theirs) in self.charged.iter_mut().zip(other.charged) {
            *mine = f(*mine, theirs);
        }
        self
    }
}

/// Returns `true` if the provider of the call does not count cached input tokens.
pub(super) fn excludes_cached(demand: &Demand) -> bool {
    demand.dialect == Some(Dialect::AnthropicMessages)
}

/// Returns the tokens that a call is charged under a counting rule.
pub(super) fn need(rule: Counting, demand: &Demand) -> Need {
    let demand = &uncached(demand);
    let [input, output] = [demand.input, demand.output].map(saturate);
    Need { tokens: tokens(rule, demand), input, output, kv: 0 }
}

/// Returns the demand without its cached input if the provider does not count cached input.
fn uncached(demand: &Demand) -> Demand {
    let free = if excludes_cached(demand) { demand.cached } else { 0 };
    Demand { input: demand.input.saturating_sub(free), cached: 0, ..*demand }
}

/// Returns `demand` with its estimates replaced by the tokens that the provider counted (`usage`).
/// If only the counted input is 0, the estimated input is kept. Returns `None` if `usage` contains
/// no tokens.
///
/// `max_output` is kept, because some providers charge it when the request arrives and do not
/// refund unused tokens.
pub(super) fn actual_demand(demand: &Demand, usage: &Usage) -> Option<Demand> {
    if usage.input == 0 && usage.output == 0 {
        return None;
    }
    let free = if excludes_cached(demand) { usage.cached_input.min(usage.input) } else { 0 };
    let input = if usage.input == 0 { demand.input } else { usage.input - free };
    let max_output = demand.max_output.or(Some(demand.output));
    // `input` no longer contains the cached tokens.
    Some(Demand { input, output: usage.output, max_output, cached: 0, ..*demand })
}

/// Returns the tokens that a call is charged, under this counting rule, by a limit that counts
/// input and output together. [`Counting::Auto`] counts as [`Counting::Sum`].
fn tokens(rule: Counting, demand: &Demand) -> u32 {
    let most = demand.max_output.unwrap_or(demand.output);
    saturate(match rule {
        Counting::Sum | Counting::Auto => demand.input.saturating_add(most),
        Counting::Larger => demand.input.max(most),
        Counting::Actual => demand.total(),
        Counting::Input => demand.input,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counting_rule_charges_its_tokens() {
        let demand = Demand { input: 100, output: 20, max_output: Some(1_000), ..Demand::default() };
        let all = RULES.map(|rule| need(rule, &demand).tokens);
        assert_eq!(all, [1_100, 1_000, 120, 100]);
        let usage = Usage { input: 90, output: 40, cached_input: 50 };
        let used = actual_demand(&demand, &usage);
        assert_eq!(used.map(|used| RULES.map(|rule| tokens(rule, &used))), Some([1_090, 1_000, 130, 90]));
        let uncached = Demand { dialect: Some(Dialect::AnthropicMessages), ..demand };
        let used = actual_demand(&uncached, &usage);
        assert_eq!(used.map(|used| used.input), Some(40));
    }

    #[test]
    fn impossible_usage_is_ignored_or_clamped() {
        let demand = Demand { input: 100, output: 20, ..Demand::default() };
        assert_eq!(actual_demand(&demand, &Usage::default()), None);
        let absurd = Usage { input: u64::MAX, output: u64::MAX, cached_input: u64::MAX };
        assert!(
            actual_demand(&demand, &absurd).is_some_and(|used| tokens(Counting::Actual, &used) == u32::MAX)
        );
        let uncached = Demand { dialect: Some(Dialect::AnthropicMessages), ..demand };
        assert!(actual_demand(&uncached, &absurd).is_some_and(|used| used.input == 0));
        assert_eq!(
            need(
                Counting::Sum,
                &Demand { input: u64::MAX, output: 1, max_output: Some(u64::MAX), ..Demand::default() }
            )
            .tokens,
            u32::MAX
        );
    }
}
