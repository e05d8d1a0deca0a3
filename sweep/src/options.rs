//! What is swept, with what, and how far.

use serde::{Deserialize, Serialize};
use tidegate::config::TargetConfig;

use crate::endpoint::Api;
use crate::error::SweepError;
use crate::mix::MixOptions;
use crate::search::SearchSettings;
use crate::spend::{SweepCeilings, TokenPrices};

/// All that a sweep is asked for, but the key. As JSON an unknown key is an error; what is left out has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepOptions {
    /// The base URL, or the endpoint's own; see [`crate::Endpoint::new`].
    pub url: String,
    /// The model that calls name.
    pub model: String,
    /// The kind of endpoint. Default: what the URL says, else chat completions.
    pub api: Option<Api>,
    /// The target's name in the lines to paste. Default: the model's.
    pub name: Option<String>,
    /// What is asked. Default: synthetic prompts of 512 tokens, answers of at most 128.
    pub mix: MixOptions,
    /// Whether answers shall be as long as they may be, by vLLM's `ignore_eos` and `min_tokens`, which providers refuse. Default: no.
    pub exact_output: bool,
    /// How caps are looked for.
    pub search: SearchSettings,
    /// Of prompts, lengths and their order. Default 1.
    pub seed: u64,
    /// What tokens cost. Default: not known.
    pub prices: Option<TokenPrices>,
    /// What it may take. Default: no ceilings.
    pub ceilings: SweepCeilings,
    /// Whether vLLM's `/metrics` at the same origin are read along, where they answer. Default: no.
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
    /// What a configured target says of itself: its name, its URL, its model where it names one, its objective.
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
            return wrong("--model: name the model that calls ask for");
        }
        if search.min_cap == 0 || search.min_cap > search.start || search.start > search.max_cap {
            return wrong("caps must be in order: 1 <= min-cap <= start <= max-cap");
        }
        if search.max_cap > 65_536 {
            return wrong("--max-cap: a gate has 65536 slots at most");
        }
        let share = |value: f64| value > 0.0 && value < 1.0;
        if ![search.tolerance, search.fine, search.too_many, search.error_rate, search.confidence]
            .into_iter()
            .all(share)
        {
            return wrong(
                "tolerance, fine, too-many, error-rate and confidence are shares: above 0, below 1",
            );
        }
        if search.fine >= search.too_many {
            return wrong("the share of failures that is fine must be below the share that is too many");
        }
        for (what, objective) in [("--ttft", search.ttft), ("--tpot", search.tpot)] {
            if objective.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 3_600.0)) {
                return wrong(&format!("{what}: an objective is above 0, and an hour at most"));
            }
        }
        if let Some(TokenPrices { input, output }) = self.prices
            && !(input.is_finite() && output.is_finite() && input >= 0.0 && output >= 0.0)
        {
            return wrong("prices must be 0 or more");
        }
        let SweepCeilings { cost, tokens: _, seconds, calls: _ } = self.ceilings;
        if [cost, seconds].into_iter().flatten().any(|most| !(most >= 0.0 && most.is_finite())) {
            return wrong("ceilings must be 0 or more");
        }
        if cost.is_some() && self.prices.is_none() {
            return wrong("--max-cost needs prices: give --price-in and --price-out, per million tokens");
        }
        Ok(())
    }
}
