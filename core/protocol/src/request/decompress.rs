//! Decompresses request bodies for reading. The body is still forwarded as it was sent.
//!
//! Few clients compress requests and few providers accept them, but a compressed request must not
//! escape the limits.
//!
//! Decompression runs on the thread that serves the call and takes 8 ms per megabyte, so it is
//! limited to [`MAX_DECOMPRESSED`]. A compressed body is treated as unavailable if it exceeds this
//! limit before or after decompression, is cut off, or is encoded in an unknown way.

use std::{borrow::Cow, io::Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};
use ruzstd::decoding::StreamingDecoder;

/// Maximum length in bytes of a compressed body, and of its decompressed content: 1 MiB.
pub const MAX_DECOMPRESSED: usize = 1 << 20;

/// Maximum zstd window in bytes, as in RFC 9659. The decoder allocates the window before any
/// output.
const MAX_ZSTD_WINDOW: u64 = 8 << 20;

/// Maximum number of content codings that may be applied to a body.
const MAX_CODINGS: usize = 3;

/// Returns the content of a body, decompressed according to its `content-encoding`.
///
/// Returns `None` if a coding is unknown, the body is damaged, or it exceeds [`MAX_DECOMPRESSED`]
/// before or after decompression. A body that is not compressed may have any length.
pub fn decompress<'a>(headers: &HeaderMap, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let changes_body = |coding: &&str| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity");
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        codings.extend(value.to_str().ok()?.split(',').map(str::trim).filter(changes_body));
    }
    if codings.len() > MAX_CODINGS {
        return None;
    }
    let mut content = Cow::Borrowed(body);
    // Codings are listed in the order in which they were applied, so the last one is removed first.
    for coding in codings.iter().rev() {
        if content.len() > MAX_DECOMPRESSED {
            return None;
        }
        content = Cow::Owned(decode(coding, &content)?);
    }
    Some(content)
}

/// Removes one coding (`gzip`, `deflate`, `zstd` or `br`). Returns `None` if that is impossible or
/// the result exceeds [`MAX_DECOMPRESSED`].
fn decode(coding: &str, coded: &[u8]) -> Option<Vec<u8>> {
    match &*coding.to_ascii_lowercase() {
        "gzip" | "x-gzip" => all(MultiGzDecoder::new(coded), MAX_DECOMPRESSED),
        // The standard requires a zlib header, but some clients send none.
        "deflate" => all(ZlibDecoder::new(coded), MAX_DECOMPRESSED)
            .or_else(|| all(DeflateDecoder::new(coded), MAX_DECOMPRESSED)),
        "zstd" => zstd(coded),
        "br" => all(brotli_decompressor::Decompressor::new(coded, 16 * 1024), MAX_DECOMPRESSED),
        _ => None,
    }
}

/// Decompresses consecutive zstd frames, at most [`MAX_DECOMPRESSED`] bytes in total.
fn zstd(mut coded: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    while !coded.is_empty() {
        let frame = StreamingDecoder::new_with_max_window_size(&mut coded, MAX_ZSTD_WINDOW).ok()?;
        content.append(&mut all(frame, MAX_DECOMPRESSED - content.len())?);
    }
    Some(content)
}

/// Reads the decoder to its end. Returns `None` if it fails or gives more than `limit` bytes.
fn all(decoder: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more than allowed, to detect an excess.
    decoder.take(limit as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= limit).then_some(content)
}
