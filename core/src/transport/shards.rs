//! Which of several connection pools a request goes to.
//!
//! An HTTP client keeps one HTTP/2 connection per host and queues, unseen, what exceeds the peer's limit of streams. So a host that speaks
//! HTTP/2 gets another pool, and with it another connection, before that limit is reached. HTTP/1.1 needs the first one only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::Authority;
use parking_lot::Mutex;

/// Counts the exchanges of each host on each pool.
#[derive(Debug, Default)]
pub(super) struct Shards {
    hosts: Mutex<HashMap<Authority, Arc<Host>>>,
}

#[derive(Debug, Default)]
struct Host {
    http2: AtomicBool,
    in_flight: Mutex<Vec<usize>>,
}

/// One exchange's place; given back on drop.
#[derive(Debug)]
pub(super) struct Place {
    host: Arc<Host>,
    /// The pool to use, counted from 0.
    pub(super) shard: usize,
}

impl Shards {
    /// A place on the first pool that has one free, given the most streams one connection should carry.
    pub(super) fn place(&self, authority: &Authority, streams: usize) -> Place {
        let host = {
            let mut hosts = self.hosts.lock();
            match hosts.get(authority) {
                Some(host) => host.clone(),
                None => hosts.entry(authority.clone()).or_default().clone(),
            }
        };
        let shard = {
            let mut in_flight = host.in_flight.lock();
            let shard = if host.http2.load(Ordering::Relaxed) {
                in_flight.iter().position(|&n| n < streams).unwrap_or(in_flight.len())
            } else {
                0
            };
            if in_flight.len() <= shard {
                in_flight.resize(shard + 1, 0);
            }
            if let Some(n) = in_flight.get_mut(shard) {
                *n += 1;
            }
            shard
        };
        Place { host, shard }
    }
}

impl Place {
    /// Remembers what the host speaks.
    pub(super) fn answered(&self, version: http::Version) {
        self.host.http2.store(version == http::Version::HTTP_2, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(n) = self.host.in_flight.lock().get_mut(self.shard) {
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
        let places: Vec<_> = (0..10).map(|_| shards.place(&host(), 4)).collect();
        assert!(places.iter().all(|place| place.shard == 0));
    }

    #[test]
    fn http2_opens_another_pool_before_the_limit_and_returns_to_the_first() {
        let shards = Shards::default();
        let first = shards.place(&host(), 4);
        first.answered(http::Version::HTTP_2);
        let more: Vec<_> = (0..5).map(|_| shards.place(&host(), 4)).collect();
        assert_eq!(more.iter().map(|place| place.shard).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        drop(first);
        assert_eq!(shards.place(&host(), 4).shard, 0);
    }
}
