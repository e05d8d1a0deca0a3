//! Events of OpenAI's Responses API. They are distinguished by name, and only the last one is
//! parsed. Azure sends the error of a `response.failed` in a separate `error` event after it.

use serde::Deserialize;

use super::{OnSignal, Progress, is_error, usage::Fields};
use crate::lenient_json::{self, Present};
use crate::sse::Event;

impl Progress {
    /// Updates the progress of the response from one event of the Responses API, and calls `on` for
    /// each signal in the event.
    pub(super) fn on_responses(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        if event.oversized && event.name.is_empty() {
            // Its type was in its data, which is too long to keep. It may be an image, or the last
            // event.
            self.expects_terminal = false;
            return self.on_delta(on);
        }
        let kind = super::kind(event);
        match kind.as_ref() {
            b"response.completed" | b"response.incomplete" | b"response.failed" => {
                // The event contains the whole answer and may be too long to keep. In that case its
                // name alone marks the end of the stream.
                let last = lenient_json::parse::<Last>(event.data).unwrap_or_default().response;
                self.on_usage(last.usage, on);
                if !kind.ends_with(b"failed") {
                    self.on_terminal(on);
                } else if last.error.0 {
                    self.on_error(event.data, on);
                } else {
                    self.on_unexplained_failure(event.data);
                }
            }
            b"error" => self.on_error(event.data, on),
            kind if is_output(kind) => self.on_delta(on),
            kind if kind.starts_with(b"response.") => {}
            _ if event.data != b"[DONE]" && is_error(event) => self.on_error(event.data, on),
            _ => {}
        }
    }
}

/// Returns `true` for the names of output events: text, reasoning, refusals, tool arguments and
/// partial images.
fn is_output(kind: &[u8]) -> bool {
    kind.starts_with(b"response.") && (kind.ends_with(b".delta") || kind.ends_with(b".partial_image"))
}

/// The last event of a stream, which contains the whole response.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Last {
    response: Response,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Response {
    error: Present,
    usage: Option<Fields>,
}
