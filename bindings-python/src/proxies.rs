//! Converts the proxies that Python reads from the environment into the core's proxy rules.

use pyo3::prelude::*;
use tidegate::Error;
use tidegate::config::TransportConfig;
use tidegate::transport::Http;
use tidegate::transport::proxy::{HostPattern, PortPattern, ProxyRule, ProxyRules, ProxyServer};

use crate::errors::to_py_err;

/// The proxy rules of one httpx client, which replace those of the gate.
#[pyclass(frozen, module = "tidegate._native", name = "ProxyRules")]
pub(crate) struct ClientProxies(pub(crate) ProxyRules);

/// One entry of an httpx client's mounts: scheme, host, port and network of its URL pattern, and
/// the URL of the proxy. An empty scheme or host, and a port or network of `None`, matches
/// everything. A proxy of `None` is a direct connection.
type Mount = (String, String, Option<u16>, Option<String>, Option<String>);

/// Creates the gate's own HTTP transport. `rules` selects the proxies; `None` uses no proxies.
pub(crate) fn transport(config: TransportConfig, rules: Option<&ProxyRules>) -> Result<Http, Error> {
    Http::with_proxies(config, rules.cloned().unwrap_or_default())
}

/// Returns the proxy rules for requests that belong to no httpx client. The environment is read as
/// the installed httpx package does or, without one, by the core. `None` if the configuration has
/// `proxy_from_env = false`.
///
/// # Errors
///
/// `tidegate.ConfigError` if a proxy variable is invalid.
pub(crate) fn of_environment(py: Python<'_>, config: &TransportConfig) -> PyResult<Option<ProxyRules>> {
    if !config.proxy_from_env {
        return Ok(None);
    }
    let mounts = py.import("tidegate._transport.httpx_family")?.getattr("environment_mounts")?.call0()?;
    if mounts.is_none() {
        return ProxyRules::from_process_env().map(Some).map_err(|e| to_py_err(py, &e));
    }
    of_mounts(mounts.extract()?).map(Some).map_err(|e| to_py_err(py, &e))
}

/// Returns the proxy rules for a client with these mounts, which are in httpx's order of
/// precedence.
///
/// # Errors
///
/// If a proxy or a network cannot be parsed.
pub(crate) fn of_mounts(mounts: Vec<Mount>) -> Result<ProxyRules, Error> {
    let rules: Result<Vec<_>, Error> = mounts.into_iter().map(rule).collect();
    rules.map(ProxyRules::from_rules)
}

/// Converts one mount into a proxy rule.
///
/// # Errors
///
/// A configuration error if the proxy or the network cannot be parsed.
fn rule((scheme, host, port, network, proxy): Mount) -> Result<ProxyRule, Error> {
    let proxy = proxy
        .map(|url| {
            let prefix = if scheme.is_empty() { "ALL" } else { &scheme.to_ascii_uppercase() };
            ProxyServer::from_httpx(&format!("{prefix}_PROXY"), &url)
        })
        .transpose()?;
    let host = match network {
        Some(network) => HostPattern::Network(network.parse().map_err(|_| {
            Error::config(
                "NO_PROXY has a network that cannot be read: correct it, or set \
                     transport.proxy_from_env = false",
            )
        })?),
        None => host_pattern(&host),
    };
    Ok(ProxyRule {
        scheme: (!scheme.is_empty()).then_some(scheme),
        host,
        port: port.map_or(PortPattern::Any, PortPattern::IsNotDefault),
        proxy,
    })
}

/// Returns the host pattern of a mount. `host` is in the syntax of httpx's `URLPattern`; an empty
/// text matches every host.
fn host_pattern(host: &str) -> HostPattern {
    match (host.strip_prefix("*."), host.strip_prefix('*')) {
        _ if host.is_empty() => HostPattern::Any,
        (Some(domain), _) => HostPattern::Subdomains(domain.to_owned()),
        (None, Some(domain)) => HostPattern::Domain(domain.to_owned()),
        (None, None) => HostPattern::Exact(host.to_owned()),
    }
}
