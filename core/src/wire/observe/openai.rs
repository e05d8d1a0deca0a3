//! Chat and legacy completions.
//!
//! The end is a `finish_reason`, then `[DONE]`. Servers differ in both, so:
//!
//! - `[DONE]` is a terminal only where some choice has finished and no error came before it. vLLM sends it after an error, and
//!   gateways send it after whatever they got.
//! - It need not be every choice: with `n` > 1 some servers name the reason once.
//! - A body that ends without `[DONE]` is complete only where every choice that began has finished. Then all the content is
//!   there, and servers that never send `[DONE]` exist.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::usage::Fields;
use super::{Observer, Signal};
use crate::wire::json::{self, Any, Present};
use crate::wire::sse::Event;

/// Which choices have begun and which have finished.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// Choices 0 to 63 that have begun and not finished, a bit each.
    open: u64,
    any_finished: bool,
}

impl Choices {
    fn begin(&mut self, index: u64) {
        self.open |= bit(index);
    }

    fn finish(&mut self, index: u64) {
        self.open &= !bit(index);
        self.any_finished = true;
    }

    pub(super) fn all_finished(&self) -> bool {
        self.any_finished && self.open == 0
    }
}

/// Choices past 63 share a bit; nobody asks for so many.
fn bit(index: u64) -> u64 {
    1 << index.min(63)
}

pub(super) fn event(observer: &mut Observer, event: &Event<'_>, on: &mut dyn FnMut(Signal)) {
    if event.oversized {
        // An image or a sound, most likely, and perhaps the finish_reason with it.
        observer.expects_terminal = false;
        return observer.delta(on);
    }
    if event.data == b"[DONE]" {
        if observer.choices.any_finished || !observer.expects_terminal {
            observer.end_well(on);
        }
        return;
    }
    if super::is_error(event) {
        return observer.fail(event.data, on);
    }
    let Some(chunk) = json::parse::<Chunk>(event.data) else {
        // Whole, but of a shape we do not know: it may have held the finish_reason. Half a chunk did not.
        observer.expects_terminal &= serde_json::from_slice::<IgnoredAny>(event.data).is_err();
        return;
    };
    for choice in chunk.choices.iter().flatten() {
        let index = choice.index.0.unwrap_or(0);
        if choice.delta.as_ref().is_some_and(|delta| delta.0) || choice.text.0.0 {
            observer.choices.begin(index);
            observer.delta(on);
        }
        if choice.finish_reason.0.0 {
            observer.choices.finish(index);
        }
    }
    observer.count(chunk.usage, on);
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Fields>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    index: Any<Option<u64>>,
    delta: Option<Delta>,
    /// Legacy completions have this instead of a delta.
    text: Any<Present>,
    finish_reason: Any<Present>,
}

/// Whether a delta holds output: not a role, not empty strings.
struct Delta(bool);

/// What counts as output. Reasoning has as many names as there are servers.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Content,
    Reasoning,
    ReasoningContent,
    ReasoningText,
    Thinking,
    Refusal,
    ToolCalls,
    FunctionCall,
    Audio,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Delta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Delta;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Delta, A::Error> {
                let mut output = false;
                while let Some(key) = map.next_key()? {
                    if matches!(key, Key::Other) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        output |= map.next_value::<Any<Present>>()?.0.0;
                    }
                }
                Ok(Delta(output))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
