//! Options of a sweep.

use serde::{Deserialize, Serialize};
use tidegate::config::TargetConfig;

use crate::endpoint::Api;
use crate::error::SweepError;
use crate::mix::MixOptions;
use crate::search::SearchSettings;
use crate::spend::{SweepCeilings, TokenPrices};

/// All options of a sweep except the API key. In JSON, unknown keys are errors, and missing keys
/// have their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepOptions {
    /// Base URL of the server, or URL of the endpoint; see [`crate::Endpoint::new`].
    pub url: String,
    /// Model that the calls name.
    pub model: String,
    /// Kind of endpoint. Default: inferred from the URL, otherwise chat completions.
    pub api: Option<Api>,
    /// Name of the target in the configuration to paste. Default: the model.
    pub name: Option<String>,
    /// The requests to send. Default: synthetic prompts of 512 tokens with answers of at most 128.
    pub mix: MixOptions,
    /// Whether to force answers to their maximum length with vLLM's `ignore_eos` and `min_tokens`,
    /// which hosted providers reject. Default: no.
    pub exact_output: bool,
    /// Settings of the search.
    pub search: SearchSettings,
    /// Seed of the prompts, the lengths and their order. Default 1.
    pub seed: u64,
    /// Token prices. Default: unknown.
    pub prices: Option<TokenPrices>,
    /// Ceilings on the resources used. Default: none.
    pub ceilings: SweepCeilings,
    /// Whether to read vLLM's `/metrics` at the same origin, if available. Default: no.
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
    /// Takes the name, URL, model and objective from a configured target. The model is taken only
    /// if the target names exactly one.
    pub fn take_from(&mut self, target: &TargetConfig) {
        self.name = Some(target.name.to_string());
        if let Some(url) = target.matches.urls.first() {
            self.url.clone_from(url);
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
        let wrong = |text: &str| Err(SweepError::options(text));
        let search = &self.search;
        if self.model.trim().is_empty() {
            return wrong("--model: a model name is required");
        }
        if search.min_cap == 0 || search.min_cap > search.start || search.start > search.max_cap {
            return wrong("caps must be ordered: 1 <= min-cap <= start <= max-cap");
        }
        if search.max_cap > 65_536 {
            return wrong("--max-cap: must be at most 65536");
        }
        let share = |value: f64| value > 0.0 && value < 1.0;
        if ![search.tolerance, search.fine, search.too_many, search.error_rate, search.confidence]
            .into_iter()
            .all(share)
        {
            return wrong("tolerance, fine, too-many, error-rate and confidence must be above 0 and below 1");
        }
        if search.fine >= search.too_many {
            return wrong("fine must be below too-many");
        }
        for (what, objective) in [("--ttft", search.ttft), ("--tpot", search.tpot)] {
            if objective.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3_600.0)) {
                return wrong(&format!("{what}: must be above 0 and at most one hour"));
            }
        }
        if let Some(TokenPrices { input, output }) = self.prices
            && !(input.is_finite() && output.is_finite() && input >= 0.0 && output >= 0.0)
        {
            return wrong("prices must be at least 0");
        }
        let SweepCeilings { cost, tokens: _, seconds, calls: _ } = self.ceilings;
        if [cost, seconds].into_iter().flatten().any(|most| !(most >= 0.0 && most.is_finite())) {
            return wrong("ceilings must be at least 0");
        }
        if cost.is_some() && self.prices.is_none() {
            return wrong("--max-cost needs --price-in and --price-out, per million tokens");
        }
        Ok(())
    }
}
