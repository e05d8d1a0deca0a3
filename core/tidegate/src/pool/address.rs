//! Rewrites request URLs for replicas: the part of the path below the pool's base URL is placed
//! below the replica's base URL.
//!
//! Base URLs are parsed once, so that each call only compares a few of them and builds one URL. A
//! replica's base URL is parsed and stored when the first call is sent to the replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Uri;
use parking_lot::RwLock;

use crate::config::TargetConfig;
use crate::placement::MAX_REPLICAS;
use tidegate_protocol::base_url::BaseUrl;

/// The parsed base URLs of a pool and of its replicas.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The pool's own base URLs, longest path first. The first one that contains the URL of a
    /// request applies.
    of_pool: Vec<BaseUrl>,
    /// The base URLs of the replicas that calls were sent to, oldest first. At most
    /// [`MAX_REPLICAS`]; one more replaces the oldest.
    of_replicas: RwLock<Vec<(Arc<str>, BaseUrl)>>,
    /// The value that the next call of `next_turn` returns.
    turns: AtomicUsize,
}

impl Addresses {
    /// Parses the base URLs in the configuration of a pool. A pool without URLs gets the base URL
    /// `http://NAME`.
    pub(super) fn new(config: &TargetConfig) -> Self {
        let mut of_pool: Vec<BaseUrl> =
            config.matches.urls.iter().filter_map(|url| BaseUrl::parse(url)).collect();
        if of_pool.is_empty() {
            of_pool.extend(BaseUrl::parse(&format!("http://{}", config.name)));
        }
        of_pool.sort_by_key(|base| std::cmp::Reverse(base.path_len()));
        Self { of_pool, of_replicas: RwLock::default(), turns: AtomicUsize::new(0) }
    }

    /// Returns the URL under which the replica `replica` gets the request to `uri`. Returns `None`
    /// if `replica` is not a URL, or if the path of the request cannot be placed below the base URL
    /// of the replica.
    pub(super) fn at(&self, uri: &Uri, replica: &Arc<str>) -> Option<Uri> {
        let to = self.base(replica)?;
        let there = self.of_pool.iter().find(|base| base.contains(uri)).cloned();
        // A client may use the URL of one replica. Its calls are still spread over the pool.
        let there = there.or_else(|| {
            self.of_replicas.read().iter().map(|(_, base)| base).find(|base| base.contains(uri)).cloned()
        });
        to.rebase(uri, there.as_ref())
    }

    /// Returns a number that is larger by one at each call of this function, for round-robin
    /// selection.
    pub(super) fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the parsed base URL of a replica. Returns `None` if `replica` is not a URL.
    fn base(&self, replica: &Arc<str>) -> Option<BaseUrl> {
        let known = |all: &[(Arc<str>, BaseUrl)]| {
            all.iter().find(|(url, _)| url == replica).map(|(_, base)| base.clone())
        };
        if let Some(base) = known(&self.of_replicas.read()) {
            return Some(base);
        }
        let base = BaseUrl::parse(replica)?;
        let mut all = self.of_replicas.write();
        if known(&all).is_none() {
            // Replicas that are replaced get new addresses, so the list must be bounded.
            if all.len() >= MAX_REPLICAS {
                all.remove(0);
            }
            all.push((replica.clone(), base.clone()));
        }
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(urls: &[&str]) -> TargetConfig {
        let mut config = TargetConfig::new("llama");
        config.matches.urls = urls.iter().map(|url| (*url).to_owned()).collect();
        config
    }

    #[test]
    fn request_is_moved_below_the_replicas_base_url() {
        for (urls, asked, replica, expected) in [
            (
                &[][..],
                "http://llama/v1/chat/completions",
                "http://10.0.0.1:8000",
                "http://10.0.0.1:8000/v1/chat/completions",
            ),
            (&[], "http://LLAMA/v1/models?limit=2", "http://r", "http://r/v1/models?limit=2"),
            (
                &["http://a", "http://a/v1"],
                "http://a/v1/completions",
                "http://r/one",
                "http://r/one/v1/completions",
            ),
            (
                &["http://a", "http://b/llm/v1"],
                "http://b/llm/v1/completions",
                "http://r/v1",
                "http://r/v1/completions",
            ),
            (&["https://a/llm"], "https://a/llm/v1/completions", "http://r:1", "http://r:1/v1/completions"),
            (
                &["https://a/llm"],
                "https://A.:443/llm/v1/completions",
                "http://r:1",
                "http://r:1/v1/completions",
            ),
            (&["http://a:80/llm"], "http://a/llm/v1/completions", "http://r:1", "http://r:1/v1/completions"),
            (&[], "http://r:1/v1/completions", "http://r:1", "http://r:1/v1/completions"),
            (&["http://a"], "http://llama/tokenize", "http://r:1", "http://r:1/tokenize"),
        ] {
            let addresses = Addresses::new(&config(urls));
            let there = addresses.at(&asked.parse().unwrap(), &replica.into());
            assert_eq!(there.unwrap(), *expected, "{urls:?}");
        }
    }

    #[test]
    fn url_of_one_replica_addresses_the_pool() {
        let addresses = Addresses::new(&config(&[]));
        let asked: Uri = "http://r:1/one/v1/completions".parse().unwrap();
        assert_eq!(addresses.at(&asked, &"http://r:1/one".into()).unwrap(), asked);
        assert_eq!(addresses.at(&asked, &"http://r:2/two".into()).unwrap(), "http://r:2/two/v1/completions");
    }

    #[test]
    fn parsed_base_urls_are_bounded() {
        let addresses = Addresses::new(&config(&[]));
        for n in 0..2 * MAX_REPLICAS {
            let replica: Arc<str> = format!("http://r{n}").into();
            assert!(addresses.at(&"http://llama/v1/x".parse().unwrap(), &replica).is_some());
        }
        assert_eq!(addresses.of_replicas.read().len(), MAX_REPLICAS);
        assert!(addresses.at(&"http://llama/v1/x".parse().unwrap(), &"nonsense".into()).is_none());
    }
}
