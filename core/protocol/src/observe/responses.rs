//! OpenAI's Responses. Told apart by name; only the last event is parsed.

use serde::Deserialize;

use super::usage::Fields;
use super::{Observer, Signal};
use crate::json;
use crate::sse::Event;

pub(super) fn event(observer: &mut Observer, event: &Event<'_>, on: &mut dyn FnMut(Signal)) {
    let kind = super::kind(event);
    match kind.as_ref() {
        b"response.completed" | b"response.incomplete" => {
            // The whole answer is in it, so it may be too long to keep: a terminal by its name alone, then.
            let last = json::parse::<Last>(event.data).unwrap_or_default();
            observer.on_usage(last.response.usage, on);
            observer.on_terminal(on);
        }
        b"response.failed" => {
            let last = json::parse::<Last>(event.data).unwrap_or_default();
            observer.on_usage(last.response.usage, on);
            observer.on_error(event.data, on);
        }
        b"error" => observer.on_error(event.data, on),
        kind if is_output(kind) => observer.on_delta(on),
        kind if kind.starts_with(b"response.") => {}
        _ if event.data != b"[DONE]" && super::is_error(event) => observer.on_error(event.data, on),
        _ => {}
    }
}

/// Text, reasoning, refusals, the arguments of tools; and pictures, which come in ever better drafts.
fn is_output(kind: &[u8]) -> bool {
    kind.starts_with(b"response.") && (kind.ends_with(b".delta") || kind.ends_with(b".partial_image"))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Last {
    response: Response,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    usage: Option<Fields>,
}
