//! The property that `fuzz_targets/sse.rs` tries to refute. `core/tests/fuzz_seeds.rs` checks it on
//! the seeds.

use http::{HeaderMap, HeaderValue};
use tidegate::protocol::observe::{End, Observer};
use tidegate::protocol::request::Dialect;
use tidegate::protocol::sse::Scanner;

/// The maximum event size in bytes, small so that the fuzzer exceeds it.
const LIMIT: usize = 64;

type Shown = Vec<(Vec<u8>, Vec<u8>, bool)>;

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Shown {
    let mut scanner = Scanner::with_limit(LIMIT);
    let mut shown = Vec::new();
    for piece in pieces {
        scanner.push(piece, |event| shown.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    }
    scanner.finish(|event| shown.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    shown
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

/// Checks that an event stream is read the same in one piece and in pieces.
///
/// The first byte of `input` is the size of the pieces, and the rest is the body.
///
/// # Panics
///
/// Panics if the pieces are read differently.
pub(crate) fn same_wherever_it_is_cut(input: &[u8]) {
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
