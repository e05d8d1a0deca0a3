//! Proxy selection: decides for each URL whether to connect directly or through a proxy.
//!
//! [`ProxyRules`] is a value: it is built once from a snapshot of environment variables, and does
//! not read them again. The transport looks up the final URL of each attempt, because a fallback or
//! a replica can change the URL of a call.
//!
//! # Dialects
//!
//! Each language follows the HTTP client that its users know:
//!
//! - Python: httpx or httpx2, whichever the wrapped client belongs to ([`ProxyRules::from_rules`]).
//! - Node: undici's `EnvHttpProxyAgent` ([`ProxyRules::from_undici_env`]).
//! - Rust and the command line: the table below ([`ProxyRules::from_env`]).
//!
//! # Environment variables in Rust
//!
//! | variable | meaning |
//! |---|---|
//! | `http_proxy`, `HTTP_PROXY` | the proxy of `http://` URLs |
//! | `https_proxy`, `HTTPS_PROXY` | the proxy of `https://` URLs |
//! | `all_proxy`, `ALL_PROXY` | the proxy of URLs whose scheme has none of its own |
//! | `no_proxy`, `NO_PROXY` | destinations that are connected to directly |
//!
//! - The lower-case variable is used if it is set, even if it is empty. An empty lower-case
//!   variable hides the upper-case one. `all_proxy` still applies.
//! - `HTTP_PROXY` is ignored if `REQUEST_METHOD` is set: in a CGI program, it may come from a
//!   request header.
//! - A proxy is `[scheme://][user:password@]host[:port]`. The scheme is `http` (default), `https`,
//!   `socks5` (this process resolves names) or `socks5h` (the proxy resolves names). User name and
//!   password are percent-decoded and sent to the proxy only. Another scheme, a missing host or a
//!   malformed URL is an error, never a direct connection. Anything after the port is ignored.
//! - `http://` URLs are forwarded by `http` and `https` proxies, which therefore see the request
//!   and its key. `https://` URLs, and all URLs behind SOCKS, pass through a tunnel.
//!
//! `NO_PROXY` is a list, separated by commas or white space. Case is ignored.
//!
//! | entry | destinations |
//! |---|---|
//! | `*` | all, wherever in the list it stands |
//! | `example.com`, `.example.com`, `*.example.com` | the domain and its subdomains |
//! | `192.0.2.1`, `::1`, `[::1]` | the address |
//! | `10.0.0.0/8`, `fd00::/8` | the addresses of the network; names are not resolved |
//! | `host:8080`, `[::1]:8080` | the host at this port; a URL without a port has port 80 or 443 |
//! | `http://host`, `https://host:8443`, `all://host` | the host by this scheme |

mod environment;
mod server;

use std::fmt;
use std::sync::Arc;

use http::Uri;
pub use ipnet::IpNet;

pub use self::server::ProxyServer;

/// Rules that map URLs to proxies. Cheap to clone.
///
/// If the extensions of a request contain rules, they replace those of the built-in transport for
/// this request. The default value has no rules, so all connections are direct.
///
/// ```
/// use tidegate::transport::ProxyRules;
///
/// let environment = |name: &str| match name {
///     "https_proxy" => Some("http://proxy:3128".to_owned()),
///     "NO_PROXY" => Some("localhost,10.0.0.0/8".to_owned()),
///     _ => None,
/// };
/// let rules = ProxyRules::from_env(environment)?;
/// assert!(rules.proxy_for(&http::Uri::from_static("https://api.openai.com/v1")).is_some());
/// assert!(rules.proxy_for(&http::Uri::from_static("https://10.1.2.3:8000/v1")).is_none());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProxyRules(Arc<[ProxyRule]>);

/// A rule for the connections to some URLs. It matches a URL if the scheme, the host and the port
/// all match. Connections to a matching URL are made through `proxy`.
#[derive(Clone, Debug)]
pub struct ProxyRule {
    /// The scheme of the URLs, in lower case. `None` matches every scheme.
    pub scheme: Option<String>,
    /// The hosts that the rule matches.
    pub host: HostPattern,
    /// The ports that the rule matches.
    pub port: PortPattern,
    /// The proxy to connect through. `None` means a direct connection.
    pub proxy: Option<ProxyServer>,
}

/// The hosts of URLs that a rule matches. Names are in lower case. IPv6 addresses have no brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host.
    Any,
    /// The host with exactly this name or address.
    Exact(String),
    /// The subdomains of this domain, without the domain itself.
    Subdomains(String),
    /// This domain and its subdomains.
    Domain(String),
    /// The IP addresses in this network. Host names never match.
    Network(IpNet),
}

/// The ports of URLs that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortPattern {
    /// Every port.
    Any,
    /// This port. A URL without a port has the default port of its scheme: 80 for `http`, 443 for
    /// `https`.
    Is(u16),
    /// This port, if the URL states it explicitly and it is not the default port of the URL's
    /// scheme.
    IsNotDefault(u16),
}

impl ProxyRules {
    /// Creates rules in order of precedence: the first rule that matches a URL decides. If none
    /// matches, the connection is direct.
    pub fn from_rules(rules: impl IntoIterator<Item = ProxyRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// Returns the proxy for a URL. `None` means a direct connection, also for a URL without a
    /// scheme or host.
    pub fn proxy_for(&self, url: &Uri) -> Option<&ProxyServer> {
        if self.0.is_empty() {
            return None;
        }
        let destination = Destination::from_url(url)?;
        self.0.iter().find(|rule| rule.matches(&destination))?.proxy.as_ref()
    }
}

/// Shows the proxies without credentials, for example `http://proxy:3128 for https URLs; 2
/// exceptions`. Shows `none` if there are no proxies.
impl fmt::Display for ProxyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for rule in self.0.iter() {
            if let Some(proxy) = &rule.proxy {
                let all = if separator.is_empty() { "all" } else { "all other" };
                let urls = rule.scheme.as_deref().unwrap_or(all);
                write!(f, "{separator}{} for {urls} URLs", proxy.url())?;
                separator = ", ";
            }
        }
        if separator.is_empty() {
            return f.write_str("none");
        }
        match self.0.iter().filter(|rule| rule.proxy.is_none()).count() {
            0 => Ok(()),
            1 => f.write_str("; 1 exception"),
            exceptions => write!(f, "; {exceptions} exceptions"),
        }
    }
}

/// The parts of a URL that proxy rules are compared with.
struct Destination<'a> {
    scheme: &'a str,
    /// The host in lower case. IPv6 addresses have no brackets.
    host: String,
    port: Option<u16>,
}

impl<'a> Destination<'a> {
    /// Returns the parts of a URL that proxy rules are compared with. `None` if the URL has no
    /// scheme or host.
    fn from_url(url: &'a Uri) -> Option<Self> {
        let host = url.host()?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { scheme: url.scheme_str()?, host: host.to_ascii_lowercase(), port: url.port_u16() })
    }

    /// Returns the default port of the scheme: 80 for `http`, 443 for `https`, `None` for others.
    fn default_port(&self) -> Option<u16> {
        match self.scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        }
    }
}

impl ProxyRule {
    fn matches(&self, destination: &Destination<'_>) -> bool {
        self.scheme.as_deref().is_none_or(|scheme| scheme == destination.scheme)
            && self.host.matches(&destination.host)
            && self.port.matches(destination)
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => host == name,
            Self::Subdomains(domain) => is_below(host, domain),
            Self::Domain(domain) => host == domain || is_below(host, domain),
            Self::Network(network) => {
                host.parse::<std::net::IpAddr>().is_ok_and(|address| network.contains(&address))
            }
        }
    }
}

/// Returns `true` if `host` is a subdomain of `domain`, and not `domain` itself.
fn is_below(host: &str, domain: &str) -> bool {
    let prefix = host.strip_suffix(domain).and_then(|prefix| prefix.strip_suffix('.'));
    prefix.is_some_and(|prefix| !prefix.is_empty())
}

impl PortPattern {
    fn matches(self, destination: &Destination<'_>) -> bool {
        let (port, default) = (destination.port, destination.default_port());
        match self {
            Self::Any => true,
            Self::Is(wanted) => port.or(default) == Some(wanted),
            Self::IsNotDefault(wanted) => port == Some(wanted) && default != Some(wanted),
        }
    }
}
