//! Replicas by DNS: each address of a host is one.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::time::timeout;

use crate::placement::Member;

/// Longer than this nobody waits for an answer: another is asked for then.
const LONGEST: Duration = Duration::from_secs(5);

/// Addresses, as they come.
pub(super) type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// What finds the addresses of a host.
pub(super) trait Resolve: Send + Sync {
    /// All of them, in any order.
    fn addresses(&self, host: &str) -> Addresses;
}

/// The system's own: what every other program on the machine would be told, `/etc/hosts` and search domains included.
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

/// A host and a port.
#[derive(Clone)]
pub(super) struct Dns {
    host: Arc<str>,
    port: u16,
    resolve: Arc<dyn Resolve>,
}

impl Dns {
    /// `url` was checked when the configuration was read.
    pub(super) fn new(url: &str, resolve: Arc<dyn Resolve>) -> Self {
        let uri: Uri = url.parse().unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        Self { host: host.into(), port: uri.port_u16().unwrap_or(80), resolve }
    }

    /// # Errors
    /// Why its replicas are not known.
    pub(super) async fn look(&self) -> Result<Vec<Member>, String> {
        let host = &self.host;
        let mut found = match timeout(LONGEST, self.resolve.addresses(host)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(format!("the lookup of {host} failed: {error}")),
            Err(_) => return Err(format!("the lookup of {host} took too long")),
        };
        // A host of both families has one replica at two addresses: it would count twice.
        if found.iter().any(IpAddr::is_ipv4) {
            found.retain(IpAddr::is_ipv4);
        }
        // Each answer has an order of its own, which means nothing.
        found.sort();
        found.dedup();
        if found.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let member = |ip: IpAddr| Member::new(&format!("http://{}", SocketAddr::new(ip, self.port)));
        Ok(found.into_iter().map(member).collect())
    }
}
