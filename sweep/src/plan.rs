//! Estimates the resources of a sweep before anything is sent.

use serde::Serialize;

use crate::spend::{Ceiling, SweepCeilings, TokenPrices};

/// A lower bound, a likely value and an upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// If everything goes well.
    pub least: f64,
    /// In a typical sweep.
    pub likely: f64,
    /// If the search has to repeat steps, or a ceiling ends it.
    pub most: f64,
}

impl Range {
    fn of((least, likely, most): (usize, usize, usize)) -> Self {
        Self { least: least as f64, likely: likely as f64, most: most as f64 }
    }

    fn map(self, by: impl Fn(f64) -> f64) -> Self {
        Self { least: by(self.least), likely: by(self.likely), most: by(self.most) }
    }

    fn below(self, ceiling: Option<f64>) -> Self {
        let Some(ceiling) = ceiling else { return self };
        self.map(|value| value.min(ceiling))
    }
}

/// The expected resources of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Description of the mix.
    pub mix: String,
    /// Number of calls.
    pub calls: Range,
    /// Prompt tokens.
    pub input_tokens: Range,
    /// Answer tokens, if each answer has its maximum length.
    pub output_tokens: Range,
    /// Cost in the currency of the prices, if prices are known.
    pub money: Option<Range>,
    /// Duration in seconds.
    pub seconds: Range,
    /// Assumed duration of a call, in seconds.
    pub latency: f64,
    /// The ceilings.
    pub ceilings: SweepCeilings,
}

/// Assumed timing of a call before any was made, in seconds: half a second to the first token, then
/// 40 tokens per second.
const FIRST_TOKEN_S: f64 = 0.5;
const TOKEN_S: f64 = 1.0 / 40.0;
/// Seconds for rests and the transitions between steps.
const OVERHEAD_S: f64 = 20.0;

/// Inputs of the estimate: the number of calls, and the properties of one call.
pub(crate) struct Basis {
    pub(crate) calls: (usize, usize, usize),
    pub(crate) start: usize,
    pub(crate) max_cap: usize,
    /// Mean input and output tokens per call.
    pub(crate) means: (f64, f64),
    pub(crate) latency: Option<f64>,
    pub(crate) prices: Option<TokenPrices>,
    pub(crate) ceilings: SweepCeilings,
}

impl Plan {
    pub(crate) fn new(mix: String, basis: Basis) -> Self {
        let Basis { calls, start, max_cap, means: (input, output), latency, prices, ceilings } = basis;
        let latency = latency.unwrap_or(FIRST_TOKEN_S + TOKEN_S * output);
        // Ceilings on tokens and cost also bound the number of calls.
        let tokens = input + output;
        let money = prices
            .map(|prices| prices.of(1_000_000, 0) * input / 1e6 + prices.of(0, 1_000_000) * output / 1e6);
        let by = |most: Option<f64>, each: f64| most.filter(|_| each > 0.0).map(|most| (most / each).floor());
        let calls = Range::of(calls)
            .below(ceilings.calls.map(|most| most as f64))
            .below(by(ceilings.tokens.map(|most| most as f64), tokens))
            .below(money.and_then(|each| by(ceilings.cost, each)));
        // The number of concurrent calls is that of the caps tried: between the first and the
        // highest, in the likely case their geometric mean.
        let middle = (start as f64 * max_cap as f64).sqrt();
        let seconds = Range {
            least: calls.least * latency / middle.max(1.0),
            likely: OVERHEAD_S + calls.likely * latency / (middle / 2.0).max(1.0),
            most: 4.0 * OVERHEAD_S + calls.most * latency / (start as f64).max(1.0),
        };
        Self {
            mix,
            calls,
            input_tokens: calls.map(|calls| calls * input),
            output_tokens: calls.map(|calls| calls * output),
            money: money.map(|each| calls.map(|calls| calls * each)),
            seconds: seconds.below(ceilings.seconds),
            latency,
            ceilings,
        }
    }
}

impl Ceiling {
    /// Returns the command-line flag that sets the ceiling.
    pub fn flag(self) -> &'static str {
        match self {
            Ceiling::Cost => "--max-cost",
            Ceiling::Tokens => "--max-tokens",
            Ceiling::Time => "--max-time",
            Ceiling::Calls => "--max-calls",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis() -> Basis {
        Basis {
            calls: (400, 900, 2_000),
            start: 4,
            max_cap: 256,
            means: (500.0, 100.0),
            latency: None,
            prices: Some(TokenPrices { input: 1.0, output: 10.0 }),
            ceilings: SweepCeilings::default(),
        }
    }

    #[test]
    fn plan_estimates_calls_tokens_cost_and_time() {
        let plan = Plan::new(String::new(), basis());
        assert_eq!(plan.input_tokens, Range { least: 200_000.0, likely: 450_000.0, most: 1_000_000.0 });
        let money = plan.money.unwrap();
        assert!((money.likely - 1.35).abs() < 1e-9 && (money.most - 3.0).abs() < 1e-9);
        assert!(plan.seconds.least < plan.seconds.likely && plan.seconds.likely < plan.seconds.most);
    }

    #[test]
    fn ceilings_bound_the_plan() {
        let ceilings = SweepCeilings { cost: Some(0.3), seconds: Some(60.0), ..SweepCeilings::default() };
        let plan = Plan::new(String::new(), Basis { ceilings, ..basis() });
        assert_eq!(plan.calls.most, 200.0);
        assert!(plan.money.unwrap().most <= 0.3 && plan.seconds.most <= 60.0);
    }
}
