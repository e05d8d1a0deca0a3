//! One answer, in the shape of its protocol.

use bytes::Bytes;

use super::{ApiError, GenerationRequest, Protocol, chat, completions, gemini, messages, responses, sse};

/// Writes one answer.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(super) request: GenerationRequest,
    /// Unique, from the sequence's number.
    pub(super) id: String,
    /// Seconds since 1970, of the simulated clock.
    pub(super) created: u64,
    /// Events sent so far (Responses number them).
    pub(super) sent: u64,
}

impl Encoder {
    pub(crate) fn new(request: GenerationRequest, number: u64, created: u64) -> Self {
        Self { request, id: format!("{number:024x}"), created, sent: 0 }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.request.protocol
    }

    /// What comes right behind the headers, before any token. Only Responses has such; the others send
    /// nothing until the first token.
    pub(crate) fn open(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        if self.request.protocol == Protocol::Responses {
            responses::open(self, &mut out);
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// The events of the token at `index`, with the role (or `message_start`) before the first one.
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

    /// The end of a stream of `tokens`.
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

    /// What a stream is said to be.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.request.list { "application/json; charset=UTF-8" } else { "text/event-stream; charset=utf-8" }
    }

    /// The whole answer of a call that does not stream.
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

/// A stream which is nothing but an error, under status 200.
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
