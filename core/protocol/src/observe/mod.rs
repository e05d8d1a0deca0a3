//! Observes successful responses: first token, usage, errors, and whether the response is complete.
//!
//! The observer reads a copy of the bytes of a 2xx response and never delays them. It answers three
//! questions that the transport cannot: when the first token arrived (the first content, reasoning
//! or tool-call delta, but not headers, a role, a ping or `message_start`), how many tokens the
//! call used, and whether the end of the body is the end of the answer. SDKs treat a connection
//! that closes in the middle of an answer as a success.
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
mod openai_responses;
mod output_keys;
mod usage;

use std::{borrow::Cow, fmt, sync::LazyLock};

use http::header::{CONTENT_TYPE, HeaderMap};
use memchr::memmem::{self, Finder};
use serde::{Deserialize, de::IgnoredAny};

use super::classify::{Verdict, classify_event};
use super::lenient_json::{self, Any, IfObject, Present};
use super::sse::{Event, MAX_EVENT, Scanner};
use super::{request::Dialect, signed_or_compressed::is_compressed};
use element_splitter::ElementSplitter;
use member_reader::MemberReader;
pub use openai::choice_error;
pub use usage::Usage;

/// Members that are read from a response that is one JSON document.
const MEMBERS: &[&str] =
    &["error", "error_type", "usage", "usageMetadata", "meta", "prompt_eval_count", "eval_count"];
/// Maximum number of bytes that are kept of the [`MEMBERS`]. Members beyond this limit are
/// dropped.
const MAX_MEMBERS: usize = 64 << 10;

/// A fact about a response, reported while the response is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The first content, reasoning or tool-call delta arrived. Reported once per stream, and never
    /// for a response that does not stream.
    FirstToken,
    /// The tokens reported so far. May be reported more than once; each report replaces the
    /// previous one.
    Usage(Usage),
    /// The provider marked the end of a complete stream. Reported once. `[DONE]` after an error and
    /// `response.failed` are not terminal events.
    Terminal,
    /// The provider reported an error, as an event or as a document, although the status of the
    /// response is a success. Reported once. An error before the first token means that the attempt
    /// failed. See also [`Observer::unexplained_failure`].
    Error(Verdict),
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The response was complete, or its format does not show whether it was.
    Complete,
    /// The provider reported an error within the response.
    Failed,
    /// The response was cut off: it has neither a terminal event nor an error.
    Truncated,
}

/// Observes one response. Its `Debug` output contains counts and no content.
pub struct Observer {
    body: Body,
    progress: Progress,
}

/// How the body is read, which depends on the dialect and the content type.
enum Body {
    /// Server-sent events.
    Events(Scanner),
    /// A JSON list whose elements are the events.
    List(ElementSplitter),
    /// One JSON document.
    Json(MemberReader),
    /// A body that cannot be read, or a document that has ended.
    Opaque,
}

/// The state of a response, as far as its events have been read.
#[derive(Default)]
struct Progress {
    dialect: Dialect,
    usage: Usage,
    events: u64,
    deltas: u64,
    /// Whether the end of a complete response has been seen.
    terminal: bool,
    /// Whether an error has been reported.
    failed: bool,
    /// The classification of a failure whose event does not state the error. `None` if there is
    /// none, or once an error has been reported.
    unexplained: Option<Verdict>,
    /// Whether an end without a terminal event is a truncation. `false` if the format has no
    /// terminal event, or if an event could not be read.
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
    /// Creates an observer for the response to a request of this dialect. `headers` are those of
    /// the response, and `stream` is `true` if the request asked for a stream.
    ///
    /// Reads `content-type` and `content-encoding`. As in SDKs, a stream of a known dialect is read
    /// as server-sent events unless its content type is JSON.
    pub fn new(dialect: Dialect, headers: &HeaderMap, stream: bool) -> Self {
        let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
        let is =
            |text: &[u8]| content_type.as_deref().is_some_and(|value| memmem::find(value, text).is_some());
        let members = || MemberReader::new(MEMBERS, MAX_MEMBERS);
        let body = match dialect {
            _ if is_compressed(headers) => Body::Opaque,
            _ if is(b"text/event-stream") => Body::Events(Scanner::new()),
            Dialect::Gemini if stream && is(b"json") => Body::List(ElementSplitter::new(MAX_EVENT)),
            _ if is(b"json") && !is(b"ndjson") && !is(b"jsonl") => Body::Json(members()),
            Dialect::Other => Body::Opaque,
            _ if stream => Body::Events(Scanner::new()),
            _ if content_type.is_none() => Body::Json(members()),
            _ => Body::Opaque,
        };
        let expects_terminal = dialect != Dialect::Other && matches!(body, Body::Events(_) | Body::List(_));
        Self { body, progress: Progress { dialect, expects_terminal, ..Progress::default() } }
    }

    /// Reads the next bytes of the body. Calls `on` for each signal in them.
    pub fn push(&mut self, chunk: &[u8], mut on: impl FnMut(Signal)) {
        match &mut self.body {
            Body::Events(scanner) => scanner.push(chunk, |event| self.progress.on_event(&event, &mut on)),
            Body::List(elements) => elements.push(chunk, |event| self.progress.on_event(&event, &mut on)),
            Body::Json(members) => members.push(chunk),
            Body::Opaque => {}
        }
    }

    /// Ends the body, and calls `on` for each signal that its end reveals. Call this once, and only
    /// if the body ended without a transport error. [`Observer::end`] is final afterwards.
    pub fn finish(&mut self, mut on: impl FnMut(Signal)) {
        match &mut self.body {
            Body::Events(scanner) => scanner.finish(|event| {
                if is_whole(&event) {
                    self.progress.on_event(&event, &mut on);
                }
            }),
            Body::Json(members) => {
                self.progress.on_document(members.finish(), &mut on);
                self.body = Body::Opaque;
            }
            Body::List(_) | Body::Opaque => {}
        }
        if let Some(verdict) = self.progress.unexplained.take() {
            self.progress.report_error(verdict, &mut on);
        }
    }

    /// Returns how the response would have ended if its body ended now. Final after
    /// [`Observer::finish`].
    pub fn end(&self) -> End {
        let Progress { terminal, expects_terminal, choices, .. } = &self.progress;
        if self.progress.has_failed() {
            End::Failed
        } else if *terminal || !expects_terminal || choices.all_finished() {
            End::Complete
        } else {
            End::Truncated
        }
    }

    /// Returns the classification of a failure whose event does not state the error, until an error
    /// is reported: the one in the next error event, or this failure at the end of the body. `None`
    /// if there is no such failure.
    ///
    /// Azure sends `response.failed` without the error, and then an `error` event.
    pub fn unexplained_failure(&self) -> Option<&Verdict> {
        self.progress.unexplained.as_ref()
    }

    /// Returns `true` if the response is read as a stream of events.
    pub fn is_stream(&self) -> bool {
        matches!(self.body, Body::Events(_) | Body::List(_))
    }

    /// Returns the number of events so far. Comments are not counted.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// Returns the number of output deltas so far. One delta is one token or a few.
    pub fn deltas(&self) -> u64 {
        self.progress.deltas
    }

    /// Returns the tokens reported so far, or `None` if the provider has reported none or only
    /// zeros.
    pub fn usage(&self) -> Option<Usage> {
        Some(self.progress.usage).filter(|usage| *usage != Usage::default())
    }
}

/// The function that receives the signals.
type OnSignal<'a> = &'a mut dyn FnMut(Signal);

impl Progress {
    /// Reads one event by the rules of the dialect: updates the progress, and calls `on` for each
    /// signal.
    fn on_event(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        self.events += 1;
        match self.dialect {
            Dialect::OpenAiChat | Dialect::OpenAiCompletions | Dialect::Gemini if event.oversized => {
                // Probably an image or audio, possibly with the end of the answer.
                self.expects_terminal = false;
                self.on_delta(on);
            }
            Dialect::OpenAiChat | Dialect::OpenAiCompletions => self.on_openai(event, on),
            Dialect::OpenAiResponses => self.on_responses(event, on),
            Dialect::AnthropicMessages => self.on_anthropic(event, on),
            Dialect::Gemini => self.on_gemini(event, on),
            Dialect::Other => self.on_other(event, on),
        }
    }

    /// Updates the progress of the response from one event of an unknown dialect, and calls `on`
    /// for each signal in the event. Each event is a delta unless it looks like an error, a ping,
    /// `[DONE]` or the start of something.
    fn on_other(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        #[derive(Deserialize)]
        struct InDelta {
            delta: usage::WithUsage,
        }

        static USAGE: Words = Words::new(|| Finder::new(b"\"usage\""));

        if is_error(event) {
            return self.on_error(event.data, on);
        }
        if event.name == b"ping" || event.data == b"[DONE]" {
            return;
        }
        if USAGE.find(event.data).is_some() {
            let at_top = lenient_json::parse::<usage::WithUsage>(event.data).and_then(|top| top.usage);
            // Cohere's `message-end`.
            let in_delta = || lenient_json::parse::<InDelta>(event.data)?.delta.usage;
            self.on_usage(at_top.or_else(in_delta), on);
        }
        if !is_start(&kind(event)) {
            self.on_delta(on);
        }
    }

    /// Reports the usage or the error in a body that was one JSON document. `members` are its
    /// [`MEMBERS`], or `None` if the document was cut off.
    fn on_document(&mut self, members: Option<Vec<u8>>, on: OnSignal<'_>) {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Answer {
            error: Present,
            usage: Option<usage::Fields>,
            #[serde(rename = "usageMetadata")]
            usage_metadata: Option<gemini::Metadata>,
            /// The usage in version 1 of Cohere's API.
            meta: IfObject<usage::Fields>,
            /// The input tokens of Ollama.
            prompt_eval_count: Any<Option<u64>>,
            /// The output tokens of Ollama.
            eval_count: Any<Option<u64>>,
        }

        let Some(members) = members else {
            self.expects_terminal = self.dialect != Dialect::Other;
            return;
        };
        let answer = lenient_json::parse::<Answer>(&members).unwrap_or_default();
        if answer.error.0 {
            return self.on_error(&members, on);
        }
        self.on_usage(answer.usage, on);
        self.on_usage(answer.usage_metadata, on);
        self.on_usage(Some(answer.meta.0), on);
        let (input, output) = (answer.prompt_eval_count.0, answer.eval_count.0);
        self.on_usage(Some(usage::Counts { input, output, cached_input: None }), on);
        self.terminal = true;
    }

    /// Counts an output delta. For the first one, reports [`Signal::FirstToken`].
    fn on_delta(&mut self, on: OnSignal<'_>) {
        self.deltas += 1;
        if self.deltas == 1 {
            on(Signal::FirstToken);
        }
    }

    /// Updates the usage of the response by the token counts in `reported`. If these include input
    /// or output tokens, reports the updated usage as [`Signal::Usage`]. Does nothing for `None`.
    fn on_usage(&mut self, reported: Option<impl Into<usage::Counts>>, on: OnSignal<'_>) {
        if reported.is_some_and(|reported| self.usage.update(reported.into())) {
            on(Signal::Usage(self.usage));
        }
    }

    /// Reports the end of a complete stream, unless it was reported or an error came before.
    fn on_terminal(&mut self, on: OnSignal<'_>) {
        if !self.terminal && !self.has_failed() {
            self.terminal = true;
            on(Signal::Terminal);
        }
    }

    /// Reports an error, unless one was reported before. `error` is its JSON.
    fn on_error(&mut self, error: &[u8], on: OnSignal<'_>) {
        if !self.failed {
            self.report_error(classify_event(error), on);
        }
    }

    /// Reports an error that was classified as `verdict`.
    fn report_error(&mut self, verdict: Verdict, on: OnSignal<'_>) {
        self.unexplained = None;
        self.failed = true;
        on(Signal::Error(verdict));
    }

    /// Keeps the classification of a failure whose event does not state the error, unless an error
    /// was reported before. `event` is the JSON of the event.
    fn on_unexplained_failure(&mut self, event: &[u8]) {
        if !self.failed {
            self.unexplained = Some(classify_event(event));
        }
    }

    /// Returns `true` if the provider has reported a failure, with the error or without it.
    fn has_failed(&self) -> bool {
        self.failed || self.unexplained.is_some()
    }

    /// Stops detecting truncation if an event that could not be parsed may have contained the end
    /// of an answer. Complete JSON of an unknown format may contain an end, and incomplete JSON
    /// does not.
    fn on_unknown(&mut self, event: &Event<'_>) {
        self.expects_terminal &= serde_json::from_slice::<IgnoredAny>(event.data).is_err();
    }
}

/// A byte search that is built once, because building it costs more than searching one chunk.
type Words = LazyLock<Finder<'static>>;

/// Finds the key `error`, or the value `"error"`.
static ERROR: Words = Words::new(|| Finder::new(b"\"error\""));

/// Returns `true` if the event is named `error`, or its JSON has an `error` at the top that is not
/// empty.
fn is_error(event: &Event<'_>) -> bool {
    #[derive(Deserialize)]
    struct Top {
        error: Present,
    }

    // Quotes inside a JSON string are escaped, so these bytes are a key or a whole value.
    event.name == b"error"
        || ERROR.find(event.data).is_some()
            && lenient_json::parse::<Top>(event.data).is_some_and(|top| top.error.0)
}

/// Returns `true` if an event of this type only announces something, such as `message-start`,
/// `thread.run.queued` or `interaction.start`.
fn is_start(kind: &[u8]) -> bool {
    let ends: [&[u8]; 5] = [b"start", b"started", b"created", b"queued", b"in_progress"];
    ends.iter().any(|end| kind.ends_with(end))
}

/// Returns `true` if an event whose closing empty line is missing is reported: its data is `[DONE]`
/// or JSON, so the event is not cut off, or its name is `error`. The data of an oversized event is
/// neither, because it was dropped.
fn is_whole(event: &Event<'_>) -> bool {
    event.name == b"error"
        || event.data == b"[DONE]"
        || serde_json::from_slice::<IgnoredAny>(event.data).is_ok()
}

/// Returns the type of an event: its `event` field, or the `type` of its JSON if a gateway dropped
/// that field. Empty if it has neither.
fn kind<'a>(event: &Event<'a>) -> Cow<'a, [u8]> {
    #[derive(Deserialize)]
    struct Top {
        r#type: Any<String>,
    }

    if !event.name.is_empty() {
        return Cow::Borrowed(event.name);
    }
    Cow::Owned(
        lenient_json::parse::<Top>(event.data).map(|top| top.r#type.0.into_bytes()).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [&str; 16] = [
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
        "event: response.failed\ndata: {\"response\":{\"error\":null}}\n\n",
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
    fn cut_oversized_event_is_no_end() {
        for (dialect, start) in [
            (Dialect::OpenAiChat, "data: {\"choices\":[{\"delta\":{\"audio\":\""),
            (Dialect::Gemini, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\""),
            (Dialect::OpenAiResponses, "event: response.completed\ndata: {\"response\":{\"output\":\""),
        ] {
            let mut body = start.as_bytes().to_vec();
            body.resize(2 * MAX_EVENT, b'A');
            let observer = Observer::new(dialect, &headers("text/event-stream"), true);
            assert_eq!(watch(observer, body.chunks(9_999)), (vec![], End::Truncated), "{dialect:?}");
        }
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

    /// A counter of tokens would go back when it overflows.
    #[test]
    fn impossible_token_counts_are_cut() {
        let body = format!(r#"{{"usage": {{"prompt_tokens": {0}, "completion_tokens": {0}}}}}"#, u64::MAX);
        let observer = Observer::new(Dialect::OpenAiChat, &headers("application/json"), false);
        let (signals, _) = watch(observer, std::iter::once(body.as_bytes()));
        let usage = Usage { input: 1 << 40, output: 1 << 40, cached_input: 0 };
        assert_eq!(signals, [Signal::Usage(usage)]);
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
