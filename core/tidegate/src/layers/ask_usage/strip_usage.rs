//! An incremental filter of server-sent events that removes the usage that this layer requested.
//!
//! The filter buffers an event until the empty line that ends it. This delays no token, because a
//! client's parser does not deliver the event earlier either. Comments, and events longer than the
//! limit, are passed on without being buffered.

use std::mem;

use bytes::Bytes;
use memchr::memchr2;
use memchr::memmem;

use tidegate_protocol::json_edit::Object;
use tidegate_protocol::sse::MAX_EVENT;

const USAGE: &[u8] = b"\"usage\"";

/// An incremental filter that removes the requested usage from a stream of server-sent events. It
/// buffers at most one event.
pub(super) struct UsageFilter {
    /// Maximum number of bytes of an event that are buffered, line ends excluded. A longer event is
    /// passed on unfiltered.
    limit: usize,
    /// The buffered start of the current event.
    held: Vec<u8>,
    /// `true` if the current event has exceeded `limit`, so that the rest of it is passed on
    /// unfiltered.
    passing: bool,
    /// `true` if the current line has at least one byte of content so far.
    in_line: bool,
    /// What happened to the line that ended with a CR as the last byte of the previous chunk. If an
    /// LF follows, it belongs to the same line end and is treated like that line. `None` if the
    /// previous chunk did not end with a CR.
    after_cr: Option<LineResult>,
}

/// What the filter did with a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineResult {
    /// The line was added to the buffered event, and is passed on or removed with the event.
    Held,
    /// The line was passed on.
    Passed,
    /// The line was the empty line at the end of an event that was removed.
    Removed,
}

impl UsageFilter {
    pub(super) fn new() -> Self {
        Self::with_limit(MAX_EVENT)
    }

    fn with_limit(limit: usize) -> Self {
        Self { limit, held: Vec::new(), passing: false, in_line: false, after_cr: None }
    }

    /// Returns the number of bytes that are buffered.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Filters the next bytes of the body. Returns the bytes that can be passed on now, which may
    /// be empty.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        // Complete events without `"usage"` pass without being copied. For most servers, these are
        // nearly all events.
        let between = self.held.is_empty() && !self.passing && !self.in_line && self.after_cr.is_none();
        let whole = chunk.ends_with(b"\n\n") || chunk.ends_with(b"\n\r\n");
        if between && whole && memmem::find(&chunk, USAGE).is_none() {
            return chunk;
        }
        let mut out = Vec::with_capacity(self.held.len() + chunk.len());
        self.filter_lines(&chunk, &mut out);
        out.into()
    }

    /// Filters the buffered event, because the body has ended. Returns the last bytes to be passed
    /// on.
    pub(super) fn finish(&mut self) -> Bytes {
        let mut out = Vec::new();
        // An event without its empty line is processed like any other, as the observer does.
        self.end_event(b"", &mut out);
        out.into()
    }

    /// Returns the buffered bytes unchanged. Called when the body fails.
    pub(super) fn give_up(&mut self) -> Bytes {
        mem::take(&mut self.held).into()
    }

    /// Filters `chunk` line by line, and appends the bytes that can be passed on to `out`.
    fn filter_lines(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let mut rest = chunk;
        if let (Some(result), Some(first)) = (self.after_cr, rest.first()) {
            self.after_cr = None;
            if *first == b'\n' {
                match result {
                    LineResult::Held => self.held.push(b'\n'),
                    LineResult::Passed => out.push(b'\n'),
                    LineResult::Removed => {}
                }
                rest = rest.get(1..).unwrap_or_default();
            }
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let end = match rest.get(at..) {
                Some([b'\r', b'\n', ..]) => 2,
                _ => 1,
            };
            let (line, tail) = rest.split_at_checked(at + end).unwrap_or((rest, &[]));
            let (content, end) = line.split_at_checked(at).unwrap_or((line, &[]));
            rest = tail;
            let result = if self.in_line || !content.is_empty() {
                self.end_line(content, end, out)
            } else {
                self.end_event(end, out)
            };
            self.after_cr = (end == b"\r" && rest.is_empty()).then_some(result);
        }
        self.in_line |= !rest.is_empty();
        self.hold(rest, out);
    }

    /// Processes the end of a line that has content. `content` is the part of the line in the
    /// current chunk, and `end` is its line end. Adds both to the buffered event, or appends them
    /// to `out`. Returns which of the two happened.
    fn end_line(&mut self, content: &[u8], end: &[u8], out: &mut Vec<u8>) -> LineResult {
        self.hold(content, out);
        self.in_line = false;
        if self.passing {
            out.extend_from_slice(end);
            return LineResult::Passed;
        }
        // Line ends may exceed the limit. The result thus does not depend on where a CR LF is
        // split.
        self.held.extend_from_slice(end);
        // A comment before an event is not part of it.
        if self.held.first() == Some(&b':') {
            out.append(&mut self.held);
            return LineResult::Passed;
        }
        LineResult::Held
    }

    /// Processes the empty line that ends the current event. `end` is the line end of that line.
    /// Appends what is left of the event to `out`. Returns what happened to the empty line.
    fn end_event(&mut self, end: &[u8], out: &mut Vec<u8>) -> LineResult {
        let event = mem::take(&mut self.held);
        if !mem::take(&mut self.passing) && !event.is_empty() {
            match without_usage(&event) {
                Some(rest) if rest.is_empty() => return LineResult::Removed,
                Some(rest) => out.extend_from_slice(&rest),
                None => out.extend_from_slice(&event),
            }
        }
        out.extend_from_slice(end);
        LineResult::Passed
    }

    /// Adds `part` to the buffered event. If the event would then exceed the limit, appends the
    /// buffered event and `part` to `out` instead.
    fn hold(&mut self, part: &[u8], out: &mut Vec<u8>) {
        // An empty part never exceeds the limit, although the held line ends may.
        if !self.passing && !part.is_empty() && self.held.len() + part.len() > self.limit {
            self.passing = true;
            out.append(&mut self.held);
        }
        if self.passing { out.extend_from_slice(part) } else { self.held.extend_from_slice(part) }
    }
}

/// Returns the event without the requested usage. Returns `None` if the event contains no such
/// usage and is passed on unchanged, and an empty vector if the whole event is removed.
fn without_usage(event: &[u8]) -> Option<Vec<u8>> {
    memmem::find(event, USAGE)?;
    let mut lines =
        event.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| line.strip_prefix(b"data:"));
    // No known server spreads one chunk over several lines.
    let (Some(data), None) = (lines.next(), lines.next()) else { return None };
    let chunk = Object::read(data)?;
    let usage = chunk.last("usage")?;
    let nothing_else = chunk.last("choices").is_some_and(|choices| is_empty_list(choices.value));
    if nothing_else && usage.value.starts_with('{') {
        return Some(Vec::new());
    }
    if usage.value != "null" {
        return None;
    }
    let rest = chunk.without(|member| member.key == "usage" && member.value == "null");
    let at = memmem::find(event, data)?;
    let (before, after) = (event.get(..at)?, event.get(at + data.len()..)?);
    Some([before, &rest, after].concat())
}

/// Returns `true` if the JSON text is an empty list.
fn is_empty_list(value: &str) -> bool {
    let inside = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
    inside.is_some_and(|inside| inside.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pairs of an event as the filter receives it and the text that the filter passes on.
    const EVENTS: [(&str, &str); 20] = [
        // OpenAI: `null` in each chunk, after or before other members.
        (
            r#"data: {"id":"1","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}"#,
            r#"data: {"id":"1","choices":[{"index":0,"delta":{"content":"a"}}]}"#,
        ),
        (
            r#"data: {"id":"1","usage":null,"choices":[{"delta":{"content":"\"usage\":null"}}],"obfuscation":"x"}"#,
            r#"data: {"id":"1","choices":[{"delta":{"content":"\"usage\":null"}}],"obfuscation":"x"}"#,
        ),
        (r#"data: {"usage": null, "choices": []}"#, r#"data: {"choices": []}"#),
        // The requested usage chunk, as OpenAI and vLLM send it, and with blanks.
        (r#"data: {"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#, ""),
        (r#"data:{"usage":{"prompt_tokens":3},"choices":[ ]}"#, ""),
        ("event: message\nid: 7\ndata: {\"choices\":[],\"usage\":{}}", ""),
        // Azure begins with the results of its content filter, without choices.
        (
            r#"data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}],"usage":null}"#,
            r#"data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
        ),
        (
            r#"data: {"choices":[],"prompt_filter_results":[]}"#,
            r#"data: {"choices":[],"prompt_filter_results":[]}"#,
        ),
        // Usage that the server sent without being asked.
        (
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#,
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#,
        ),
        (r#"data: {"choices":[{"text":"\"usage\""}]}"#, r#"data: {"choices":[{"text":"\"usage\""}]}"#),
        (r#"data: {"choices":[{"usage":null}]}"#, r#"data: {"choices":[{"usage":null}]}"#),
        (
            r#"data: {"error":{"message":"\"usage\"","code":500}}"#,
            r#"data: {"error":{"message":"\"usage\"","code":500}}"#,
        ),
        ("data: [DONE]", "data: [DONE]"),
        (": ping", ": ping"),
        (": note\ndata: {\"choices\":[],\"usage\":{}}", ": note"),
        (": note\ndata: {\"choices\":[1],\"usage\":null}", ": note\ndata: {\"choices\":[1]}"),
        ("id: 1\nretry: 5", "id: 1\nretry: 5"),
        ("data: {\"usage\":null,\ndata: \"choices\":[]}", "data: {\"usage\":null,\ndata: \"choices\":[]}"),
        ("data: \"usage\" {", "data: \"usage\" {"),
        ("data", "data"),
    ];

    fn hide<'a>(pieces: impl Iterator<Item = &'a [u8]>, limit: usize) -> Vec<u8> {
        let mut hide = UsageFilter::with_limit(limit);
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&hide.push(Bytes::copy_from_slice(piece)));
            assert!(hide.held() <= 3 * limit, "an end or two for each byte");
        }
        out.extend_from_slice(&hide.finish());
        out
    }

    fn stream(picks: &[usize], side: fn(&(&'static str, &'static str)) -> &'static str, end: &str) -> String {
        let shown = picks.iter().map(|pick| (EVENTS[*pick].1, side(&EVENTS[*pick])));
        shown
            .filter(|(_, event)| !event.is_empty())
            .map(|(shown, event)| {
                // A comment before a hidden event keeps only its own line.
                let bare = event == shown && shown == ": note";
                format!("{}{end}{}", event.replace('\n', end), if bare { "" } else { end })
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn output_equals_the_response_without_requested_usage_at_any_chunking(
            picks in prop::collection::vec(0..EVENTS.len(), 0..8),
            end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            sizes in prop::collection::vec(1usize..60, 1..6),
            drop_last in any::<bool>(),
        ) {
            let (mut sent, mut expected) = (stream(&picks, |e| e.0, end), stream(&picks, |e| e.1, end));
            // A body may end without its last empty line.
            if drop_last && picks.last().is_some_and(|last| !EVENTS[*last].1.is_empty() && EVENTS[*last].1 != ": note") {
                sent.truncate(sent.len() - end.len());
                expected.truncate(expected.len() - end.len());
            }
            let mut rest = sent.as_bytes();
            let pieces = sizes.iter().cycle().map_while(|size| {
                let (piece, tail) = rest.split_at_checked(*size).unwrap_or((rest, &[]));
                rest = tail;
                (!piece.is_empty()).then_some(piece)
            });
            let shown = hide(pieces, MAX_EVENT);
            prop_assert_eq!(String::from_utf8(shown).unwrap(), expected);
        }

        #[test]
        fn invalid_input_passes_equally_at_any_chunking(
            bytes in prop::collection::vec(
                prop::sample::select(vec!["data:", "{\"choices\":[]", ",\"usage\":", "null", "{}", "}", "\n", "\r", ":", "x"]),
                0..30,
            ),
            size in 1usize..9,
            limit in 0usize..60,
        ) {
            let bytes = bytes.concat();
            prop_assert_eq!(
                hide(bytes.as_bytes().chunks(size), limit),
                hide(std::iter::once(bytes.as_bytes()), limit)
            );
        }
    }

    #[test]
    fn tokens_pass_with_the_chunk_that_contains_them() {
        let mut hide = UsageFilter::new();
        for (event, shown) in EVENTS.iter().filter(|(event, _)| !event.contains('\n')) {
            let out = hide.push(format!("{event}\n\n").into());
            let shown = if shown.is_empty() { String::new() } else { format!("{shown}\n\n") };
            assert_eq!((out, hide.held()), (shown.into(), 0));
        }
    }

    #[test]
    fn event_over_the_limit_passes_unchanged() {
        let long = format!("data: {{\"usage\":null,\"choices\":[\"{}\"]}}\n\n", "x".repeat(3 * MAX_EVENT));
        let mut hide = UsageFilter::new();
        let mut out = 0;
        for piece in long.as_bytes().chunks(9_999) {
            out += hide.push(Bytes::copy_from_slice(piece)).len();
            assert!(hide.held() <= MAX_EVENT);
        }
        assert_eq!(out, long.len());
        let next = hide.push("data: {\"choices\":[],\"usage\":{}}\n\n".into());
        assert!(next.is_empty(), "the next is looked at again");
    }
}
