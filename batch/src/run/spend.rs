//! Tracks the usage of a run and its ceilings.

use serde::Serialize;
use tidegate::protocol::{RequestFacts, Usage};
use tidegate::tokens::{COLD_OUTPUT, COLD_RATIO};

/// Prices per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Price of input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
}

/// Ceilings of a run. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Maximum cost in the currency of the prices.
    pub money: Option<f64>,
    /// Maximum number of input and output tokens together.
    pub tokens: Option<u64>,
}

/// Tokens and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spend {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Cost in the currency of the prices; 0 without prices.
    pub money: f64,
}

/// Tracks the usage of a run, and the reservations of its open calls.
#[derive(Debug)]
pub(crate) struct SpendTracker {
    prices: Prices,
    ceilings: Ceilings,
    pub(crate) spent: Spend,
    reserved: Spend,
}

impl Prices {
    fn of(&self, input: u64, output: u64) -> Spend {
        let money = (input as f64 * self.input + output as f64 * self.output) / 1e6;
        Spend { input, output, money }
    }
}

impl Spend {
    pub(crate) fn plus(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.money += other.money;
    }

    fn minus(&mut self, other: &Self) {
        self.input = self.input.saturating_sub(other.input);
        self.output = self.output.saturating_sub(other.output);
        self.money = (self.money - other.money).max(0.0);
    }
}

impl SpendTracker {
    pub(crate) fn new(prices: Prices, ceilings: Ceilings) -> Self {
        Self { prices, ceilings, spent: Spend::default(), reserved: Spend::default() }
    }

    /// Returns the maximum usage of a request: its input estimated from its bytes, and the output
    /// that it allows.
    pub(crate) fn maximum(&self, facts: &RequestFacts) -> Spend {
        let prompt = facts.prompt.unwrap_or_default();
        self.prices.of(prompt.input(COLD_RATIO), prompt.max_output().unwrap_or(COLD_OUTPUT))
    }

    /// Returns `true` if a call may start, assuming that all open calls use their maximum.
    pub(crate) fn allows(&self, most: &Spend) -> bool {
        let mut all = self.spent;
        all.plus(&self.reserved);
        all.plus(most);
        self.ceilings.money.is_none_or(|money| all.money <= money)
            && self.ceilings.tokens.is_none_or(|tokens| all.input.saturating_add(all.output) <= tokens)
    }

    pub(crate) fn begin(&mut self, most: &Spend) {
        self.reserved.plus(most);
    }

    /// Settles an ended call with the provider's count. A call that broke off without a count is
    /// charged at its maximum.
    pub(crate) fn end(&mut self, most: &Spend, counted: Option<Usage>, broke_off: bool) -> Spend {
        self.reserved.minus(most);
        let took = match counted {
            Some(usage) => self.prices.of(usage.input, usage.output),
            None if broke_off => *most,
            None => Spend::default(),
        };
        self.spent.plus(&took);
        took
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The ceilings are never exceeded if no call exceeds its own limits.
        #[test]
        fn ceilings_are_never_exceeded(calls in prop::collection::vec((0u64..1_000, 0u64..1_000, 0.0f64..1.0, any::<bool>()), 0..100), tokens in 0u64..20_000, money in 0.0f64..0.1) {
            let ceilings = Ceilings { money: Some(money), tokens: Some(tokens) };
            let mut tracker = SpendTracker::new(Prices { input: 1.0, output: 4.0 }, ceilings);
            let mut open = Vec::new();
            for (input, output, share, ends) in calls {
                let most = tracker.prices.of(input, output);
                if tracker.allows(&most) {
                    tracker.begin(&most);
                    open.push((most, share));
                }
                if ends && let Some((most, share)) = open.pop() {
                    let part = |of: u64| (of as f64 * share) as u64;
                    let usage = Usage { input: part(most.input), output: part(most.output), cached_input: 0 };
                    tracker.end(&most, Some(usage), false);
                }
                prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            }
            for (most, _) in open { tracker.end(&most, None, true); }
            prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            prop_assert_eq!(tracker.reserved.input, 0);
        }
    }
}
