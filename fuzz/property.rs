//! What `fuzz_targets/sse.rs` looks for a counterexample to. `core/tests/fuzz_seeds.rs` holds the seeds to it.

use http::{HeaderMap, HeaderValue};
use tidegate::protocol::observe::{End, Observer};
use tidegate::protocol::request::Dialect;
use tidegate::protocol::sse::Scanner;

/// Small, so that the fuzzer reaches what lies beyond it.
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

/// Panics where an event stream means something else when it is cut. The first byte chooses the size of the pieces, the rest is the body.
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
