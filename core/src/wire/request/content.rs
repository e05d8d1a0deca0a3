//! Compressed bodies: read by what is in them, passed on as they are.
//!
//! Few clients compress what they send, and few providers take it; but one that does must not be unlimited for it. What is decoded is looked at and
//! dropped. Bounded twice: [`LONGEST`] bytes, and [`STEEPEST`] times the compressed size beyond the first megabyte. What exceeds a bound, or is cut
//! off, or coded in a way not known here, is a body of which nothing is known.
//!
//! Takes time in proportion to what is decoded; see [`RequestFacts::read`](super::RequestFacts::read).

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};
use ruzstd::decoding::StreamingDecoder;

/// The most bytes that are decoded.
pub(super) const LONGEST: usize = 64 << 20;

/// The most that a compressed byte may stand for: text shrinks to a tenth, a prompt that repeats itself to a hundredth, a bomb to a thousandth or less.
pub(super) const STEEPEST: usize = 256;

/// Below this nothing is called a bomb.
const HARMLESS: usize = 1 << 20;

/// The widest window of zstd, by RFC 9659: what its decoder takes before there is anything to see.
const WIDEST: u64 = 8 << 20;

/// More codings one upon the other than anybody applies.
const MOST_CODINGS: usize = 3;

/// The content of a body, decoded where its headers say that it is coded. `None` where that cannot be done within the bounds.
pub(crate) fn decoded<'a>(headers: &HeaderMap, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let mut content = Cow::Borrowed(body);
    if !headers.contains_key(CONTENT_ENCODING) {
        return Some(content);
    }
    let limit = body.len().saturating_mul(STEEPEST).clamp(HARMLESS, LONGEST);
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        codings.extend(value.to_str().ok()?.split(',').map(str::trim).filter(|coding| !coding.is_empty()));
    }
    if codings.len() > MOST_CODINGS {
        return None;
    }
    // In the order in which they were applied: the last comes off first.
    for coding in codings.iter().rev() {
        if !coding.eq_ignore_ascii_case("identity") {
            content = Cow::Owned(decode(coding, &content, limit)?);
        }
    }
    Some(content)
}

fn decode(coding: &str, coded: &[u8], limit: usize) -> Option<Vec<u8>> {
    match &*coding.to_ascii_lowercase() {
        "gzip" | "x-gzip" => all(MultiGzDecoder::new(coded), limit),
        // With a header by the standard; some send none.
        "deflate" => all(ZlibDecoder::new(coded), limit).or_else(|| all(DeflateDecoder::new(coded), limit)),
        "zstd" => zstd(coded, limit),
        "br" => all(brotli_decompressor::Decompressor::new(coded, 16 * 1024), limit),
        _ => None,
    }
}

/// One frame after the other.
fn zstd(mut coded: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    while !coded.is_empty() {
        let frame = StreamingDecoder::new_with_max_window_size(&mut coded, WIDEST).ok()?;
        content.append(&mut all(frame, limit - content.len())?);
    }
    Some(content)
}

fn all(decoder: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    // One more than may be: to see that it is too much.
    decoder.take(limit as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= limit).then_some(content)
}
