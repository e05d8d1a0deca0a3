//! Events of the Gemini API. Each event is a complete response with further parts and the usage so
//! far.
//!
//! A stream has no event that only marks its end. Instead, a finished candidate has a
//! `finishReason`, and a blocked prompt has no candidate but a `promptFeedback.blockReason`. Early
//! models send a `finishReason` in each event, so a stream that breaks off after the first event
//! cannot be distinguished from a complete one.

use serde::Deserialize;

use super::output_keys::{HasOutput, OutputKeys};
use super::{OnSignal, Progress, is_error, usage::Counts};
use crate::lenient_json::{self, Any};
use crate::sse::Event;

impl Progress {
    /// Updates the progress of the response from one event of the Gemini API that is not oversized,
    /// and calls `on` for each signal in the event.
    pub(super) fn on_gemini(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        if is_error(event) {
            return self.on_error(event.data, on);
        }
        let Some(chunk) = lenient_json::parse::<Chunk>(event.data) else { return self.on_unknown(event) };
        for candidate in chunk.candidates.iter().flatten() {
            let index = candidate.index.0.unwrap_or(0);
            let mut parts = candidate.content.iter().flat_map(|content| &content.parts).flatten();
            if parts.any(|part| part.0) {
                self.choices.begin(index);
                self.on_delta(on);
            }
            if is_set(&candidate.finish_reason) {
                self.choices.finish(index);
            }
        }
        self.on_usage(chunk.usage_metadata, on);
        let is_blocked = chunk.prompt_feedback.is_some_and(|feedback| is_set(&feedback.block_reason));
        if is_blocked || self.choices.all_finished() {
            self.on_terminal(on);
        }
    }
}

/// Returns `true` if `reason`, a value of an enumeration of Google's API, is set: it is neither
/// empty nor the zero value, whose name ends in `_UNSPECIFIED`.
fn is_set(reason: &Any<String>) -> bool {
    !reason.0.is_empty() && !reason.0.ends_with("_UNSPECIFIED")
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Chunk {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Metadata>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Candidate {
    index: Any<Option<u64>>,
    content: Option<Content>,
    finish_reason: Any<String>,
}

#[derive(Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Feedback {
    block_reason: Any<String>,
}

/// The token counts in an event, which cover the response so far. Thinking tokens are separate from
/// the candidates' tokens, and tool results are separate from the prompt.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    prompt_token_count: Any<Option<u64>>,
    tool_use_prompt_token_count: Any<Option<u64>>,
    candidates_token_count: Any<Option<u64>>,
    thoughts_token_count: Any<Option<u64>>,
    cached_content_token_count: Any<Option<u64>>,
}

impl From<Metadata> for Counts {
    fn from(metadata: Metadata) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| a.map(|a| a.saturating_add(b.unwrap_or(0))).or(b);
        Self {
            input: sum(metadata.prompt_token_count.0, metadata.tool_use_prompt_token_count.0),
            output: sum(metadata.candidates_token_count.0, metadata.thoughts_token_count.0),
            cached_input: metadata.cached_content_token_count.0,
        }
    }
}

/// Whether a part contains output. A signature or an empty text alone is not output. The text of a
/// thought is output, because only a flag beside it distinguishes it from other text.
type Part = HasOutput<PartKeys>;

struct PartKeys;

impl OutputKeys for PartKeys {
    fn is_output(key: &str) -> bool {
        match key {
            "text" | "functionCall" | "toolCall" | "inlineData" | "fileData" | "executableCode" => true,
            _ => key == "codeExecutionResult",
        }
    }
}
