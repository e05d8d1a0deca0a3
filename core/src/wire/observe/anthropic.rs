//! Anthropic's messages. The events are told apart by name, so a delta costs no parsing at all.

use serde::Deserialize;

use super::usage::Fields;
use super::{Observer, Signal};
use crate::wire::json::{self, Any, Present};
use crate::wire::sse::Event;

pub(super) fn event(observer: &mut Observer, event: &Event<'_>, on: &mut dyn FnMut(Signal)) {
    let kind = super::kind(event);
    match kind.as_ref() {
        b"content_block_delta" => observer.delta(on),
        b"content_block_start" if event.oversized => observer.delta(on),
        b"content_block_start"
            if json::parse::<BlockStart>(event.data)
                .is_some_and(|start| start.content_block.has_output()) =>
        {
            observer.delta(on);
        }
        b"message_start" => {
            let start = json::parse::<MessageStart>(event.data).unwrap_or_default();
            observer.count(start.message.usage, on);
        }
        b"message_delta" => {
            let delta = json::parse::<Message>(event.data).unwrap_or_default();
            observer.count(delta.usage, on);
        }
        b"message_stop" => observer.end_well(on),
        b"error" => observer.fail(event.data, on),
        // An unknown kind: new ones may come. But gateways put errors of their own shape into the stream.
        b"ping" | b"content_block_stop" => {}
        _ if super::is_error(event) => observer.fail(event.data, on),
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

impl Block {
    /// Text and thinking begin empty and are followed by deltas. A tool's call begins with its name, redacted thinking and
    /// results come whole: these are output already.
    fn has_output(&self) -> bool {
        match self.r#type.0.as_deref() {
            Some("text" | "thinking") => self.text.0.0 || self.thinking.0.0,
            Some(_) => true,
            None => false,
        }
    }
}
