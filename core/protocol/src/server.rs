//! The server that a URL names, and its default port.

use http::{Uri, uri::Scheme};

/// Returns the port of a URL without one: 443 for `https`, 80 for `http`.
pub fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

/// Returns `true` if both URLs have the same scheme, host and port, so that both may receive the
/// same credential. The case of the host, a final dot of the host, and default ports are ignored.
pub fn same_server(one: &Uri, other: &Uri) -> bool {
    one.scheme() == other.scheme() && same_host(one, other) && port(one) == port(other)
}

fn same_host(one: &Uri, other: &Uri) -> bool {
    match (one.host(), other.host()) {
        (Some(one), Some(other)) => without_final_dot(one).eq_ignore_ascii_case(without_final_dot(other)),
        (one, other) => one == other,
    }
}

/// Returns the port of a URL, by default that of its scheme. `None` if the URL has neither.
fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or_else(|| Some(default_port(*uri.scheme()? == Scheme::HTTPS)))
}

/// Returns a host name without the dot that may end it.
pub fn without_final_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_identified_by_protocol_host_and_port() {
        for (one, other, same) in [
            ("https://a/v1", "https://A:443/v2", true),
            ("https://a./v1", "https://a", true),
            ("http://a", "http://a:80", true),
            ("http://u:p@a", "http://a", true),
            ("https://a", "http://a", false),
            ("https://a", "http://a:443", false),
            ("http://a:1", "http://a:2", false),
            ("http://a", "http://b.a", false),
        ] {
            assert_eq!(same_server(&one.parse().unwrap(), &other.parse().unwrap()), same, "{one} {other}");
        }
    }
}
