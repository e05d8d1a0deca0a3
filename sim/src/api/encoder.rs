//! Encodes an answer in the format of its protocol.

use bytes::Bytes;

use super::{
    ApiError, GenerationRequest, Protocol, anthropic_messages, gemini, openai_chat, openai_completions,
    openai_responses, sse,
};

/// Encodes one answer, either as the events of a stream or as one JSON document.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(super) request: GenerationRequest,
    /// The attempt number as 24 hexadecimal digits. Answers contain it in their `id`.
    pub(super) id: String,
    /// Creation time in the answer, on the simulated calendar, in seconds since 1970.
    pub(super) created: u64,
    /// Fingerprint of the server in answers of chat completions and completions. `None` if they
    /// have none.
    pub(super) fingerprint: Option<String>,
    /// Number of events encoded so far. The Responses protocol numbers its events.
    pub(super) sent: u64,
}

impl Encoder {
    pub(crate) fn new(
        request: GenerationRequest,
        number: u64,
        created: u64,
        fingerprint: Option<String>,
    ) -> Self {
        Self { request, id: format!("{number:024x}"), created, fingerprint, sent: 0 }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.request.protocol
    }

    /// Returns the events that are sent before the first token is generated. Returns `None` for
    /// every protocol except Responses.
    pub(crate) fn open(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        if self.request.protocol == Protocol::Responses {
            openai_responses::open(self, &mut out);
        }
        (!out.is_empty()).then(|| out.into())
    }

    /// Returns the events of the token at `index`, counted from 0. For index 0, the protocol's
    /// opening events come first, except those that [`Encoder::open`] returned.
    pub(crate) fn token(&mut self, index: u32) -> Bytes {
        let mut out = String::new();
        match self.request.protocol {
            Protocol::Chat => openai_chat::token(self, index, &mut out),
            Protocol::Completions => openai_completions::token(self, index, &mut out),
            Protocol::Responses => openai_responses::token(self, index, &mut out),
            Protocol::Messages => anthropic_messages::token(self, index, &mut out),
            Protocol::Gemini => gemini::token(self, index, &mut out),
        }
        out.into()
    }

    /// Returns the events that follow the last token of an answer with `tokens` tokens.
    pub(crate) fn close(&mut self, tokens: u32) -> Bytes {
        let mut out = String::new();
        match self.request.protocol {
            Protocol::Chat => openai_chat::close(self, tokens, &mut out),
            Protocol::Completions => openai_completions::close(self, tokens, &mut out),
            Protocol::Responses => openai_responses::close(self, tokens, &mut out),
            Protocol::Messages => anthropic_messages::close(self, tokens, &mut out),
            Protocol::Gemini => gemini::close(self, tokens, &mut out),
        }
        out.into()
    }

    /// Returns the `content-type` of the answer if it is streamed.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.request.list { "application/json; charset=UTF-8" } else { "text/event-stream; charset=utf-8" }
    }

    /// Returns the body of an answer with `tokens` tokens that is not streamed.
    pub(crate) fn full(&self, tokens: u32) -> Bytes {
        let value = match self.request.protocol {
            Protocol::Chat => openai_chat::full(self, tokens),
            Protocol::Completions => openai_completions::full(self, tokens),
            Protocol::Responses => openai_responses::full(self, tokens),
            Protocol::Messages => anthropic_messages::full(self, tokens),
            Protocol::Gemini => gemini::full(self, tokens),
        };
        value.to_string().into()
    }
}

/// Returns the body of a stream that consists of an error event only. vLLM answers with status 200
/// and such a stream if its queue is full.
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
