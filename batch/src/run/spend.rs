//! Tracks the tokens and the cost of a run, and compares them with ceilings.

use serde::Serialize;
use tidegate::protocol::prompt::Task;
use tidegate::protocol::{RequestFacts, Usage};
use tidegate::tokens::{COLD_OUTPUT, COLD_RATIO};

/// Prices per million tokens, in any currency. Default 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Price of a million input tokens.
    pub input: f64,
    /// Price of a million output tokens.
    pub output: f64,
}

/// Limits on what a run may use. Default none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Maximum cost, in the currency of the prices. `None` is no limit.
    pub money: Option<f64>,
    /// Maximum number of input and output tokens together. `None` is no limit.
    pub tokens: Option<u64>,
}

/// The tokens that the calls of a batch used, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spend {
    /// Number of input tokens.
    pub input: u64,
    /// Number of output tokens.
    pub output: u64,
    /// Cost, in the currency of the prices. 0 if there are no prices.
    pub money: f64,
}

/// Tracks what a run has used, and the maximum that its open calls can still use.
#[derive(Debug)]
pub(crate) struct SpendTracker {
    prices: Prices,
    ceilings: Ceilings,
    pub(crate) spent: Spend,
    reserved: Spend,
}

impl Prices {
    fn spend_for(&self, input: u64, output: u64) -> Spend {
        let money = (input as f64 * self.input + output as f64 * self.output) / 1e6;
        Spend { input, output, money }
    }
}

impl Spend {
    pub(crate) fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.money += other.money;
    }

    fn subtract(&mut self, other: &Self) {
        self.input = self.input.saturating_sub(other.input);
        self.output = self.output.saturating_sub(other.output);
        self.money = (self.money - other.money).max(0.0);
    }
}

impl SpendTracker {
    pub(crate) fn new(prices: Prices, ceilings: Ceilings) -> Self {
        Self { prices, ceilings, spent: Spend::default(), reserved: Spend::default() }
    }

    /// Returns the maximum that a request can use: its input tokens, estimated from its bytes, and
    /// the output tokens that it allows. If it sets no maximum, 1,024 output tokens are assumed, or
    /// none for embeddings, rankings and moderations.
    pub(crate) fn max_spend(&self, facts: &RequestFacts) -> Spend {
        let prompt = facts.prompt.unwrap_or_default();
        let output = match facts.task {
            Task::Embed | Task::Rank | Task::Classify => 0,
            _ => prompt.max_output().unwrap_or(COLD_OUTPUT),
        };
        self.prices.spend_for(prompt.input(COLD_RATIO), output)
    }

    /// Returns `true` if a call that uses at most `max_spend` cannot exceed a ceiling, even if all
    /// open calls use their maximum.
    pub(crate) fn allows(&self, max_spend: &Spend) -> bool {
        let mut all = self.spent;
        all.add(&self.reserved);
        all.add(max_spend);
        self.ceilings.money.is_none_or(|money| all.money <= money)
            && self.ceilings.tokens.is_none_or(|tokens| all.input.saturating_add(all.output) <= tokens)
    }

    pub(crate) fn reserve(&mut self, max_spend: &Spend) {
        self.reserved.add(max_spend);
    }

    /// Replaces the reservation `max_spend` of an ended call by the tokens that it used: `counted`
    /// if the provider reported them, otherwise `max_spend` if `usage_unknown` is `true`, and
    /// otherwise none.
    pub(crate) fn settle(&mut self, max_spend: &Spend, counted: Option<Usage>, usage_unknown: bool) {
        self.reserved.subtract(max_spend);
        let actual = match counted {
            Some(usage) => self.prices.spend_for(usage.input, usage.output),
            None if usage_unknown => *max_spend,
            None => Spend::default(),
        };
        self.spent.add(&actual);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// If no call uses more than it reserved, the run never exceeds a ceiling.
        #[test]
        fn ceilings_are_never_exceeded(calls in prop::collection::vec((0u64..1_000, 0u64..1_000, 0.0f64..1.0, any::<bool>()), 0..100), tokens in 0u64..20_000, money in 0.0f64..0.1) {
            let ceilings = Ceilings { money: Some(money), tokens: Some(tokens) };
            let mut tracker = SpendTracker::new(Prices { input: 1.0, output: 4.0 }, ceilings);
            let mut open = Vec::new();
            for (input, output, share, ends) in calls {
                let max_spend = tracker.prices.spend_for(input, output);
                if tracker.allows(&max_spend) {
                    tracker.reserve(&max_spend);
                    open.push((max_spend, share));
                }
                if ends && let Some((max_spend, share)) = open.pop() {
                    let part = |of: u64| (of as f64 * share) as u64;
                    let usage = Usage { input: part(max_spend.input), output: part(max_spend.output), cached_input: 0 };
                    tracker.settle(&max_spend, Some(usage), false);
                }
                prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            }
            for (max_spend, _) in open { tracker.settle(&max_spend, None, true); }
            prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            prop_assert_eq!(tracker.reserved.input, 0);
        }
    }
}
