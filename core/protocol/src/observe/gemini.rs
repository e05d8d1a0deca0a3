//! Events of the Gemini API. Each event is a complete response with further parts and the usage so
//! far.
//!
//! No event marks only the end. A finished candidate has a `finishReason`, and a blocked prompt has
//! no candidate but a `promptFeedback.blockReason`. Early models name a reason in each event, so a
//! stream that breaks off after the first event cannot be distinguished from a complete one.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::output_keys::{self, HasOutput};
use super::usage::Counts;
use super::{Observer, Signal};
use crate::json::{self, Any};
use crate::sse::Event;

pub(super) fn event(observer: &mut Observer, event: &Event<'_>, on: &mut dyn FnMut(Signal)) {
    if event.oversized {
        // Probably an image, possibly with the finishReason.
        observer.expects_terminal = false;
        return observer.on_delta(on);
    }
    if super::is_error(event) {
        return observer.on_error(event.data, on);
    }
    let Some(chunk) = json::parse::<Chunk>(event.data) else {
        // Complete JSON of an unknown format, as for chat.
        observer.expects_terminal &= serde_json::from_slice::<IgnoredAny>(event.data).is_err();
        return;
    };
    for candidate in chunk.candidates.iter().flatten() {
        let index = candidate.index.0.unwrap_or(0);
        let parts = candidate.content.as_ref().and_then(|content| content.parts.as_ref());
        if parts.is_some_and(|parts| parts.iter().any(|part| part.0)) {
            observer.choices.begin(index);
            observer.on_delta(on);
        }
        if is_set(&candidate.finish_reason) {
            observer.choices.finish(index);
        }
    }
    observer.on_usage(chunk.usage_metadata, on);
    let blocked = chunk.prompt_feedback.is_some_and(|feedback| is_set(&feedback.block_reason));
    if blocked || observer.choices.all_finished() {
        observer.on_terminal(on);
    }
}

/// Returns `true` if an enumeration of Google's API has a value. Its zero value means that it has
/// none.
fn is_set(reason: &Any<Option<String>>) -> bool {
    reason.0.as_deref().is_some_and(|reason| !reason.is_empty() && !reason.ends_with("_UNSPECIFIED"))
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
    finish_reason: Any<Option<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Feedback {
    block_reason: Any<Option<String>>,
}

/// The usage so far. Thinking is counted separately from candidates, and tool results separately
/// from the prompt.
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
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Self {
            input: sum(metadata.prompt_token_count.0, metadata.tool_use_prompt_token_count.0),
            output: sum(metadata.candidates_token_count.0, metadata.thoughts_token_count.0),
            cached_input: metadata.cached_content_token_count.0,
        }
    }
}

/// Whether a part holds output: not only a signature, and not empty text. A thought is marked
/// beside its text.
type Part = HasOutput<Key>;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Text,
    FunctionCall,
    InlineData,
    FileData,
    ExecutableCode,
    CodeExecutionResult,
    ToolCall,
    #[serde(other)]
    Other,
}

impl output_keys::Key for Key {
    fn is_output(&self) -> bool {
        !matches!(self, Key::Other)
    }
}
