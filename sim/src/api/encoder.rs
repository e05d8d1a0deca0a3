//! Encodes one answer in the shape of its protocol.

use bytes::Bytes;

use super::{ApiError, GenerationRequest, Protocol, chat, completions, gemini, messages, responses, sse};

/// Encodes the events or the JSON document of one answer.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(super) request: GenerationRequest,
    /// Unique identifier, derived from the attempt number.
    pub(super) id: String,
    /// Creation time in seconds since 1970, on the simulated clock.
    pub(super) created: u64,
    /// Number of events sent so far; Responses events are numbered.
    pub(super) sent: u64,
}

impl Encoder {
    pub(crate) fn new(request: GenerationRequest, number: u64, created: u64) -> Self {
        Self { request, id: format!("{number:024x}"), created, sent: 0 }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.request.protocol
    }

    /// Returns the events that precede the first token. Only the Responses protocol has such
    /// events.
    pub(crate) fn open(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        if self.request.protocol == Protocol::Responses {
            responses::open(self, &mut out);
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// Returns the events of the token at `index`, preceded by the opening events if `index` is 0.
    pub(crate) fn token(&mut self, index: u32) -> Bytes {
        let mut out = String::new();
        match self.request.protocol {
            Protocol::Chat => chat::token(self, index, &mut out),
            Protocol::Completions => completions::token(self, index, &mut out),
            Protocol::Responses => responses::token(self, index, &mut out),
            Protocol::Messages => messages::token(self, index, &mut out),
            Protocol::Gemini => gemini::token(self, index, &mut out),
        }
        out.into()
    }

    /// Returns the events that end a stream of `tokens` tokens.
    pub(crate) fn close(&mut self, tokens: u32) -> Bytes {
        let mut out = String::new();
        match self.request.protocol {
            Protocol::Chat => chat::close(self, tokens, &mut out),
            Protocol::Completions => completions::close(self, tokens, &mut out),
            Protocol::Responses => responses::close(self, tokens, &mut out),
            Protocol::Messages => messages::close(self, tokens, &mut out),
            Protocol::Gemini => gemini::close(self, tokens, &mut out),
        }
        out.into()
    }

    /// Returns the content type of a stream.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.request.list { "application/json; charset=UTF-8" } else { "text/event-stream; charset=utf-8" }
    }

    /// Returns the whole body of an answer that does not stream.
    pub(crate) fn full(&self, tokens: u32) -> Bytes {
        let value = match self.request.protocol {
            Protocol::Chat => chat::full(self, tokens),
            Protocol::Completions => completions::full(self, tokens),
            Protocol::Responses => responses::full(self, tokens),
            Protocol::Messages => messages::full(self, tokens),
            Protocol::Gemini => gemini::full(self, tokens),
        };
        value.to_string().into()
    }
}

/// Returns a stream that contains only an error event, for a response with status 200.
pub(crate) fn error_stream(protocol: Protocol, error: &ApiError) -> Bytes {
    let mut out = String::new();
    let body = error.body(Some(protocol));
    if protocol == Protocol::Messages {
        sse::event(&mut out, &body);
    } else {
        sse::data(&mut out, &body);
        out.push_str(sse::DONE);
    }
    out.into()
}
