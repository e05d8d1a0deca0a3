//! What a run has taken, and whether another line may still begin.

use serde::Serialize;
use tidegate::estimate::{COLD_OUTPUT, COLD_RATIO};
use tidegate::wire::{RequestFacts, Usage};

/// Money for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Of input.
    pub input: f64,
    /// Of output.
    pub output: f64,
}

/// What a run must not go beyond. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Money, by the prices.
    pub money: Option<f64>,
    /// Tokens, input and output.
    pub tokens: Option<u64>,
}

/// Tokens and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spend {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// By the prices; 0 without.
    pub money: f64,
}

/// Keeps the books of a run: what was taken, and what calls under way may take.
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

    /// The most that a request is expected to take: its input by its bytes, and all the output that it allows.
    pub(crate) fn maximum(&self, facts: &RequestFacts) -> Spend {
        let prompt = facts.prompt.unwrap_or_default();
        self.prices.of(prompt.input(COLD_RATIO), prompt.max_output().unwrap_or(COLD_OUTPUT))
    }

    /// Whether it may begin, if all that is under way takes the most that it can.
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

    /// It has ended: with what the provider counted; without a count where it broke off, which is taken for the most there could be.
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
        /// Whatever calls take, as long as none takes more than it allows: never beyond a ceiling.
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
