//! Checks that a URL reaches the server exactly as it is written. Pure.
//!
//! Targets are matched on the URL of a request, so the server must be sent exactly that URL. Two
//! things come between them: servers and proxies resolve `.` and `..` segments, and the URL type of
//! the built-in transport normalises what it parses. A URL that either would change is rejected.

use http::Uri;
use http::uri::PathAndQuery;
use url::Url;

/// Returns an error if servers or proxies may read the path differently.
///
/// # Errors
/// Says what is wrong with a path that has a `.` or `..` segment, also a percent-encoded one, or a
/// backslash, which many servers read as a slash.
pub fn check(uri: &Uri) -> Result<(), &'static str> {
    if uri.path().contains('\\') {
        return Err("its path has a backslash: percent-encode it as %5C, or write a slash");
    }
    if uri.path().split('/').any(is_dot_segment) {
        return Err("its path has a \".\" or \"..\" segment: resolve it first");
    }
    Ok(())
}

/// Returns an error if the built-in transport would change the path or the query.
///
/// # Errors
/// As [`check`], and says if the transport would change the path or the query.
pub fn check_unchanged(uri: &Uri) -> Result<(), &'static str> {
    check(uri)?;
    // Without the host, which may be a name that only a pool gives an address.
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

/// Compares the host of a URL with the host that is connected to, whatever the letter case.
///
/// # Errors
/// Says that they differ, because the host is written in an unusual form.
pub fn check_host(uri: &Uri, sent: &Url) -> Result<(), &'static str> {
    let host = uri.host().unwrap_or_default();
    if sent.host_str().is_some_and(|sent| sent.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err("its host is an address in an unusual form: write it as in 127.0.0.1 or [::1]")
}

/// Returns `true` for characters that no URL parser changes. Most URLs have no others, and parsing one
/// takes longer than all other checks of a request.
fn is_never_changed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%?&=:,+@".contains(&byte)
}

/// Returns `true` for `.` and `..`, each dot as it is or percent-encoded.
fn is_dot_segment(segment: &str) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while let Some(after) = [".", "%2e", "%2E"].iter().find_map(|dot| rest.strip_prefix(dot)) {
        rest = after;
        dots += 1;
    }
    rest.is_empty() && (dots == 1 || dots == 2)
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
