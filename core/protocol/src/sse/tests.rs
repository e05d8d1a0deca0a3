use proptest::prelude::*;

use super::*;

/// The name and the data of an event, and whether it is oversized.
type Shown = (Vec<u8>, Vec<u8>, bool);

fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Vec<Shown> {
    let mut scanner = Scanner::with_limit(limit);
    let mut shown = Vec::new();
    for piece in pieces {
        scanner.push(piece, |event| shown.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    }
    scanner.finish(|event| shown.push((event.name.to_vec(), event.data.to_vec(), event.oversized)));
    shown
}

/// Returns the events of a whole body, as the specification literally defines them, and the bare
/// JSON documents between them. The scanner must report the same.
fn oracle(body: &[u8], limit: usize) -> Vec<Shown> {
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    while at < body.len() {
        match body[at] {
            b'\r' | b'\n' => {
                lines.push(Vec::new());
                at += usize::from(body[at..].starts_with(b"\r\n"));
            }
            byte => lines.last_mut().unwrap().push(byte),
        }
        at += 1;
    }
    // The last line has no line end. It counts if it is not empty. An event without a closing empty
    // line counts, too.
    if lines.pop_if(|last| last.is_empty()).is_none() {
        lines.push(Vec::new());
    }
    lines.push(Vec::new());

    let mut shown = Vec::new();
    let (mut name, mut data, mut oversized, mut bare) = (Vec::new(), Vec::<Vec<u8>>::new(), false, false);
    for (number, line) in lines.iter().enumerate() {
        let too_long = line.len() > limit;
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if number == 0 => rest,
            _ => line,
        };
        if line.is_empty() {
            let joined = data.join(&b'\n');
            if oversized || joined.len() > limit {
                shown.push((name, Vec::new(), true));
            } else if !data.is_empty() {
                shown.push((name, joined, false));
            }
            (name, data, oversized, bare) = (Vec::new(), Vec::new(), false, false);
            continue;
        }
        let mut parts = line.splitn(2, |b| *b == b':');
        let field = parts.next().unwrap();
        let value = parts.next().unwrap_or_default();
        let value = if value.starts_with(b" ") { &value[1..] } else { value };
        if !too_long && (bare || line.starts_with(b"{") && data.is_empty()) {
            bare = true;
            data.push(line.to_vec());
            continue;
        }
        match field {
            b"data" | b"event" if too_long => oversized = true,
            b"data" => data.push(value.to_vec()),
            b"event" => name = value.to_vec(),
            _ => {}
        }
    }
    shown
}

const WORDS: [&[u8]; 22] = [
    b"data: ",
    b"data:",
    b"data",
    b"event: ",
    b"event",
    b"id: 7",
    b"retry",
    b":",
    b" ",
    b"\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"\xEF\xBB\xBF",
    b"\xEF",
    b"a",
    b"{",
    b"\n{",
    b"\xFF\xC3",
    b"0123456789",
];

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..WORDS.len(), 0..60)
        .prop_map(|picks| picks.into_iter().flat_map(|pick| WORDS[pick]).copied().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_split_yields_the_same_events(
        body in body(),
        limit in 16usize..64,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]);
        let expected = oracle(&body, limit);
        prop_assert_eq!(&scan(pieces, limit), &expected);
        prop_assert_eq!(&scan(body.chunks(1), limit), &expected);
        // Empty chunks between all others.
        prop_assert_eq!(&scan(body.chunks(1).flat_map(|piece| [piece, b""]), limit), &expected);
    }

    #[test]
    fn memory_is_bounded_for_any_input(
        chunks in prop::collection::vec((0usize..20_000, any::<bool>()), 1..40),
        limit in 16usize..5_000,
    ) {
        let mut scanner = Scanner::with_limit(limit);
        for (length, newline) in chunks {
            let mut chunk = b"data: ".to_vec();
            chunk.resize(length.max(6), b'x');
            if newline {
                chunk.push(b'\n');
            }
            scanner.push(&chunk, |_| {});
            let held = scanner.line.capacity() + scanner.event.data.capacity() + scanner.event.name.capacity();
            // A growing vector may double its capacity, and there are three buffers.
            prop_assert!(held <= 6 * limit + 64, "{held} bytes held under a limit of {limit}");
        }
    }
}

#[test]
fn line_of_ten_megabytes_is_skipped() {
    let mut events = Vec::new();
    let mut scanner = Scanner::new();
    scanner.push(b"data: ", |_| {});
    for _ in 0..160 {
        scanner.push(&[b'x'; 64 << 10], |_| {});
        assert!(scanner.line.capacity() <= 2 * MAX_EVENT);
    }
    scanner.push(b"\n\ndata: next\n\n", |event| events.push((event.data.to_vec(), event.oversized)));
    assert_eq!(events, [(Vec::new(), true), (b"next".to_vec(), false)]);
}
