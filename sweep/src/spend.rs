//! What a sweep spends (calls, tokens, cost, time), and its ceilings.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Calls, tokens, cost and time used so far. Exchanges whose tokens the server did not count are
/// included with an upper estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepSpend {
    /// Calls that were sent, including the preflight call.
    pub calls: usize,
    /// Exchanges with the server, including retries.
    pub attempts: usize,
    /// Number of prompt tokens.
    pub input_tokens: u64,
    /// Prompt tokens that the server read from its prefix cache, a part of `input_tokens`. 0 if the
    /// server does not report them.
    pub cached_tokens: u64,
    /// Number of answer tokens.
    pub output_tokens: u64,
    /// Cost in the currency of the prices, or `None` without prices.
    pub money: Option<f64>,
    /// Running time in seconds. Excludes the time between an interruption and the resumption.
    pub seconds: f64,
}

/// Ceilings on what a sweep may spend. `None`: no ceiling.
///
/// No request is sent that could exceed a ceiling. An open exchange counts with its maximum output
/// tokens and 1.25 times its estimated prompt tokens, or more if the server has counted more than
/// that for an earlier prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepCeilings {
    /// Maximum cost, in the currency of the prices. `None` is no limit.
    pub cost: Option<f64>,
    /// Maximum number of tokens, prompts and answers together. `None` is no limit.
    pub tokens: Option<u64>,
    /// Maximum duration in seconds, after which calls in flight are cancelled. `None` is no limit.
    pub seconds: Option<f64>,
    /// Maximum number of requests sent, including retries. `None` is no limit.
    pub calls: Option<usize>,
}

/// Names one of the limits in [`SweepCeilings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ceiling {
    /// Cost (`--max-cost`).
    Cost,
    /// Tokens (`--max-tokens`).
    Tokens,
    /// Time (`--max-time`).
    Time,
    /// Requests sent (`--max-calls`).
    Calls,
}

/// Prices of prompt tokens and answer tokens, both in the same currency, which may be any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrices {
    /// Price of one million prompt tokens.
    pub input: f64,
    /// Price of one million answer tokens.
    pub output: f64,
}

impl TokenPrices {
    /// Returns the cost of `input` prompt tokens and `output` answer tokens. Cached prompt tokens
    /// cost the full price, because discounts differ between providers.
    pub fn cost(&self, input: u64, output: u64) -> f64 {
        (self.input * input as f64 + self.output * output as f64) / 1e6
    }
}

/// Counts what a sweep spends, and reserves the maximum for each open exchange.
#[derive(Debug)]
pub(crate) struct SpendTracker(Mutex<TrackerState>);

#[derive(Debug)]
struct TrackerState {
    ceilings: SweepCeilings,
    prices: Option<TokenPrices>,
    spent: SweepSpend,
    /// Total input and output tokens reserved for open exchanges.
    reserved: (u64, u64),
    /// Largest ratio of counted to estimated prompt tokens of an exchange so far; at least
    /// [`INITIAL_RATIO`].
    max_ratio: f64,
    ceiling_hit: Option<Ceiling>,
}

/// Minimum of the ratio of counted to estimated prompt tokens that a reservation assumes.
const INITIAL_RATIO: f64 = 1.25;

/// Tokens reserved for one open exchange. Dropping the reservation without settling it charges all
/// of it, because the server may have run the request.
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
            money: prices.map(|prices| prices.cost(spent.input_tokens, spent.output_tokens)),
            ..spent
        };
        Arc::new(Self(Mutex::new(TrackerState {
            ceilings,
            prices,
            spent,
            reserved: (0, 0),
            max_ratio: INITIAL_RATIO,
            ceiling_hit: None,
        })))
    }

    /// Reserves the maximum that an exchange with `input` estimated prompt tokens and at most
    /// `output` answer tokens can use. `is_first_attempt` states whether the exchange begins a new
    /// call.
    ///
    /// # Errors
    ///
    /// Returns the ceiling that the exchange could exceed. Nothing is reserved in that case.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        input: u64,
        output: u64,
        is_first_attempt: bool,
    ) -> Result<SpendReservation, Ceiling> {
        let mut inner = self.0.lock();
        let max = inner.worst_case_input(input);
        if let Some(ceiling) = inner.exceeded_ceiling(max, output) {
            inner.ceiling_hit = Some(ceiling);
            return Err(ceiling);
        }
        inner.reserved.0 += max;
        inner.reserved.1 += output;
        inner.spent.attempts += 1;
        inner.spent.calls += usize::from(is_first_attempt);
        drop(inner);
        Ok(SpendReservation { tracker: self.clone(), input: max, output, estimated: input, settled: false })
    }

    /// Returns a ceiling that one more exchange of this size could exceed if `waiting` calls of the
    /// same size are sent before it. Returns `None` if no ceiling could be exceeded.
    pub(crate) fn ceiling_of_next(&self, input: u64, output: u64, waiting: usize) -> Option<Ceiling> {
        let inner = self.0.lock();
        let waiting = waiting as u64;
        let more = |tokens: u64| tokens.saturating_mul(waiting + 1);
        let calls = inner.ceilings.calls.is_some_and(|max| inner.spent.attempts + waiting as usize >= max);
        if calls {
            Some(Ceiling::Calls)
        } else {
            inner.exceeded_ceiling(more(inner.worst_case_input(input)), more(output))
        }
    }

    /// Returns the ceiling that made [`SpendTracker::reserve`] fail most recently, or `None` if it
    /// never failed.
    pub(crate) fn ceiling_hit(&self) -> Option<Ceiling> {
        self.0.lock().ceiling_hit
    }

    /// Returns the total spent so far. Its `seconds` do not include the current run, because this
    /// tracker reads no clock.
    pub(crate) fn spent(&self) -> SweepSpend {
        self.0.lock().spent
    }

    /// Returns the most that the sweep can have spent so far: the total, with all that is reserved
    /// for open exchanges. Its `seconds` do not include the current run.
    pub(crate) fn max_spent(&self) -> SweepSpend {
        let inner = self.0.lock();
        let input_tokens = inner.spent.input_tokens + inner.reserved.0;
        let output_tokens = inner.spent.output_tokens + inner.reserved.1;
        let money = inner.prices.map(|prices| prices.cost(input_tokens, output_tokens));
        SweepSpend { input_tokens, output_tokens, money, ..inner.spent }
    }

    fn settle(&self, reservation: &SpendReservation, input: u64, cached: u64, output: u64) {
        let mut inner = self.0.lock();
        inner.reserved.0 = inner.reserved.0.saturating_sub(reservation.input);
        inner.reserved.1 = inner.reserved.1.saturating_sub(reservation.output);
        inner.spent.input_tokens += input;
        inner.spent.cached_tokens += cached;
        inner.spent.output_tokens += output;
        inner.spent.money =
            inner.prices.map(|prices| prices.cost(inner.spent.input_tokens, inner.spent.output_tokens));
    }
}

impl TrackerState {
    fn worst_case_input(&self, input: u64) -> u64 {
        (input as f64 * self.max_ratio).ceil() as u64
    }

    fn exceeded_ceiling(&self, input: u64, output: u64) -> Option<Ceiling> {
        let SweepCeilings { cost, tokens, seconds: _, calls } = self.ceilings;
        let input = self.spent.input_tokens + self.reserved.0 + input;
        let output = self.spent.output_tokens + self.reserved.1 + output;
        let money = self.prices.map(|prices| prices.cost(input, output));
        if calls.is_some_and(|max| self.spent.attempts >= max) {
            Some(Ceiling::Calls)
        } else if tokens.is_some_and(|max| input.saturating_add(output) > max) {
            Some(Ceiling::Tokens)
        } else if cost.zip(money).is_some_and(|(max, money)| money > max) {
            Some(Ceiling::Cost)
        } else {
            None
        }
    }
}

impl SpendReservation {
    /// Settles the reservation with the token counts of the server. `cached` is a part of `input`.
    pub(crate) fn settle_counted(mut self, input: u64, cached: u64, output: u64) {
        self.settled = true;
        if self.estimated > 0 {
            let mut inner = self.tracker.0.lock();
            inner.max_ratio = inner.max_ratio.max(input as f64 / self.estimated as f64);
        }
        self.tracker.settle(&self, input, cached, output);
    }

    /// Releases the reservation without a charge, because the server rejected the exchange.
    pub(crate) fn release(mut self) {
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
        let reservation = tracker.reserve(400, 200, true).unwrap();
        assert_eq!(tracker.reserve(400, 200, true).unwrap_err(), Ceiling::Cost);
        assert_eq!(tracker.ceiling_hit(), Some(Ceiling::Cost));
        let most = tracker.max_spent();
        assert_eq!((most.attempts, most.input_tokens, most.output_tokens), (1, 500, 200));
        assert_eq!(most.money, Some(0.003));
        reservation.settle_counted(400, 0, 20);
        let spent = tracker.spent();
        assert_eq!((spent.calls, spent.attempts, spent.money), (1, 1, Some(0.001)));
        assert_eq!(tracker.max_spent(), spent);
        tracker.reserve(400, 200, false).unwrap().release();
        assert_eq!(tracker.spent().money, Some(0.001));
    }

    proptest! {
        /// No ceiling is exceeded, however exchanges end, if the server counts no prompt with more
        /// than 1.25 times its estimated tokens.
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
                if let Ok(reservation) = tracker.reserve(input, output, true) {
                    let counted = ((input as f64 * part) as u64, (output as f64 * used) as u64);
                    match what {
                        0 => reservation.settle_counted(counted.0, 0, counted.1),
                        1 => reservation.release(),
                        2 => drop(reservation),
                        _ => open.push((reservation, counted)),
                    }
                }
            }
            for (reservation, (input, output)) in open {
                reservation.settle_counted(input, 0, output);
            }
            let spent = tracker.spent();
            prop_assert!(spent.attempts <= calls);
            prop_assert!(spent.input_tokens + spent.output_tokens <= tokens);
            prop_assert!(spent.money.unwrap() <= cost + 1e-12);
        }
    }
}
