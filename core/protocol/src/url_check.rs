//! Checks that a URL reaches the server exactly as it is written.
//!
//! Targets are matched by the URL of a request, so the server must receive exactly that URL. Two
//! things can change it: servers and proxies resolve `.` and `..` segments, and the URL parsers in
//! them rewrite some characters. A URL that either would change is rejected.

use http::{Uri, uri::PathAndQuery};
use percent_encoding::percent_decode_str;
use url::Url;

/// Checks that servers and proxies read the path as it is written.
///
/// # Errors
///
/// Returns a description of the problem if the path has a backslash, which many servers read as a
/// slash, or a `.` or `..` segment, even if its dots are percent-encoded.
pub fn check(uri: &Uri) -> Result<(), &'static str> {
    if uri.path().contains('\\') {
        return Err("its path has a backslash: percent-encode it as %5C, or write a slash");
    }
    if uri.path().split('/').any(is_dot_segment) {
        return Err("its path has a \".\" or \"..\" segment: resolve it first");
    }
    Ok(())
}

/// Checks that URL parsers also read the path and the query as they are written.
///
/// # Errors
///
/// Returns a description of the problem as in [`check`], and if a parser that follows the URL
/// standard would change the path or the query.
pub fn check_unchanged(uri: &Uri) -> Result<(), &'static str> {
    check(uri)?;
    // The host is left out, because it may be a name that only a pool resolves.
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if path.bytes().all(is_never_changed) {
        return Ok(());
    }
    let sent = Url::parse(&format!("http://host{path}")).map_err(|_| "it is not a valid URL")?;
    if sent.path() != uri.path() {
        return Err("its path has \", {, } or a character outside of ASCII: percent-encode them");
    }
    if sent.query() != uri.query() {
        return Err("its query has ' or a character outside of ASCII: percent-encode them (' is %27)");
    }
    Ok(())
}

/// Checks that a connection leads to the host that the URL names. `sent` is the URL as read by a
/// parser that follows the URL standard. The letter case is ignored.
///
/// # Errors
///
/// Returns a description of the problem if the hosts differ, which they do for IP addresses in an
/// unusual form such as `127.1`.
pub fn check_host(uri: &Uri, sent: &Url) -> Result<(), &'static str> {
    let host = uri.host().unwrap_or_default();
    if sent.host_str().is_some_and(|sent| sent.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err("its host is an address in an unusual form: write it as in 127.0.0.1 or [::1]")
}

/// Returns `true` for bytes that no URL parser changes. Most URLs consist of such bytes only, and
/// are not parsed: parsing takes longer than all other checks of a request.
fn is_never_changed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%?&=:,+@".contains(&byte)
}

/// Returns `true` for `.` and `..`, where each dot may be percent-encoded.
fn is_dot_segment(segment: &str) -> bool {
    percent_decode_str(segment).eq(*b".") || percent_decode_str(segment).eq(*b"..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn accepted_url_is_what_a_url_parser_prints(tail in r#"[/.%2eE\\'"{}|^\[\]?&=+;:@~!$*(),a-cé]{0,12}"#) {
            let Ok(uri) = format!("http://h/{tail}").parse::<Uri>() else { return Ok(()) };
            if check_unchanged(&uri).is_ok() {
                let printed = Url::parse(&format!("http://h/{tail}")).unwrap();
                prop_assert_eq!(printed.as_str(), format!("http://h/{tail}"));
            }
        }
    }

    #[test]
    fn host_is_compared_as_it_is_matched() {
        for (url, accepted) in [
            ("http://Host.Example:80", true),
            ("https://host.example.:443/", true),
            ("http://127.0.0.1:8000/v1", true),
            ("http://[::1]:8000/v1", true),
            ("http://127.1/v1", false),
            ("http://0x7f.0.0.1/v1", false),
            ("http://2130706433/v1", false),
            ("http://[0:0:0:0:0:0:0:1]/v1", false),
        ] {
            let checked = check_host(&url.parse().unwrap(), &Url::parse(url).unwrap());
            assert_eq!(checked.is_ok(), accepted, "{url}");
        }
    }
}
