//! Observes successful responses: first token, usage, errors, and whether the response is complete.
//!
//! The observer reads a copy of the bytes of a 2xx response and never delays them. It answers three
//! questions that the transport cannot: when the first token arrived (the first content, reasoning
//! or tool-call delta, but not headers, a role, a ping or `message_start`), what the call cost, and
//! whether the end of the body is the end of the answer. SDKs take a connection that closes in
//! mid-answer for a success.
//!
//! A response that cannot be read (another content type, a compressed body, a dialect without a
//! known terminal event) is treated as complete.
//!
//! # Examples
//!
//! ```
//! use http::{HeaderMap, header::CONTENT_TYPE};
//! use tidegate_protocol::{Dialect, End, Observer, Signal};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
//! let mut observer = Observer::new(Dialect::OpenAiChat, &headers, true);
//! let mut signals = Vec::new();
//! let chunk = br#"data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
//! observer.push(chunk, |signal| signals.push(signal));
//! observer.push(b"\n\n", |signal| signals.push(signal));
//! observer.finish(|signal| signals.push(signal));
//! assert_eq!(signals, [Signal::FirstToken]);
//! assert_eq!(observer.end(), End::Truncated, "there was no terminal event");
//! ```

mod anthropic;
mod element_splitter;
mod gemini;
mod member_reader;
mod openai;
mod output_keys;
mod responses;
mod usage;

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use http::header::{CONTENT_TYPE, HeaderMap};
use memchr::memmem::{self, Finder};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::classify::{Verdict, classify_event};
use super::headers::is_compressed;
use super::json::{self, Any, Present};
use super::request::Dialect;
use super::sse::{Event, MAX_EVENT, Scanner};
use element_splitter::ElementSplitter;
use member_reader::MemberReader;
pub use usage::Usage;

/// Members of a whole answer that are read, and the maximum number of bytes kept of them.
const MEMBERS: &[&str] = &["error", "error_type", "usage", "usageMetadata"];
const MAX_MEMBERS: usize = 64 << 10;

/// An event in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The first content, reasoning or tool-call delta. Reported once per stream, and never for a
    /// response that does not stream.
    FirstToken,
    /// Tokens so far. May be reported more than once; each report replaces the last.
    Usage(Usage),
    /// The provider's own end of a complete stream. Reported once; `[DONE]` after an error is no
    /// terminal, and `response.failed` is an error.
    Terminal,
    /// An error event, or an error object under a success status. Before the first token it means
    /// that the attempt failed.
    Error(Verdict),
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The response was complete, or its end cannot be judged.
    Complete,
    /// The provider reported an error.
    Failed,
    /// The response was cut off: no terminal event and no error.
    Truncated,
}

/// Observes one response. Its `Debug` output shows counts and no content.
pub struct Observer {
    body: Body,
    progress: Progress,
}

enum Body {
    Events(Scanner),
    /// A list whose elements are the events.
    List(ElementSplitter),
    /// One JSON document.
    Json(MemberReader),
    /// A body that cannot be read.
    Opaque,
}

/// What the events so far have shown.
#[derive(Default)]
struct Progress {
    dialect: Dialect,
    usage: Usage,
    events: u64,
    deltas: u64,
    terminal: bool,
    failed: bool,
    /// Whether an end without a terminal event is a truncation: all events were known and read.
    expects_terminal: bool,
    choices: openai::Choices,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("dialect", &self.progress.dialect)
            .field("deltas", &self.progress.deltas)
            .field("usage", &self.progress.usage)
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Creates an observer for the response to a request of this dialect. `stream` is `true` if the
    /// request asked for a stream.
    ///
    /// Reads `content-type` and `content-encoding`. A stream of a known dialect is read as events
    /// unless its content type is JSON, as SDKs do.
    pub fn new(dialect: Dialect, headers: &HeaderMap, stream: bool) -> Self {
        let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
        let is =
            |text: &[u8]| content_type.as_deref().is_some_and(|value| memmem::find(value, text).is_some());
        let is_known = dialect != Dialect::Other;
        let body = if is_compressed(headers) {
            Body::Opaque
        } else if is(b"text/event-stream") {
            Body::Events(Scanner::new())
        } else if dialect == Dialect::Gemini && stream && is(b"json") {
            Body::List(ElementSplitter::new(MAX_EVENT))
        } else if is(b"json") && !is(b"ndjson") && !is(b"jsonl") {
            Body::Json(MemberReader::new(MEMBERS, MAX_MEMBERS))
        } else if is_known && stream {
            Body::Events(Scanner::new())
        } else if is_known && content_type.is_none() {
            Body::Json(MemberReader::new(MEMBERS, MAX_MEMBERS))
        } else {
            Body::Opaque
        };
        let expects_terminal = is_known && matches!(body, Body::Events(_) | Body::List(_));
        Self { body, progress: Progress { dialect, expects_terminal, ..Progress::default() } }
    }

    /// Reads the next bytes of the body. Calls `on` for each signal.
    pub fn push(&mut self, chunk: &[u8], mut on: impl FnMut(Signal)) {
        match &mut self.body {
            Body::Events(scanner) => scanner.push(chunk, |event| self.progress.on_event(&event, &mut on)),
            Body::List(elements) => elements.push(chunk, |event| self.progress.on_event(&event, &mut on)),
            Body::Json(members) => members.push(chunk),
            Body::Opaque => {}
        }
    }

    /// Ends the body. Call this once, and only if the body ended by itself. [`Observer::end`] is
    /// then final.
    pub fn finish(&mut self, mut on: impl FnMut(Signal)) {
        match &mut self.body {
            Body::Events(scanner) => scanner.finish(|event| self.progress.on_event(&event, &mut on)),
            Body::Json(members) => {
                self.progress.on_document(members.finish(), &mut on);
                self.body = Body::Opaque;
            }
            Body::List(_) | Body::Opaque => {}
        }
    }

    /// Returns how the response ended, according to its events. Final after [`Observer::finish`].
    pub fn end(&self) -> End {
        let Progress { failed, terminal, expects_terminal, choices, .. } = &self.progress;
        if *failed {
            End::Failed
        } else if *terminal || !expects_terminal || choices.all_finished() {
            End::Complete
        } else {
            End::Truncated
        }
    }

    /// Returns `true` if the response streams.
    pub fn is_stream(&self) -> bool {
        matches!(self.body, Body::Events(_) | Body::List(_))
    }

    /// Returns the number of events so far, without comments.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// Returns the number of output deltas so far. One delta is one token or a few.
    pub fn deltas(&self) -> u64 {
        self.progress.deltas
    }

    /// Returns the tokens so far, if the provider has reported them.
    pub fn usage(&self) -> Option<Usage> {
        Some(self.progress.usage).filter(|usage| *usage != Usage::default())
    }
}

type OnSignal<'a> = &'a mut dyn FnMut(Signal);

impl Progress {
    fn on_event(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        self.events += 1;
        match self.dialect {
            Dialect::OpenAiChat | Dialect::OpenAiCompletions => self.on_openai(event, on),
            Dialect::OpenAiResponses => self.on_responses(event, on),
            Dialect::AnthropicMessages => self.on_anthropic(event, on),
            Dialect::Gemini => self.on_gemini(event, on),
            // Each event with data is a delta, and only events that look like errors are errors.
            Dialect::Other if is_error(event) => self.on_error(event.data, on),
            Dialect::Other if event.name == b"ping" || event.data == b"[DONE]" => {}
            Dialect::Other => self.on_delta(on),
        }
    }

    /// Handles the end of a body that is one JSON document. `members` is `None` if it was cut off.
    fn on_document(&mut self, members: Option<Vec<u8>>, on: OnSignal<'_>) {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Answer {
            error: Present,
            usage: Option<usage::Fields>,
            usage_metadata: Option<gemini::Metadata>,
        }

        let Some(members) = members else {
            self.expects_terminal = self.dialect != Dialect::Other;
            return;
        };
        let answer = json::parse::<Answer>(&members).unwrap_or_default();
        if answer.error.0 {
            return self.on_error(&members, on);
        }
        self.on_usage(answer.usage, on);
        self.on_usage(answer.usage_metadata, on);
        self.terminal = true;
    }

    /// Counts an output delta.
    fn on_delta(&mut self, on: OnSignal<'_>) {
        self.deltas += 1;
        if self.deltas == 1 {
            on(Signal::FirstToken);
        }
    }

    fn on_usage(&mut self, reported: Option<impl Into<usage::Counts>>, on: OnSignal<'_>) {
        if reported.is_some_and(|reported| self.usage.update(reported.into())) {
            on(Signal::Usage(self.usage));
        }
    }

    fn on_terminal(&mut self, on: OnSignal<'_>) {
        if !self.terminal && !self.failed {
            self.terminal = true;
            on(Signal::Terminal);
        }
    }

    fn on_error(&mut self, error: &[u8], on: OnSignal<'_>) {
        if !self.failed {
            self.failed = true;
            on(Signal::Error(classify_event(error)));
        }
    }

    /// Handles an event that is no known JSON. Complete JSON of an unknown format may have held the
    /// end of an answer. An incomplete event did not.
    fn on_unknown(&mut self, event: &Event<'_>) {
        self.expects_terminal &= serde_json::from_slice::<IgnoredAny>(event.data).is_err();
    }
}

/// A search that is built once, because building it costs more than searching a chunk.
type Words = LazyLock<Finder<'static>>;

/// Returns `true` if the event is an error in the OpenAI-compatible format: by name, or by an
/// `error` at the top of its JSON.
fn is_error(event: &Event<'_>) -> bool {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Top {
        error: Present,
    }

    static ERROR: Words = Words::new(|| Finder::new(b"\"error\""));

    // Quotes inside a JSON string are escaped, so these bytes are a key or a whole value.
    event.name == b"error"
        || ERROR.find(event.data).is_some() && json::parse::<Top>(event.data).is_some_and(|top| top.error.0)
}

/// Returns the type of an event in the dialects that name them: its `event` field, or its `type` if
/// a gateway dropped that.
fn kind<'a>(event: &Event<'a>) -> Cow<'a, [u8]> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Top {
        r#type: Any<String>,
    }

    if !event.name.is_empty() {
        return Cow::Borrowed(event.name);
    }
    Cow::Owned(json::parse::<Top>(event.data).unwrap_or_default().r#type.0.into_bytes())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [&str; 15] = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: {\"error\":{\"code\":503}}\n\n",
        "data: [DONE]\n\n",
        "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":5}}}\n\n",
        "event: content_block_delta\ndata: {}\n\n",
        "event: message_stop\ndata: {}\n\n",
        "event: response.output_text.delta\ndata: {}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"output_tokens\":5}}}\n\n",
        "event: error\ndata: {\"type\":\"error\"}\n\n",
        ": ping\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\n",
        "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":2}}\r\n\r\n",
        "{\n  \"error\": {\n    \"code\": 503\n  }\n}\n",
    ];

    const DIALECTS: [Dialect; 6] = [
        Dialect::OpenAiChat,
        Dialect::OpenAiCompletions,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
        Dialect::Gemini,
        Dialect::Other,
    ];

    fn headers(content_type: &'static str) -> HeaderMap {
        [(CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect()
    }

    fn watch<'a>(mut observer: Observer, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Signal>, End) {
        let mut signals = Vec::new();
        for piece in pieces {
            observer.push(piece, |signal| signals.push(signal));
        }
        observer.finish(|signal| signals.push(signal));
        (signals, observer.end())
    }

    proptest! {
        #[test]
        fn any_split_of_any_events_yields_consistent_signals(
            picks in prop::collection::vec(0..EVENTS.len(), 0..12),
            spoil in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            dialect in prop::sample::select(&DIALECTS[..]),
            json in any::<bool>(),
            size in 1usize..40,
        ) {
            let mut body: Vec<u8> = picks.iter().flat_map(|pick| EVENTS[*pick].bytes()).collect();
            if let Some((at, byte)) = spoil && !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let headers = headers(if json { "application/json" } else { "text/event-stream" });
            let observer = || Observer::new(dialect, &headers, true);
            let whole = watch(observer(), std::iter::once(&body[..]));
            prop_assert_eq!(&watch(observer(), body.chunks(size)), &whole);

            let (signals, end) = whole;
            let count = |wanted: fn(&Signal) -> bool| signals.iter().filter(|signal| wanted(signal)).count();
            let (firsts, terminals) =
                (count(|s| matches!(s, Signal::FirstToken)), count(|s| matches!(s, Signal::Terminal)));
            let errors = count(|s| matches!(s, Signal::Error(_)));
            prop_assert!(firsts <= 1 && terminals <= 1 && errors <= 1);
            prop_assert_eq!(end == End::Failed, errors == 1);
            prop_assert!(terminals == 0 || end != End::Truncated);
            prop_assert!(dialect != Dialect::Other || end != End::Truncated);
        }
    }

    #[test]
    fn oversized_event_is_output_and_disables_truncation_check() {
        let mut body = b"data: {\"choices\":[{\"delta\":{\"audio\":\"".to_vec();
        body.resize(2 * MAX_EVENT, b'A');
        body.extend_from_slice(b"\"}}]}\n\n");
        let observer = Observer::new(Dialect::OpenAiChat, &headers("text/event-stream"), true);
        assert_eq!(watch(observer, body.chunks(9_999)), (vec![Signal::FirstToken], End::Complete));
    }

    #[test]
    fn usage_is_read_after_megabytes_of_answer() {
        let mut body =
            b"{\"candidates\": [{\"content\": {\"parts\": [{\"inlineData\": {\"data\": \"".to_vec();
        body.resize(3 * MAX_EVENT, b'A');
        body.extend_from_slice(b"\"}}]}}], \"usageMetadata\": {\"promptTokenCount\": 3}}");
        let observer = || Observer::new(Dialect::Gemini, &headers("application/json"), false);
        let usage = Usage { input: 3, ..Usage::default() };
        assert_eq!(watch(observer(), body.chunks(9_999)), (vec![Signal::Usage(usage)], End::Complete));
        assert_eq!(watch(observer(), body[..2 * MAX_EVENT].chunks(9_999)), (vec![], End::Truncated));
    }

    #[test]
    fn debug_shows_no_content() {
        let mut observer = Observer::new(Dialect::OpenAiChat, &headers("application/json"), false);
        observer.push(b"{\"secret\": \"", |_| {});
        let mut scanner = Scanner::new();
        scanner.push(b"data: secret", |_| {});
        let event = Event { name: b"", data: b"secret", oversized: false };
        let shown = format!("{observer:?} {scanner:?} {event:?}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    }
}
