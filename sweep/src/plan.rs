//! Estimates the calls, tokens, cost and time of a sweep before anything is sent.

use serde::Serialize;

use crate::spend::{Ceiling, SweepCeilings, TokenPrices};

/// An estimate with a lower and an upper bound, in the unit of the field that contains it. If the
/// sweep has a ceiling, no value exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Lower bound of the estimate, which assumes that no step is repeated.
    pub least: f64,
    /// Value that is expected for a typical server.
    pub likely: f64,
    /// Upper bound of the estimate, which assumes that steps are repeated.
    pub most: f64,
}

impl Range {
    fn from_counts((least, likely, most): (usize, usize, usize)) -> Self {
        Self { least: least as f64, likely: likely as f64, most: most as f64 }
    }

    fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        Self { least: convert(self.least), likely: convert(self.likely), most: convert(self.most) }
    }

    fn capped_at(self, ceiling: Option<f64>) -> Self {
        let Some(ceiling) = ceiling else { return self };
        self.map(|value| value.min(ceiling))
    }
}

/// Estimate of what a sweep will use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Description of the requests: where they come from and how long they are.
    pub mix: String,
    /// Number of calls, without retries.
    pub calls: Range,
    /// Number of prompt tokens over all calls.
    pub input_tokens: Range,
    /// Number of answer tokens over all calls, if each answer has its maximum length.
    pub output_tokens: Range,
    /// Total cost in the currency of the prices, or `None` without prices.
    pub money: Option<Range>,
    /// Duration of the sweep, in seconds.
    pub seconds: Range,
    /// Assumed duration of one call, in seconds.
    pub latency: f64,
    /// Ceilings of the sweep, which the estimates do not exceed. A ceiling that is `None` limits
    /// nothing.
    pub ceilings: SweepCeilings,
}

/// Assumed time to the first token before any call was made, in seconds.
const FIRST_TOKEN_S: f64 = 0.5;
/// Assumed time per output token before any call was made, in seconds.
const TOKEN_S: f64 = 1.0 / 40.0;
/// Assumed total time for rests and transitions between steps, in seconds. The upper bound of the
/// duration assumes four times as much.
const OVERHEAD_S: f64 = 20.0;

/// Inputs of [`Plan::new`].
pub(crate) struct PlanInputs {
    pub(crate) calls: (usize, usize, usize),
    pub(crate) start: usize,
    pub(crate) max_cap: usize,
    /// Mean input tokens and mean output tokens of a call.
    pub(crate) means: (f64, f64),
    pub(crate) latency: Option<f64>,
    pub(crate) prices: Option<TokenPrices>,
    pub(crate) ceilings: SweepCeilings,
}

impl Plan {
    pub(crate) fn new(mix: String, inputs: PlanInputs) -> Self {
        let PlanInputs { calls, start, max_cap, means: (input, output), latency, prices, ceilings } = inputs;
        let latency = latency.unwrap_or(FIRST_TOKEN_S + TOKEN_S * output);
        // Ceilings on tokens and cost also bound the number of calls.
        let tokens = input + output;
        let money = prices
            .map(|prices| prices.cost(1_000_000, 0) * input / 1e6 + prices.cost(0, 1_000_000) * output / 1e6);
        let calls_within =
            |most: Option<f64>, each: f64| most.filter(|_| each > 0.0).map(|most| (most / each).floor());
        let calls = Range::from_counts(calls)
            .capped_at(ceilings.calls.map(|most| most as f64))
            .capped_at(calls_within(ceilings.tokens.map(|most| most as f64), tokens))
            .capped_at(money.and_then(|each| calls_within(ceilings.cost, each)));
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
            seconds: seconds.capped_at(ceilings.seconds),
            latency,
            ceilings,
        }
    }
}

impl Ceiling {
    /// Returns the command-line flag that sets this ceiling, such as `--max-cost`.
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

    fn inputs() -> PlanInputs {
        PlanInputs {
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
        let plan = Plan::new(String::new(), inputs());
        assert_eq!(plan.input_tokens, Range { least: 200_000.0, likely: 450_000.0, most: 1_000_000.0 });
        let money = plan.money.unwrap();
        assert!((money.likely - 1.35).abs() < 1e-9 && (money.most - 3.0).abs() < 1e-9);
        assert!(plan.seconds.least < plan.seconds.likely && plan.seconds.likely < plan.seconds.most);
    }

    #[test]
    fn ceilings_bound_the_plan() {
        let ceilings = SweepCeilings { cost: Some(0.3), seconds: Some(60.0), ..SweepCeilings::default() };
        let plan = Plan::new(String::new(), PlanInputs { ceilings, ..inputs() });
        assert_eq!(plan.calls.most, 200.0);
        assert!(plan.money.unwrap().most <= 0.3 && plan.seconds.most <= 60.0);
    }
}
