//! Recognizes URLs of this machine and of private networks.

use std::net::IpAddr;

use http::Uri;

/// The last labels of names that no public DNS resolves (RFC 6761, RFC 8375, and the names of
/// clusters and container networks).
const PRIVATE_DOMAINS: [&str; 5] = [".localhost", ".local", ".internal", ".lan", ".home.arpa"];

/// Returns `true` if the host of `uri` is on this machine or in a private network: a loopback,
/// private or link-local address, a name without a dot, or a name below a private domain such as
/// `.local` or `.internal`. Names are not looked up.
pub(super) fn is_private_host(uri: &Uri) -> bool {
    let Some(host) = uri.host() else { return false };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address.map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        Ok(IpAddr::V6(v6)) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        Err(_) => !host.contains('.') || PRIVATE_DOMAINS.iter().any(|domain| host.ends_with(domain)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_private_by_address_or_by_name() {
        let private = [
            "localhost",
            "LOCALHOST:1",
            "127.8.0.1:8000",
            "192.168.1.2",
            "172.16.0.1",
            "169.254.1.1",
            "[::1]:80",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "vllm:8000",
            "vllm.llm.svc.cluster.local",
            "gpu.internal.",
        ];
        let public = [
            "8.8.8.8",
            "172.32.0.1",
            "[2001:db8::1]",
            "api.openai.com",
            "internal.example.com",
            "local.dev",
            "localhost.example.com",
            "127.0.0.1.example.com",
        ];
        let is_private = |host: &&str| is_private_host(&format!("http://{host}/v1").parse().expect("a URL"));
        assert_eq!(private.iter().filter(|host| !is_private(host)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(public.iter().filter(|host| is_private(host)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
