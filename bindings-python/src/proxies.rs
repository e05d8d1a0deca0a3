//! Converts the mounts that Python reads from the environment into proxy rules.

use pyo3::prelude::*;
use tidegate::Error;
use tidegate::config::TransportConfig;
use tidegate::transport::Http;
use tidegate::transport::proxy::{HostPattern, PortPattern, ProxyRule, ProxyRules, ProxyServer};

use crate::errors::raised;

/// The proxy rules of one client.
#[pyclass(frozen, module = "tidegate._native", name = "ProxyRules")]
pub(crate) struct ClientProxies(pub(crate) ProxyRules);

/// A mount of httpx: scheme, host, port and network of its pattern, and the URL of its proxy.
type Mount = (String, String, Option<u16>, Option<String>, Option<String>);

/// Returns the built-in transport of this configuration, with the proxies of `rules`.
pub(crate) fn transport(config: TransportConfig, rules: Option<&ProxyRules>) -> Result<Http, Error> {
    Http::with_proxies(config, rules.cloned().unwrap_or_default())
}

/// Returns the rules for requests that belong to no client: those of the preferred family, or the
/// core's own if none is installed. `None` if the configuration takes no proxies from the
/// environment.
pub(crate) fn of_environment(py: Python<'_>, config: &TransportConfig) -> PyResult<Option<ProxyRules>> {
    if !config.proxy_from_env {
        return Ok(None);
    }
    let mounts = py.import("tidegate._transport.family")?.getattr("environment_mounts")?.call0()?;
    if mounts.is_none() {
        return ProxyRules::from_process_env().map(Some).map_err(|e| raised(py, &e));
    }
    of_mounts(mounts.extract()?).map(Some).map_err(|e| raised(py, &e))
}

/// Returns the rules of a client with these mounts, which are in httpx's order of precedence.
pub(crate) fn of_mounts(mounts: Vec<Mount>) -> Result<ProxyRules, Error> {
    let rules: Result<Vec<_>, Error> = mounts.into_iter().map(rule).collect();
    rules.map(ProxyRules::from_rules)
}

/// Converts one mount into a rule.
///
/// # Errors
///
/// `Config` if the proxy or the network cannot be parsed.
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

/// Reads a host as httpx's `URLPattern` does.
fn host_pattern(host: &str) -> HostPattern {
    match (host.strip_prefix("*."), host.strip_prefix('*')) {
        _ if host.is_empty() => HostPattern::Any,
        (Some(domain), _) => HostPattern::Subdomains(domain.to_owned()),
        (None, Some(domain)) => HostPattern::Domain(domain.to_owned()),
        (None, None) => HostPattern::Exact(host.to_owned()),
    }
}
