//! Configuration of an engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Size and speed of one engine. The [`Default`] is calibrated on measurements; see
/// [`crate::scenario`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Tokens per KV block, above 0. Default 16, as in vLLM.
    pub block_size: u32,
    /// Number of KV blocks, above 0. Default 5,625, which is 90,000 tokens.
    pub num_blocks: u32,
    /// Maximum number of sequences in a batch, above 0. Default 256.
    pub max_num_seqs: u32,
    /// Maximum number of tokens that a step computes, prefill and decode together; above 0. Default
    /// 2,048.
    pub max_num_batched_tokens: u32,
    /// Whether full blocks are cached for later sequences with the same prefix. Default `false`,
    /// unlike in vLLM, because the calibration data come from prompts without common prefixes.
    pub prefix_cache: bool,
    /// Maximum length of a sequence in tokens, prompt and output together. From 2 to the number of
    /// tokens that fit into the KV cache. Default 8,192.
    pub max_model_len: u32,
    /// Time that a step takes, depending on its work.
    pub step: StepCost,
}

/// The time that a step takes, in milliseconds: `base + per_prompt_token * prompt tokens +
/// per_sequence * sequences + per_sequence_squared * sequences^2`. Each constant is from 0 to
/// 60,000.
///
/// If prompts cost nothing and a call takes a fixed number of steps, the quadratic term makes the
/// engine follow the universal scalability law exactly; see [`StepCost::usl`].
///
/// On a real engine, the cost of reading the KV cache grows with the context of each sequence. The
/// calibration data have a constant context, so the cost per sequence includes this cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepCost {
    /// Time of a step without sequences, in milliseconds: mainly one pass over the model's weights.
    /// Default 47.
    pub base_ms: f64,
    /// Time per prompt token that the step computes or recomputes, in milliseconds. Default 0.27.
    pub per_prompt_token_ms: f64,
    /// Time per sequence in the batch, in milliseconds. Default 0.2.
    pub per_sequence_ms: f64,
    /// Time that is multiplied by the square of the number of sequences in the batch, in
    /// milliseconds. It models contention, which engines do not have but other services do. Default
    /// 0.
    pub per_sequence_squared_ms: f64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_blocks: 5_625,
            max_num_seqs: 256,
            max_num_batched_tokens: 2_048,
            prefix_cache: false,
            max_model_len: 8_192,
            step: StepCost::default(),
        }
    }
}

impl Default for StepCost {
    fn default() -> Self {
        Self { base_ms: 47.0, per_prompt_token_ms: 0.27, per_sequence_ms: 0.2, per_sequence_squared_ms: 0.0 }
    }
}

impl StepCost {
    /// Returns the cost of a service that follows the universal scalability law.
    ///
    /// With `n` sequences in its batch, the service generates `alone * n / (1 + sigma (n - 1) +
    /// kappa n (n - 1))` tokens per second. This is `alone` for one sequence, and has its maximum
    /// at `n = sqrt((1 - sigma) / kappa)`. Prompts cost nothing.
    ///
    /// The law is exact while the batch does not change between steps, so
    /// [`EngineConfig::max_num_batched_tokens`] must be at least the tokens of all prompts that can
    /// arrive at once.
    pub fn usl(alone: f64, sigma: f64, kappa: f64) -> Self {
        let ms = 1e3 / alone;
        Self {
            base_ms: ms * (1.0 - sigma),
            per_prompt_token_ms: 0.0,
            per_sequence_ms: ms * (sigma - kappa),
            per_sequence_squared_ms: ms * kappa,
        }
    }

    /// Returns the time of a step with `sequences` sequences that computes `prompt_tokens` tokens
    /// of prompts.
    pub fn time(&self, sequences: u32, prompt_tokens: u32) -> Duration {
        let ms = self.base_ms
            + self.per_prompt_token_ms * f64::from(prompt_tokens)
            + self.per_sequence_ms * f64::from(sequences)
            + self.per_sequence_squared_ms * f64::from(sequences).powi(2);
        Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usl_step_cost_follows_the_scalability_law() {
        let (alone, sigma, kappa) = (40.0, 0.03, 0.0008);
        let step = StepCost::usl(alone, sigma, kappa);
        let rate = |n: u32| f64::from(n) / step.time(n, 1_000).as_secs_f64();
        for n in [1, 2, 10, 35, 80, 300] {
            let x = f64::from(n);
            let law = alone * x / (1.0 + sigma * (x - 1.0) + kappa * x * (x - 1.0));
            assert!((rate(n) / law - 1.0).abs() < 1e-6, "{n}: {} for {law}", rate(n));
        }
        let peak = (1..400).max_by(|a, b| rate(*a).total_cmp(&rate(*b)));
        assert_eq!(peak, Some(35), "sqrt(.97 / .0008) is 34.8");
    }
}
