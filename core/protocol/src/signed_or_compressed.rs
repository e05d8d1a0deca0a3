//! Header checks that decide whether a message may be read or changed.

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_ENCODING};

/// Returns `true` if an AWS signature (`authorization: AWS4-...`) covers the headers and the body,
/// so that neither may be changed.
pub fn is_signed(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"))
}

/// Returns `true` if the body is compressed, so that it cannot be read as it arrives.
pub fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
