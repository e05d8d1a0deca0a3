//! The resources that a sweep uses, and their ceilings.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Resources used so far. Tokens are counted by the server, or otherwise estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepSpend {
    /// Calls sent, including the preflight call.
    pub calls: usize,
    /// Exchanges with the server, including retries.
    pub attempts: usize,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Prompt tokens that the server read from a cache, if the server reports them.
    pub cached_tokens: u64,
    /// Answer tokens.
    pub output_tokens: u64,
    /// Cost in the currency of the prices, or `None` if prices are unknown.
    pub money: Option<f64>,
    /// Seconds since the first call. The pause of a resumed sweep is not counted.
    pub seconds: f64,
}

/// Ceilings on the resources of a sweep. No request is sent that could exceed one.
///
/// Until the server has counted, an exchange is charged at its estimated prompt tokens plus a
/// quarter, and at its maximum output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepCeilings {
    /// Cost in the currency of the prices.
    pub cost: Option<f64>,
    /// Tokens of prompts and answers together.
    pub tokens: Option<u64>,
    /// Duration in seconds. Calls in flight are then cancelled.
    pub seconds: Option<f64>,
    /// Exchanges with the server, including retries.
    pub calls: Option<usize>,
}

/// A ceiling on the resources of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ceiling {
    /// The cost, limited by `--max-cost`.
    Cost,
    /// The tokens, limited by `--max-tokens`.
    Tokens,
    /// The time, limited by `--max-time`.
    Time,
    /// The requests, limited by `--max-calls`.
    Calls,
}

/// Token prices, in any currency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrices {
    /// Price per million prompt tokens.
    pub input: f64,
    /// Price per million answer tokens.
    pub output: f64,
}

impl TokenPrices {
    /// Returns the cost of a number of tokens. Cached input counts in full, because discounts
    /// differ between providers.
    pub fn of(&self, input: u64, output: u64) -> f64 {
        (self.input * input as f64 + self.output * output as f64) / 1e6
    }
}

/// Tracks what a sweep spends. Shared by all senders.
#[derive(Debug)]
pub(crate) struct SpendTracker(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    ceilings: SweepCeilings,
    prices: Option<TokenPrices>,
    spent: SweepSpend,
    /// Reserved input and output tokens of open exchanges.
    held: (u64, u64),
    /// Largest ratio of counted to estimated prompt tokens so far.
    excess: f64,
    hit: Option<Ceiling>,
}

/// Assumed ratio of counted to estimated prompt tokens before any were counted.
const INITIAL_EXCESS: f64 = 1.25;

/// The reservation of one exchange. If dropped unsettled, it counts as spent, because the server
/// may have run the request.
#[derive(Debug)]
pub(crate) struct SpendReservation {
    tracker: Arc<SpendTracker>,
    input: u64,
    output: u64,
    estimated: u64,
    settled: bool,
}

impl SpendTracker {
    pub(crate) fn new(ceilings: SweepCeilings, prices: Option<TokenPrices>, spent: SweepSpend) -> Arc<Self> {
        let spent = SweepSpend {
            money: prices.map(|prices| prices.of(spent.input_tokens, spent.output_tokens)),
            ..spent
        };
        Arc::new(Self(Mutex::new(Inner {
            ceilings,
            prices,
            spent,
            held: (0, 0),
            excess: INITIAL_EXCESS,
            hit: None,
        })))
    }

    /// Reserves the most that an exchange can use.
    ///
    /// # Errors
    ///
    /// Returns the ceiling that the exchange could exceed. Nothing is reserved then.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        input: u64,
        output: u64,
        first: bool,
    ) -> Result<SpendReservation, Ceiling> {
        let mut inner = self.0.lock();
        let most = inner.most(input);
        if let Some(ceiling) = inner.breaks(most, output) {
            inner.hit = Some(ceiling);
            return Err(ceiling);
        }
        inner.held.0 += most;
        inner.held.1 += output;
        inner.spent.attempts += 1;
        inner.spent.calls += usize::from(first);
        drop(inner);
        Ok(SpendReservation { tracker: self.clone(), input: most, output, estimated: input, settled: false })
    }

    /// Returns the ceiling that another such exchange could exceed, in addition to `waiting` calls
    /// that were not sent yet.
    pub(crate) fn would_break(&self, input: u64, output: u64, waiting: usize) -> Option<Ceiling> {
        let inner = self.0.lock();
        let waiting = waiting as u64;
        let more = |tokens: u64| tokens.saturating_mul(waiting + 1);
        let calls = inner.ceilings.calls.is_some_and(|most| inner.spent.attempts + waiting as usize >= most);
        if calls { Some(Ceiling::Calls) } else { inner.breaks(more(inner.most(input)), more(output)) }
    }

    /// Returns the ceiling because of which an exchange was not sent.
    pub(crate) fn hit(&self) -> Option<Ceiling> {
        self.0.lock().hit
    }

    /// Returns what was spent so far. The caller fills in `seconds`.
    pub(crate) fn spent(&self) -> SweepSpend {
        self.0.lock().spent
    }

    fn settle(&self, hold: &SpendReservation, input: u64, cached: u64, output: u64) {
        let mut inner = self.0.lock();
        inner.held.0 = inner.held.0.saturating_sub(hold.input);
        inner.held.1 = inner.held.1.saturating_sub(hold.output);
        inner.spent.input_tokens += input;
        inner.spent.cached_tokens += cached;
        inner.spent.output_tokens += output;
        inner.spent.money =
            inner.prices.map(|prices| prices.of(inner.spent.input_tokens, inner.spent.output_tokens));
    }
}

impl Inner {
    fn most(&self, input: u64) -> u64 {
        (input as f64 * self.excess).ceil() as u64
    }

    fn breaks(&self, input: u64, output: u64) -> Option<Ceiling> {
        let SweepCeilings { cost, tokens, seconds: _, calls } = self.ceilings;
        let input = self.spent.input_tokens + self.held.0 + input;
        let output = self.spent.output_tokens + self.held.1 + output;
        let money = self.prices.map(|prices| prices.of(input, output));
        if calls.is_some_and(|most| self.spent.attempts >= most) {
            Some(Ceiling::Calls)
        } else if tokens.is_some_and(|most| input.saturating_add(output) > most) {
            Some(Ceiling::Tokens)
        } else if cost.zip(money).is_some_and(|(most, money)| money > most) {
            Some(Ceiling::Cost)
        } else {
            None
        }
    }
}

impl SpendReservation {
    /// Settles the reservation with the server's counts.
    pub(crate) fn counted(mut self, input: u64, cached: u64, output: u64) {
        self.settled = true;
        if self.estimated > 0 {
            let mut inner = self.tracker.0.lock();
            inner.excess = inner.excess.max(input as f64 / self.estimated as f64);
        }
        self.tracker.settle(&self, input, cached, output);
    }

    /// Settles the reservation of a rejected exchange, which costs nothing.
    pub(crate) fn refused(mut self) {
        self.settled = true;
        self.tracker.settle(&self, 0, 0, 0);
    }
}

impl Drop for SpendReservation {
    fn drop(&mut self) {
        if !self.settled {
            self.tracker.settle(self, self.input, 0, self.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tracker(ceilings: SweepCeilings) -> Arc<SpendTracker> {
        SpendTracker::new(ceilings, Some(TokenPrices { input: 2.0, output: 10.0 }), SweepSpend::default())
    }

    #[test]
    fn open_exchanges_reserve_their_cost() {
        let tracker = tracker(SweepCeilings { cost: Some(0.005), ..SweepCeilings::default() });
        let hold = tracker.reserve(400, 200, true).unwrap();
        assert_eq!(tracker.reserve(400, 200, true).unwrap_err(), Ceiling::Cost);
        assert_eq!(tracker.hit(), Some(Ceiling::Cost));
        hold.counted(400, 0, 20);
        let spent = tracker.spent();
        assert_eq!((spent.calls, spent.attempts, spent.money), (1, 1, Some(0.001)));
        tracker.reserve(400, 200, false).unwrap().refused();
        assert_eq!(tracker.spent().money, Some(0.001));
    }

    proptest! {
        /// No ceiling is exceeded, whatever exchanges return, if prompts are estimated within a
        /// quarter.
        #[test]
        fn ceilings_are_never_exceeded(
            tokens in 0u64..20_000,
            cost in 0.0f64..0.2,
            calls in 0usize..40,
            exchanges in prop::collection::vec((1u64..500, 1u64..300, 0.0f64..1.25, 0.0f64..1.0, 0u8..4), 0..60),
        ) {
            let ceilings = SweepCeilings { tokens: Some(tokens), cost: Some(cost), calls: Some(calls), seconds: None };
            let tracker = tracker(ceilings);
            let mut open = Vec::new();
            for (input, output, part, used, what) in exchanges {
                if let Ok(hold) = tracker.reserve(input, output, true) {
                    let counted = ((input as f64 * part) as u64, (output as f64 * used) as u64);
                    match what {
                        0 => hold.counted(counted.0, 0, counted.1),
                        1 => hold.refused(),
                        2 => drop(hold),
                        _ => open.push((hold, counted)),
                    }
                }
            }
            for (hold, (input, output)) in open {
                hold.counted(input, 0, output);
            }
            let spent = tracker.spent();
            prop_assert!(spent.attempts <= calls);
            prop_assert!(spent.input_tokens + spent.output_tokens <= tokens);
            prop_assert!(spent.money.unwrap() <= cost + 1e-12);
        }
    }
}
