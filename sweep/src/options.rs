//! Options of a sweep.

use serde::{Deserialize, Serialize};
use tidegate::config::TargetConfig;

use crate::endpoint::Api;
use crate::error::SweepError;
use crate::mix::MixOptions;
use crate::search::SearchSettings;
use crate::spend::{SweepCeilings, TokenPrices};

/// Options of a sweep, except the API key. In JSON, unknown keys are errors and missing keys have
/// their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepOptions {
    /// Base URL of the server, or URL of the endpoint; see [`crate::Endpoint::new`].
    pub url: String,
    /// Model name that the requests contain.
    pub model: String,
    /// API of the endpoint. Default: inferred from the URL, or chat completions if the URL does not
    /// tell.
    pub api: Option<Api>,
    /// Name of the target in the configuration that the sweep prints. Default: the model name.
    pub name: Option<String>,
    /// Source of the requests. Default: synthetic prompts of 512 tokens with answers of at most 128
    /// tokens.
    pub mix: MixOptions,
    /// Whether requests contain vLLM's `ignore_eos` and `min_tokens`, so that each answer has its
    /// maximum length. Requests of a file then need an output limit. Hosted providers reject these
    /// keys. Default `false`.
    pub exact_output: bool,
    /// Caps to try, failure thresholds and latency objectives.
    pub search: SearchSettings,
    /// Seed of prompt texts, their lengths and their order. Default 1.
    pub seed: u64,
    /// Prices per million tokens. Default `None`: the cost is not computed.
    pub prices: Option<TokenPrices>,
    /// Ceilings on cost, tokens, time and requests. Default: no ceilings.
    pub ceilings: SweepCeilings,
    /// Whether to poll `/metrics` at the server's origin for preemptions and KV usage. Polling ends
    /// after three failed polls in a row. Default `false`.
    pub engine_metrics: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            model: String::new(),
            api: None,
            name: None,
            mix: MixOptions::default(),
            exact_output: false,
            search: SearchSettings::default(),
            seed: 1,
            prices: None,
            ceilings: SweepCeilings::default(),
            engine_metrics: false,
        }
    }
}

impl SweepOptions {
    /// Copies the name, URL, model and latency objectives of a configured target into these
    /// options. The model is the one that the target sets in its requests, or otherwise its only
    /// model pattern if that has no wildcard. Values that the target does not define stay
    /// unchanged.
    pub fn take_from(&mut self, target: &TargetConfig) {
        self.name = Some(target.name.to_string());
        if let Some(url) = target.openai_base_url() {
            self.url = url;
        }
        let only = match target.matches.models.as_slice() {
            [model] if !model.contains('*') => Some(model.as_str()),
            _ => None,
        };
        if let Some(model) = target.model.as_deref().or(only) {
            self.model = model.to_owned();
        }
        self.search.ttft = target.ttft.map(|ttft| ttft.as_secs_f64()).or(self.search.ttft);
        self.search.tpot = target.tpot.map(|tpot| tpot.as_secs_f64()).or(self.search.tpot);
    }

    pub(crate) fn check(&self) -> Result<(), SweepError> {
        let wrong = |text: String| Err(SweepError::options(text));
        let search = &self.search;
        if self.model.trim().is_empty() {
            return wrong("--model: a model name is required".to_owned());
        }
        if search.min_cap == 0 || search.min_cap > search.start || search.start > search.max_cap {
            return wrong(format!(
                "the caps must be ordered: 1 <= --min-cap <= --start <= --max-cap; got {}, {} and {}",
                search.min_cap, search.start, search.max_cap
            ));
        }
        if search.max_cap > 65_536 {
            return wrong(format!("--max-cap: must be at most 65536; got {}", search.max_cap));
        }
        for (name, share) in [
            ("--tolerance", search.tolerance),
            ("--too-many", search.too_many),
            ("--confidence", search.confidence),
            ("fine", search.fine),
            ("error_rate", search.error_rate),
        ] {
            if !(share > 0.0 && share < 1.0) {
                return wrong(format!("{name}: must be above 0 and below 1; got {share}"));
            }
        }
        if search.fine >= search.too_many {
            return wrong(format!(
                "--too-many: must be above {}, the share that is accepted; got {}",
                search.fine, search.too_many
            ));
        }
        for (what, objective) in [("--ttft", search.ttft), ("--tpot", search.tpot)] {
            if objective.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3_600.0)) {
                return wrong(format!("{what}: must be above 0 and at most one hour"));
            }
        }
        let SweepCeilings { cost, tokens: _, seconds, calls: _ } = self.ceilings;
        for (name, value) in [
            ("--price-in", self.prices.map(|prices| prices.input)),
            ("--price-out", self.prices.map(|prices| prices.output)),
            ("--max-cost", cost),
            ("--max-time", seconds),
        ] {
            if let Some(value) = value.filter(|value| !(*value >= 0.0 && value.is_finite())) {
                return wrong(format!("{name}: must be at least 0; got {value}"));
            }
        }
        if cost.is_some() && self.prices.is_none() {
            return wrong("--max-cost needs --price-in and --price-out, per million tokens".to_owned());
        }
        Ok(())
    }
}
