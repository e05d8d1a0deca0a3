//! Events of Anthropic's Messages API. Events are distinguished by name, so deltas are not parsed.

use serde::Deserialize;

use super::usage::Fields;
use super::{Observer, Signal};
use crate::json::{self, Any, Present};
use crate::sse::Event;

pub(super) fn event(observer: &mut Observer, event: &Event<'_>, on: &mut dyn FnMut(Signal)) {
    let kind = super::kind(event);
    match kind.as_ref() {
        b"content_block_delta" => observer.on_delta(on),
        b"content_block_start" if event.oversized || begins_with_output(event.data) => observer.on_delta(on),
        b"message_start" => {
            let start = json::parse::<MessageStart>(event.data).unwrap_or_default();
            observer.on_usage(start.message.usage, on);
        }
        b"message_delta" => {
            let delta = json::parse::<Message>(event.data).unwrap_or_default();
            observer.on_usage(delta.usage, on);
        }
        b"message_stop" => observer.on_terminal(on),
        b"error" => observer.on_error(event.data, on),
        b"content_block_start" | b"content_block_stop" | b"ping" => {}
        // Unknown events are possible, but gateways also add errors in their own format.
        _ if super::is_error(event) => observer.on_error(event.data, on),
        _ => {}
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MessageStart {
    message: Message,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    usage: Option<Fields>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct BlockStart {
    content_block: Block,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Block {
    r#type: Any<Option<String>>,
    text: Any<Present>,
    thinking: Any<Present>,
}

/// Returns `true` if a block starts with output. Text and thinking start empty and are followed by
/// deltas. A tool call starts with its name, and redacted thinking and results arrive whole.
fn begins_with_output(data: &[u8]) -> bool {
    let block = json::parse::<BlockStart>(data).unwrap_or_default().content_block;
    match block.r#type.0.as_deref() {
        Some("text" | "thinking") => block.text.0.0 || block.thinking.0.0,
        Some(_) => true,
        None => false,
    }
}
