//! The property that `fuzz_targets/sse.rs` checks with random input and `core/tests/fuzz_seeds.rs`
//! checks with the committed seeds.

use http::{HeaderMap, HeaderValue};
use tidegate::protocol::observe::{End, Observer};
use tidegate::protocol::request::Dialect;
use tidegate::protocol::sse::Scanner;

/// Maximum size of an event in bytes. The limit is so small that random input often exceeds it.
const LIMIT: usize = 64;

type EventList = Vec<(Vec<u8>, Vec<u8>, bool)>;

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> EventList {
    let mut scanner = Scanner::with_limit(LIMIT);
    let mut events = Vec::new();
    for piece in pieces {
        scanner.push(piece, |event| events.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    }
    scanner.finish(|event| events.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    events
}

fn end<'a>(dialect: Dialect, pieces: impl Iterator<Item = &'a [u8]>) -> (u64, End) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
    let mut observer = Observer::new(dialect, &headers, true);
    for piece in pieces {
        observer.push(piece, |_| {});
    }
    observer.finish(|_| {});
    (observer.deltas(), observer.end())
}

/// Checks that a stream of server-sent events is parsed the same in one chunk and in small chunks.
///
/// The first byte of `input` is the size of the small chunks in bytes, where 0 counts as 1. The
/// rest of `input` is the body of the stream.
///
/// # Panics
///
/// Panics if the results differ.
pub(crate) fn same_in_any_chunks(input: &[u8]) {
    let Some((size, body)) = input.split_first() else { return };
    let size = usize::from(*size).max(1);
    assert_eq!(events(std::iter::once(body)), events(body.chunks(size)));
    for dialect in [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
        Dialect::Gemini,
        Dialect::Other,
    ] {
        assert_eq!(end(dialect, std::iter::once(body)), end(dialect, body.chunks(size)));
    }
}
