//! Replica discovery by DNS: each address of a host name is one replica.

use crate::config::ReplicaConfig;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::time::timeout;

/// Maximum duration of one lookup: 5 s.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The future of a DNS lookup. Resolves with the addresses of a host.
pub(super) type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A resolver of host names.
pub(super) trait Resolve: Send + Sync {
    /// Starts to look up all addresses of `host`. Their order is arbitrary.
    fn addresses(&self, host: &str) -> Addresses;
}

/// The resolver of the operating system, which also reads `/etc/hosts` and applies search domains.
pub(super) struct System;

impl Resolve for System {
    fn addresses(&self, host: &str) -> Addresses {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A replica source: a host name and port. Each address of the host is one replica.
#[derive(Clone)]
pub(super) struct Dns {
    host: Arc<str>,
    port: u16,
    resolve: Arc<dyn Resolve>,
}

impl Dns {
    /// Creates the source from the host and port of `url`, which the configuration has validated.
    /// The default port is 80.
    pub(super) fn new(url: &str, resolve: Arc<dyn Resolve>) -> Self {
        let uri: Uri = url.parse().unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        Self { host: host.into(), port: uri.port_u16().unwrap_or(80), resolve }
    }

    /// Looks up the current replicas, and returns them sorted by address. If the host has IPv4
    /// addresses, its IPv6 addresses are ignored.
    ///
    /// # Errors
    /// The reason why the lookup failed: an error of the resolver, a timeout, or a host without
    /// addresses.
    pub(super) async fn look_up(&self) -> Result<Vec<ReplicaConfig>, String> {
        let host = &self.host;
        let mut found = match timeout(LOOKUP_TIMEOUT, self.resolve.addresses(host)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(format!("the lookup of {host} failed: {error}")),
            Err(_) => return Err(format!("the lookup of {host} timed out")),
        };
        // A host with both address families has each replica at two addresses, which would count
        // twice.
        if found.iter().any(IpAddr::is_ipv4) {
            found.retain(IpAddr::is_ipv4);
        }
        // The order of a DNS answer is arbitrary.
        found.sort();
        found.dedup();
        if found.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let member = |ip: IpAddr| ReplicaConfig::new(&format!("http://{}", SocketAddr::new(ip, self.port)));
        Ok(found.into_iter().map(member).collect())
    }
}
