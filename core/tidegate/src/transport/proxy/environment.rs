//! Proxy rules from environment variables.

use std::env;
use std::net::IpAddr;

use super::server::Dialect;
use super::{HostPattern, IpNet, PortPattern, ProxyRule, ProxyRules, ProxyServer};
use crate::error::Error;

impl ProxyRules {
    /// Builds rules from the environment variables of this process, by the
    /// [table](super#environment-variables-in-rust) for Rust.
    ///
    /// # Errors
    /// As for [`ProxyRules::from_env`].
    pub fn from_process_env() -> Result<Self, Error> {
        Self::from_env(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Builds rules by the [table](super#environment-variables-in-rust) for Rust. `read` returns
    /// the value of an environment variable, or `None` if it is not set.
    ///
    /// # Errors
    /// `Config` if a variable is not the URL of a proxy with a supported scheme. The message names
    /// the variable and quotes nothing of its value.
    pub fn from_env(read: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let exceptions = first_set(&read, ["no_proxy", "NO_PROXY"]).map_or(String::new(), |(_, list)| list);
        let entries = || exceptions.split(is_separator).filter(|entry| !entry.is_empty());
        if entries().any(|entry| entry == "*") {
            return Ok(Self::default());
        }
        let mut rules: Vec<ProxyRule> = entries().map(exception).collect();
        let is_cgi = read("REQUEST_METHOD").is_some();
        for (scheme, lower, upper) in [
            (Some("http"), "http_proxy", "HTTP_PROXY"),
            (Some("https"), "https_proxy", "HTTPS_PROXY"),
            (None, "all_proxy", "ALL_PROXY"),
        ] {
            let names = if is_cgi && upper == "HTTP_PROXY" { [lower, lower] } else { [lower, upper] };
            if let Some((name, value)) = first_set(&read, names).filter(|(_, value)| !value.is_empty()) {
                rules.push(via(scheme, ProxyServer::parse(name, &value, Dialect::Rust)?));
            }
        }
        Ok(Self::from_rules(rules))
    }

    /// Builds the rules that undici's `EnvHttpProxyAgent` follows: `ALL_PROXY` is ignored,
    /// `https://` URLs use `HTTP_PROXY` unless there is an `HTTPS_PROXY`, and the proxy's scheme is
    /// required. `read` returns the value of an environment variable, or `None` if it is not set.
    ///
    /// # Errors
    /// As for [`ProxyRules::from_env`].
    pub fn from_undici_env(read: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let proxy = |names| {
            first_set(&read, names)
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| ProxyServer::parse(name, &value, Dialect::Undici))
                .transpose()
        };
        let http = proxy(["http_proxy", "HTTP_PROXY"])?;
        let https = proxy(["https_proxy", "HTTPS_PROXY"])?.or_else(|| http.clone());
        let exceptions = first_set(&read, ["no_proxy", "NO_PROXY"]).map_or(String::new(), |(_, list)| list);
        // In a list, undici reads `*` as a host name.
        if exceptions == "*" {
            return Ok(Self::default());
        }
        let exceptions = exceptions.split(is_separator).filter_map(undici_exception);
        let proxies = [("http", http), ("https", https)];
        let proxies = proxies.into_iter().filter_map(|(scheme, proxy)| Some(via(Some(scheme), proxy?)));
        Ok(Self::from_rules(exceptions.chain(proxies)))
    }
}

/// Returns `true` if the character separates entries of `NO_PROXY`: a comma or white space.
fn is_separator(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// Returns the name and the value of the first variable in `names` that is set, even if its value
/// is empty. `None` if none of them is set.
fn first_set<'a>(read: &impl Fn(&str) -> Option<String>, names: [&'a str; 2]) -> Option<(&'a str, String)> {
    names.into_iter().find_map(|name| Some((name, read(name)?)))
}

/// Creates a rule that sends URLs with this scheme through `proxy`. The scheme `None` stands for
/// all schemes.
fn via(scheme: Option<&str>, proxy: ProxyServer) -> ProxyRule {
    ProxyRule {
        scheme: scheme.map(str::to_owned),
        host: HostPattern::Any,
        port: PortPattern::Any,
        proxy: Some(proxy),
    }
}

/// Creates the rule for an entry of `NO_PROXY`: connections to matching URLs are direct.
fn exception(entry: &str) -> ProxyRule {
    let entry = entry.to_ascii_lowercase();
    let (scheme, rest) = entry.split_once("://").unwrap_or(("all", &entry));
    let scheme = (scheme != "all").then(|| scheme.to_owned());
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let (host, port) = match network(rest) {
        Some(network) => (HostPattern::Network(network), PortPattern::Any),
        None => host_and_port(rest.split('/').next().unwrap_or_default()),
    };
    ProxyRule { scheme, host, port, proxy: None }
}

/// Returns the patterns for `text`, a host with an optional port. The host may be a name, an
/// address or a network. An empty host matches every host.
fn host_and_port(text: &str) -> (HostPattern, PortPattern) {
    let (host, port) = split_port(text);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let pattern = match network(bare) {
        Some(network) => HostPattern::Network(network),
        None if host.is_empty() => HostPattern::Any,
        None => HostPattern::Domain(without_leading_dot(host).to_owned()),
    };
    (pattern, port.map_or(PortPattern::Any, PortPattern::Is))
}

/// Returns the host and the port in `text`. The port is `None` if there is none, or if the text is
/// an IPv6 address without brackets.
fn split_port(text: &str) -> (&str, Option<u16>) {
    let port = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match port {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Returns the network in `text`, such as `10.0.0.0/8`. An address is a network of one address.
/// Returns `None` for names.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
}

/// Returns the host without a leading `.` or `*.`.
fn without_leading_dot(host: &str) -> &str {
    let host_after_star = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
    host_after_star.strip_prefix('.').unwrap_or(host_after_star)
}

/// Creates the rule for an entry of `NO_PROXY`, interpreted as undici does. Returns `None` if the
/// entry matches no URL.
fn undici_exception(entry: &str) -> Option<ProxyRule> {
    let entry = entry.to_lowercase();
    let port = entry.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
    });
    let (host, port) = match port {
        // Port 0 stands for every port.
        Some((host, port)) => (host, Some(port.parse::<u16>().ok()?).filter(|&port| port != 0)),
        None => (entry.as_str(), None),
    };
    let host = without_leading_dot(host);
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => HostPattern::Exact(address.to_owned()),
        // undici compares with brackets: an IPv6 address without them matches no URL.
        None if host.contains(':') || entry.is_empty() => return None,
        None => HostPattern::Domain(host.to_owned()),
    };
    Some(ProxyRule { scheme: None, host, port: port.map_or(PortPattern::Any, PortPattern::Is), proxy: None })
}
