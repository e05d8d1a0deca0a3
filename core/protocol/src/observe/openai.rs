//! Events of OpenAI's chat and legacy completions.
//!
//! A stream ends with a `finish_reason` and then `[DONE]`. Servers deviate in both, so:
//!
//! - `[DONE]` is a terminal event only if a choice has finished and no error came before. vLLM
//!   sends it after an error, and gateways send it after anything.
//! - One finished choice suffices: with `n` > 1, some servers report the reason once.
//! - Without `[DONE]`, a body is complete only if each choice that began has finished. All content
//!   has then arrived, and some servers never send `[DONE]`.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::output_keys::{HasOutput, OutputKeys};
use super::usage::{Fields, WithUsage};
use super::{ERROR, OnSignal, Progress, Words, is_error};
use crate::classify::{Verdict, classify_event};
use crate::lenient_json::{self, Any, IfObject, Present};
use crate::sse::Event;

/// Records which choices of a response have begun and finished. Choices are the alternative answers
/// to one request; Gemini calls them candidates.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// Bit set of the choices that have begun and not finished. Choices from 63 on share one bit.
    open: u64,
    any_finished: bool,
}

impl Choices {
    /// Records that the choice `index` has begun, because it has output.
    pub(super) fn begin(&mut self, index: u64) {
        self.open |= bit(index);
    }

    /// Records that the choice `index` has finished, because it has a finish reason.
    pub(super) fn finish(&mut self, index: u64) {
        self.open &= !bit(index);
        self.any_finished = true;
    }

    /// Returns `true` if a choice has finished, and each choice that has begun has finished too.
    pub(super) fn all_finished(&self) -> bool {
        self.any_finished && self.open == 0
    }
}

/// Returns the bit of a choice in [`Choices::open`].
fn bit(index: u64) -> u64 {
    1 << index.min(63)
}

impl Progress {
    /// Updates the progress of the response from one event of chat or legacy completions that is
    /// not oversized, and calls `on` for each signal in the event.
    pub(super) fn on_openai(&mut self, event: &Event<'_>, on: OnSignal<'_>) {
        if event.data == b"[DONE]" {
            if self.choices.any_finished || !self.expects_terminal {
                self.on_terminal(on);
            }
            return;
        }
        if is_error(event) {
            return self.on_error(event.data, on);
        }
        if let Some(verdict) = choice_error(event.data) {
            if !self.failed {
                self.report_error(verdict, on);
            }
            return;
        }
        if is_plain(event.data) {
            self.choices.begin(0);
            return self.on_delta(on);
        }
        let Some(chunk) = lenient_json::parse::<Chunk>(event.data) else { return self.on_unknown(event) };
        for choice in chunk.choices.iter().flatten() {
            let index = choice.index.0.unwrap_or(0);
            if choice.delta.as_ref().is_some_and(|delta| delta.0) || choice.text.0 {
                self.choices.begin(index);
                self.on_delta(on);
            }
            if choice.finish_reason.0 {
                self.choices.finish(index);
            }
        }
        self.on_usage(chunk.usage.or(chunk.x_groq.0.usage), on);
    }
}

/// Returns the classification of the error of a choice, in a response of OpenAI's chat or legacy
/// completions or in an event of its stream. Returns `None` if no choice has an `error` or the
/// finish reason `error`.
///
/// OpenRouter reports the failure of a model in this way, with the status of a success. An error of
/// unknown type counts as status 500.
///
/// # Examples
///
/// ```
/// use tidegate_protocol::choice_error;
///
/// let body = br#"{"choices": [{"finish_reason": "error", "error": {"code": 502}}]}"#;
/// assert_eq!(choice_error(body).map(|verdict| verdict.status), Some(502));
/// assert_eq!(choice_error(br#"{"choices": [{"finish_reason": "stop"}]}"#), None);
/// ```
pub fn choice_error(data: &[u8]) -> Option<Verdict> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        choices: Vec<FinishedChoice<'a>>,
    }
    #[derive(Deserialize)]
    struct FinishedChoice<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
        #[serde(borrow)]
        finish_reason: Option<Cow<'a, str>>,
    }

    // Quotes inside a JSON string are escaped, so these bytes are a key or a whole value.
    ERROR.find(data)?;
    let answer: Answer<'_> = serde_json::from_slice(data).ok()?;
    answer.choices.iter().find_map(|choice| {
        let error = choice.error.map(RawValue::get).filter(|error| !matches!(*error, r#""""# | "[]" | "{}"));
        let has_failed = error.is_some() || choice.finish_reason.as_deref() == Some("error");
        has_failed.then(|| classify_event(error.unwrap_or("{}").as_bytes()))
    })
}

/// Returns `true` if a chunk can only be more text of its single choice, which nearly all chunks
/// are. Other chunks are parsed.
///
/// The check searches bytes and takes an eighth of the time of parsing. Quotes inside a JSON string
/// are escaped, so the searched bytes cannot occur in the text.
fn is_plain(data: &[u8]) -> bool {
    static BEGINNING: Words = Words::new(|| Finder::new(br#""choices":[{"index":0,"delta":{"content":""#));
    static FINISH: Words = Words::new(|| Finder::new(br#""finish_reason":"#));
    static USAGE: Words = Words::new(|| Finder::new(br#""usage":{"#));

    let behind = |data: &[u8], words: &Words| Some(words.find(data)? + words.needle().len());
    let Some(text) = behind(data, &BEGINNING).and_then(|at| data.get(at..)) else { return false };
    let Some(rest) = behind(text, &FINISH).and_then(|at| text.get(at..)) else { return false };
    !text.starts_with(b"\"")
        && rest.starts_with(b"null")
        && FINISH.find(rest).is_none()
        && USAGE.find(data).is_none()
        && data.ends_with(b"}")
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Fields>,
    /// Groq's own member, with the usage in the last chunk.
    x_groq: IfObject<WithUsage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    index: Any<Option<u64>>,
    delta: Option<Delta>,
    /// Whether there is output text of legacy completions, which have no delta.
    text: Present,
    finish_reason: Present,
}

/// Whether a delta contains output. A role or empty strings alone are not output.
type Delta = HasOutput<DeltaKeys>;

struct DeltaKeys;

impl OutputKeys for DeltaKeys {
    fn is_output(key: &str) -> bool {
        match key {
            "content" | "tool_calls" | "function_call" | "refusal" | "audio" => true,
            // Reasoning has a different name on each server.
            _ => matches!(key, "reasoning" | "reasoning_content" | "reasoning_text" | "thinking"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::*;

    use super::*;
    use crate::observe::{End, Observer, Signal};
    use crate::request::Dialect;

    fn observe(chunks: &[String]) -> (Vec<Signal>, u64, End) {
        let mut observer = Observer::new(Dialect::OpenAiChat, &HeaderMap::new(), true);
        let mut signals = Vec::new();
        for chunk in chunks {
            observer.push(format!("data: {chunk}\n\n").as_bytes(), |signal| signals.push(signal));
        }
        observer.finish(|signal| signals.push(signal));
        (signals, observer.deltas(), observer.end())
    }

    fn chunk() -> impl Strategy<Value = String> {
        let text =
            prop::sample::select(vec!["", "a", "\"finish_reason\":null", "\"usage\":{", "\\", "}\u{e9}"]);
        let finish = prop::sample::select(vec!["null", "\"stop\"", "\"\""]);
        let usage = prop::sample::select(vec!["", ",\"usage\":null", ",\"usage\":{\"prompt_tokens\":3}"]);
        let choice = (text, finish).prop_map(|(text, finish)| {
            let text = serde_json::to_string(text).unwrap();
            format!("{{\"index\":INDEX,\"delta\":{{\"content\":{text}}},\"finish_reason\":{finish}}}")
        });
        (prop::collection::vec(choice, 0..3), usage, any::<bool>()).prop_map(
            |(choices, usage, usage_first)| {
                let choices: Vec<String> = choices
                    .iter()
                    .enumerate()
                    .map(|(index, choice)| choice.replace("INDEX", &index.to_string()))
                    .collect();
                let choices = format!("\"choices\":[{}]", choices.join(","));
                match usage.strip_prefix(',') {
                    Some(usage) if usage_first => format!("{{{usage},{choices}}}"),
                    _ => format!("{{{choices}{usage}}}"),
                }
            },
        )
    }

    #[test]
    fn error_of_a_choice_is_reported_and_ends_the_stream() {
        let text = r#"{"choices":[{"index":0,"delta":{"content":"a \"error\""},"finish_reason":null}]}"#;
        let error = r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"message":"provider died","code":502}}]}"#;
        let (signals, _, end) = observe(&[text.to_owned(), error.to_owned(), "[DONE]".to_owned()]);
        let statuses: Vec<_> = signals
            .iter()
            .map(|signal| if let Signal::Error(verdict) = signal { verdict.status } else { 0 })
            .collect();
        assert_eq!((statuses, end), (vec![0, 502], End::Failed));
        let reason_only = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#;
        assert_eq!(observe(&[reason_only.to_owned()]).2, End::Failed);
        let no_error = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","error":null}]}"#;
        assert_eq!(observe(&[no_error.to_owned()]).2, End::Complete);
    }

    proptest! {
        /// Tests that chunks have the same signals whether [`is_plain`] recognizes them or they are
        /// parsed. A space after `"choices":` forces parsing.
        #[test]
        fn fast_path_agrees_with_parsing(chunks in prop::collection::vec(chunk(), 0..5)) {
            let parsed: Vec<String> =
                chunks.iter().map(|chunk| chunk.replace("\"choices\":[", "\"choices\": [")).collect();
            prop_assert!(!parsed.iter().any(|chunk| is_plain(chunk.as_bytes())));
            prop_assert_eq!(observe(&chunks), observe(&parsed));
        }
    }
}
