//! Messages that are not ours to change, or to read.

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_ENCODING};

/// Whether the headers, and with them the body, are under a signature.
pub fn is_signed(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"))
}

/// Whether a body is compressed, and so cannot be read in passing.
pub fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
