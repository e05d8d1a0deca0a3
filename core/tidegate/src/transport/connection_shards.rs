//! Distributes the requests to a host over several connection pools (shards), so that HTTP/2
//! requests never wait for a free stream of a connection.
//!
//! An HTTP client keeps one HTTP/2 connection per host, and queues requests beyond the peer's
//! stream limit internally. Therefore a host that speaks HTTP/2 gets another pool, and thus another
//! connection, before that limit is reached. Hosts that speak HTTP/1.1 use the first pool only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::Authority;
use parking_lot::Mutex;

/// Counts the exchanges in flight for each host and shard.
#[derive(Debug, Default)]
pub(super) struct Shards {
    hosts: Mutex<HashMap<Authority, Arc<Host>>>,
}

/// The exchanges in flight of one host by shard, and whether the host speaks HTTP/2.
#[derive(Debug, Default)]
struct Host {
    http2: AtomicBool,
    in_flight: Mutex<Vec<usize>>,
}

/// The assignment of one exchange to a shard. The exchange counts as in flight until this guard is
/// dropped.
#[derive(Debug)]
pub(super) struct ShardGuard {
    host: Arc<Host>,
    /// The index of the shard, and thus of the connection pool to use, from 0.
    pub(super) index: usize,
}

impl Shards {
    /// Assigns an exchange with the host `authority` to the first shard of this host with fewer
    /// than `streams` exchanges in flight. Hosts that are not known to speak HTTP/2 always get
    /// shard 0.
    pub(super) fn assign(&self, authority: &Authority, streams: usize) -> ShardGuard {
        let host = {
            let mut hosts = self.hosts.lock();
            match hosts.get(authority) {
                Some(host) => host.clone(),
                None => hosts.entry(authority.clone()).or_default().clone(),
            }
        };
        let mut in_flight = host.in_flight.lock();
        let free = in_flight.iter().position(|&n| n < streams).unwrap_or(in_flight.len());
        let index = if host.http2.load(Ordering::Relaxed) { free } else { 0 };
        match in_flight.get_mut(index) {
            Some(n) => *n += 1,
            None => in_flight.push(1),
        }
        drop(in_flight);
        ShardGuard { host, index }
    }
}

impl ShardGuard {
    /// Records whether the host speaks HTTP/2, by the version of a response. Affects the shards of
    /// later exchanges.
    pub(super) fn on_response(&self, version: http::Version) {
        self.host.http2.store(version == http::Version::HTTP_2, Ordering::Relaxed);
    }
}

impl Drop for ShardGuard {
    fn drop(&mut self) {
        if let Some(n) = self.host.in_flight.lock().get_mut(self.index) {
            *n -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Authority {
        Authority::from_static("api.example.com")
    }

    #[test]
    fn http1_stays_on_the_first_pool() {
        let shards = Shards::default();
        let guards: Vec<_> = (0..10).map(|_| shards.assign(&host(), 4)).collect();
        assert!(guards.iter().all(|guard| guard.index == 0));
    }

    #[test]
    fn http2_opens_another_pool_before_the_limit_and_returns_to_the_first() {
        let shards = Shards::default();
        let first = shards.assign(&host(), 4);
        first.on_response(http::Version::HTTP_2);
        let more: Vec<_> = (0..5).map(|_| shards.assign(&host(), 4)).collect();
        assert_eq!(more.iter().map(|guard| guard.index).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        drop(first);
        assert_eq!(shards.assign(&host(), 4).index, 0);
    }
}
