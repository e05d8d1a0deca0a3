//! Configuration of a simulated deployment.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, require};
use crate::engine::EngineConfig;
use crate::faults::Faults;
use crate::pool::Routing;

/// Configuration of a simulated deployment. The [`Default`] is [`SimConfig::calibrated`].
///
/// In JSON and TOML, every key is optional, and an unknown key is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimConfig {
    /// Number of engines behind the router, 1 to 1,024. Default 2.
    pub workers: usize,
    /// How the router picks an engine for a call. Default [`Routing::RoundRobin`].
    pub routing: Routing,
    /// Size and speed of every engine.
    pub engine: EngineConfig,
    /// Names of the served models. A request for another model gets a 404, as from vLLM. If empty,
    /// every name is served. Default `["sim"]`.
    pub models: Vec<String>,
    /// LoRA adapters, each served as a model under its own name. Default none.
    pub adapters: Vec<Adapter>,
    /// Tokens in the answer to a request that sets no maximum; above 0. Default 128.
    pub default_output_tokens: u32,
    /// Whether an answer calls an offered tool although the request does not force a call. Each
    /// tool is called once, one per answer, before an answer in text. Default `false`: only forced
    /// tools are called, so that an agent ends after one answer.
    pub tool_calls: bool,
    /// Value of `system_fingerprint` in answers of chat completions and completions, by which
    /// clients recognize vLLM if it begins with `vllm-`. `None`, the default: no such field, except
    /// that `tidegate sim` sends `vllm-sim`.
    pub system_fingerprint: Option<String>,
    /// Simulated seconds per second of tokio's clock, from 0.001 to 100,000. Tokio's clock is real
    /// time unless the runtime paused it. Default 1.
    pub time_scale: f64,
    /// Maximum number of attempts that `GET /sim/stats` lists. Older attempts are removed from the
    /// list, but still counted. 0 lists none. Default 100,000. See
    /// [`Stats::attempts`](crate::Stats::attempts).
    pub attempt_log: usize,
    /// Faults injected from the start. [`Simulator::set_faults`](crate::Simulator::set_faults)
    /// replaces them. Default none.
    pub faults: Faults,
}

/// A LoRA adapter of a served model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Name that requests use as their model.
    pub name: String,
    /// Name of the base model, which must be one of [`SimConfig::models`]. `None`, the default,
    /// means the first of them.
    #[serde(default)]
    pub parent: Option<String>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self::calibrated()
    }
}

impl SimConfig {
    /// Returns the two-worker cluster of the noisy-neighbour blog post. [`crate::scenario`] derives
    /// its constants.
    pub fn calibrated() -> Self {
        Self {
            workers: 2,
            routing: Routing::RoundRobin,
            engine: EngineConfig::default(),
            models: vec!["sim".to_owned()],
            adapters: Vec::new(),
            default_output_tokens: 128,
            tool_calls: false,
            system_fingerprint: None,
            time_scale: 1.0,
            attempt_log: 100_000,
            faults: Faults::default(),
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// Returns an error with the first key whose value is invalid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let engine = &self.engine;
        require("workers", "must be 1 to 1024", (1..=1024).contains(&self.workers))?;
        require("engine.block_size", "must be above 0", engine.block_size > 0)?;
        require("engine.num_blocks", "must be above 0", engine.num_blocks > 0)?;
        require("engine.max_num_seqs", "must be above 0", engine.max_num_seqs > 0)?;
        require("engine.max_num_batched_tokens", "must be above 0", engine.max_num_batched_tokens > 0)?;
        require("engine.max_model_len", "must be above 1", engine.max_model_len > 1)?;
        let cache = u64::from(engine.num_blocks) * u64::from(engine.block_size);
        require(
            "engine.max_model_len",
            "must fit the KV cache (num_blocks * block_size)",
            u64::from(engine.max_model_len) <= cache,
        )?;
        let step = &engine.step;
        for (key, ms) in [
            ("engine.step.base_ms", step.base_ms),
            ("engine.step.per_prompt_token_ms", step.per_prompt_token_ms),
            ("engine.step.per_sequence_ms", step.per_sequence_ms),
            ("engine.step.per_sequence_squared_ms", step.per_sequence_squared_ms),
        ] {
            require(key, "must be 0 to 60000", (0.0..=60_000.0).contains(&ms))?;
        }
        // A step that takes no time would let the engine run ahead of the clock forever.
        let some_time = !step.time(1, 0).is_zero();
        require("engine.step", "must take some time for one sequence", some_time)?;
        for adapter in &self.adapters {
            let known = adapter.parent.as_ref().is_none_or(|parent| self.models.contains(parent));
            require("adapters.parent", "must be one of `models`", known)?;
        }
        require("default_output_tokens", "must be above 0", self.default_output_tokens > 0)?;
        require("time_scale", "must be 0.001 to 100000", (0.001..=100_000.0).contains(&self.time_scale))?;
        self.faults.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_config_is_valid_and_round_trips_through_json() {
        let preset = SimConfig::calibrated();
        assert_eq!(preset.validate(), Ok(()));
        let json = serde_json::to_string(&preset).unwrap();
        assert_eq!(serde_json::from_str::<SimConfig>(&json).unwrap(), preset);
        assert_eq!(serde_json::from_str::<SimConfig>("{}").unwrap(), preset);
        let unknown = serde_json::from_str::<SimConfig>(r#"{"engine": {"blok_size": 1}}"#).unwrap_err();
        assert!(unknown.to_string().contains("blok_size"));
    }

    #[test]
    fn invalid_settings_are_rejected_by_key() {
        let key = |change: fn(&mut SimConfig)| {
            let mut config = SimConfig::calibrated();
            change(&mut config);
            config.validate().unwrap_err().key
        };
        assert_eq!(key(|c| c.workers = 0), "workers");
        assert_eq!(key(|c| c.engine.block_size = 0), "engine.block_size");
        assert_eq!(key(|c| c.engine.num_blocks = 10), "engine.max_model_len");
        assert_eq!(key(|c| c.engine.step.base_ms = f64::NAN), "engine.step.base_ms");
        assert_eq!(
            key(|c| c.engine.step =
                crate::engine::StepCost { base_ms: 0.0, per_sequence_ms: 0.0, ..Default::default() }),
            "engine.step"
        );
        assert_eq!(
            key(|c| c.adapters = vec![Adapter { name: "sql".into(), parent: Some("other".into()) }]),
            "adapters.parent"
        );
        assert_eq!(key(|c| c.time_scale = 0.0), "time_scale");
        assert_eq!(key(|c| c.faults.error_500 = 2.0), "faults.error_500");
    }
}
