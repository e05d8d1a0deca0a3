//! Events of Anthropic's Messages API. They are distinguished by name, and deltas are not parsed.

use serde::Deserialize;

use super::{OnSignal, Progress, is_error, usage::WithUsage};
use crate::lenient_json::{self, Any, Present};
use crate::sse::Event;

impl Progress {
    /// Updates the progress of the response from one event of the Messages API, and calls `on` for
    /// each signal in the event.
    pub(super) fn on_anthropic(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        match super::kind(event).as_ref() {
            b"content_block_delta" => self.on_delta(on),
            b"content_block_start" if event.oversized || begins_with_output(event.data) => self.on_delta(on),
            b"message_start" => {
                let start = lenient_json::parse::<MessageStart>(event.data);
                self.on_usage(start.and_then(|start| start.message.usage), on);
            }
            b"message_delta" => {
                self.on_usage(lenient_json::parse::<WithUsage>(event.data).and_then(|delta| delta.usage), on);
            }
            b"message_stop" => self.on_terminal(on),
            b"error" => self.on_error(event.data, on),
            b"content_block_start" | b"content_block_stop" | b"ping" => {}
            // Unknown events are possible, but gateways also add errors in their own format.
            _ if is_error(event) => self.on_error(event.data, on),
            _ => {}
        }
    }
}

#[derive(Deserialize)]
struct MessageStart {
    message: WithUsage,
}

#[derive(Deserialize)]
struct BlockStart {
    content_block: Block,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Block {
    r#type: Any<String>,
    text: Present,
    thinking: Present,
}

/// Returns `true` if a `content_block_start` event already contains output. Blocks of text and
/// thinking start empty and are followed by deltas. Tool calls start with their name, and other
/// blocks arrive whole.
fn begins_with_output(data: &[u8]) -> bool {
    let Some(BlockStart { content_block: block }) = lenient_json::parse(data) else { return false };
    match &*block.r#type.0 {
        "text" | "thinking" => block.text.0 || block.thinking.0,
        kind => !kind.is_empty(),
    }
}
