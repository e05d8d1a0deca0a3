//! Token counts of a response, in the formats of OpenAI, Anthropic, Bedrock and Cohere.

use serde::Deserialize;

use crate::lenient_json::{Any, IfObject};

/// Token counts of one call, as reported by the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens. Includes tokens read from and written to a cache, which Anthropic reports
    /// separately.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens that were read from a cache.
    pub cached_input: u64,
}

/// The counts in one usage report. `None` if it does not contain the count.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) cached_input: Option<u64>,
}

/// An object that may contain a `usage` object.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WithUsage {
    pub(super) usage: Option<Fields>,
}

/// A `usage` object. Chat and legacy completions report `prompt_tokens`, Responses and Anthropic
/// `input_tokens`, Bedrock's Converse `inputTokens`, and Cohere an object `tokens`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Fields {
    prompt_tokens: Any<Option<u64>>,
    completion_tokens: Any<Option<u64>>,
    total_tokens: Any<Option<u64>>,
    /// The length of the audio in a prompt for Mistral. Its tokens are in the total only.
    prompt_audio_seconds: Any<Option<u64>>,
    prompt_tokens_details: Option<Details>,
    input_tokens: Any<Option<u64>>,
    output_tokens: Any<Option<u64>>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Any<Option<u64>>,
    cache_creation_input_tokens: Any<Option<u64>>,
    #[serde(rename = "inputTokens")]
    converse_input: Any<Option<u64>>,
    #[serde(rename = "outputTokens")]
    converse_output: Any<Option<u64>>,
    #[serde(rename = "cacheReadInputTokens")]
    converse_cache_read: Any<Option<u64>>,
    #[serde(rename = "cacheWriteInputTokens")]
    converse_cache_write: Any<Option<u64>>,
    tokens: IfObject<Tokens>,
}

/// Cohere's token counts. The counts beside it are those that are billed.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Tokens {
    input_tokens: Any<Option<u64>>,
    output_tokens: Any<Option<u64>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    cached_tokens: Any<Option<u64>>,
}

impl Fields {
    /// Returns the output tokens of a chat or legacy completion. `None` if they are not reported.
    ///
    /// xAI, and Gemini's OpenAI-compatible API, count reasoning in the total only.
    fn completion_output(&self) -> Option<u64> {
        let completion = self.completion_tokens.0?;
        if self.prompt_audio_seconds.0.is_some_and(|seconds| seconds > 0) {
            return Some(completion);
        }
        let Some((total, prompt)) = self.total_tokens.0.zip(self.prompt_tokens.0) else {
            return Some(completion);
        };
        // Some servers count cached tokens in the total only.
        let cached = [self.cache_read_input_tokens.0, self.cache_creation_input_tokens.0];
        let input = cached.into_iter().flatten().fold(prompt, u64::saturating_add);
        Some(completion.max(total.saturating_sub(input)))
    }
}

impl From<Fields> for Counts {
    fn from(fields: Fields) -> Self {
        // At Anthropic and Bedrock, cached tokens come on top of the input tokens.
        let cache_read = fields.cache_read_input_tokens.0.or(fields.converse_cache_read.0);
        let cache_write = fields.cache_creation_input_tokens.0.or(fields.converse_cache_write.0);
        let uncached = fields.input_tokens.0.or(fields.converse_input.0);
        let with_cached = |uncached: u64| {
            uncached.saturating_add(cache_read.unwrap_or(0)).saturating_add(cache_write.unwrap_or(0))
        };
        let input = fields.prompt_tokens.0.or(uncached.map(with_cached));
        let completion = fields.completion_output();
        let output = completion.or(fields.output_tokens.0).or(fields.converse_output.0);
        let Tokens { input_tokens, output_tokens } = fields.tokens.0;
        let (input, output) = (input.or(input_tokens.0), output.or(output_tokens.0));
        let details = fields.prompt_tokens_details.as_ref().or(fields.input_tokens_details.as_ref());
        let cached = cache_read.or(details.and_then(|details| details.cached_tokens.0));
        Self { input, output, cached_input: cached }
    }
}

impl Usage {
    /// The largest count that is believed. The sums of larger ones would overflow.
    const MAX_COUNT: u64 = 1 << 40;

    /// Replaces the counts that are reported and keeps the others. Counts above [`Self::MAX_COUNT`]
    /// are cut. Returns `true` if input or output tokens were reported.
    pub(super) fn update(&mut self, counts: Counts) -> bool {
        let cut = |count: u64| count.min(Self::MAX_COUNT);
        self.input = counts.input.map_or(self.input, cut);
        self.output = counts.output.map_or(self.output, cut);
        self.cached_input = counts.cached_input.map_or(self.cached_input, cut);
        counts.input.is_some() || counts.output.is_some()
    }
}
