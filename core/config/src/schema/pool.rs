//! The keys of `pool`, for targets that consist of replicas.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::{CAP_RANGE, HEADER, TOKEN_RANGE, Table, Text, URL_PATH, millis, secs};
#[cfg(test)]
use super::{Kind, Setting};

/// The maximum number of replicas of a pool.
pub const MAX_REPLICAS: usize = 128;

/// The default of `dns_every`, the time between two DNS lookups of the host of a pool.
pub(crate) const DNS_EVERY: Duration = secs(5);
/// The valid range of `dns_every`.
pub(crate) const DNS_EVERY_RANGE: RangeInclusive<Duration> = secs(1)..=secs(3600);
/// The default of `file_every`, the time between two reads of the file of a pool.
pub(crate) const FILE_EVERY: Duration = secs(1);
/// The valid range of `file_every`.
pub(crate) const FILE_EVERY_RANGE: RangeInclusive<Duration> = millis(100)..=secs(3600);

builders! {
    /// Builds a pool of replicas, for [`Target::pool`](super::Target::pool).
    ///
    /// ```
    /// use tidegate_config::{Config, Pool, Replica, Target};
    ///
    /// let pool = Pool::new(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]).cap(128);
    /// let third = Replica::new("http://10.0.0.3:8000").weight(2.0);
    /// let config = Config::builder().target(Target::new("llama").pool(pool.replica(third))).build()?;
    /// assert_eq!(config.targets[0].matches.urls[0], "http://llama");
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    Pool;
}

settings! {
    /// A pool of replicas of one target. Clients call the pool at `http://NAME/v1`, where NAME is
    /// the name of the target. One of `replicas`, `dns` and `file` lists the replicas; without any
    /// of them the program sets them (`set_replicas`). A pool has at most 128 replicas. If a file
    /// or DNS lists more, the first 128 are used.
    pub struct PoolConfig, table POOL "PoolConfig", builders [Pool];
    fields {
        /// Where the list of replicas comes from.
        source: ReplicaSource = ReplicaSource::Dynamic;
        /// The environment variable with the API key for requests to `/v1/models` of the replicas.
        /// `None`: these requests have no key.
        key_env: Option<Text> = None;
    }
    keys {
        /// The maximum number of slots of each replica. It is the limit itself if the limit is
        /// fixed, and its upper bound if the limit is adaptive.
        cap: usize "slots per replica" = 256, CAP_RANGE;
        /// The path that is requested to check the health of a replica. A replica is healthy if the
        /// response is not a 5xx. Switched off, only calls show whether a replica is healthy.
        health: Option<Text> = Some("/health".into()), URL_PATH => "not requested";
        /// The time between two requests for a replica's metrics (`/metrics`), while calls are sent
        /// to the replica.
        poll: Option<Duration> = Some(secs(1)), millis(50)..=secs(60) => "not requested";
        /// The time without a response after which a replica is down. Its calls that have not
        /// produced a token are then sent to other replicas. Before that time, only new calls avoid
        /// a replica that does not respond.
        down_after: Duration = secs(2), millis(100)..=secs(300);
        /// The time without a chunk after which a stream from a replica that is down ends as
        /// truncated.
        cut_after: Duration = secs(10), millis(100)..=secs(3600);
        /// The time over which the share of the calls of a replica that joins or recovers increases
        /// to its full share.
        slow_start: Option<Duration> = Some(secs(10)), millis(1)..=secs(3600) => "full share at once";
        /// The request header with the id of a session. The calls of a session are sent to the same
        /// replica, unless its load is too high. Switched off, calls have no session.
        session: Option<HeaderName> = Some(HeaderName::from_static("x-session-id")), HEADER;
        /// Whether calls whose prompts have a common start are sent to the same replica, unless its
        /// load is too high.
        affinity: bool = true, ();
        /// The time without a first token after which a call is also sent to another replica. The
        /// first response is used, and the other attempt is cancelled. The second attempt is
        /// charged to the retry budget. Only for streams, in mode `enforce`, and never for clients
        /// that keep their own transport. Without it, no call is sent twice at the same time.
        hedge: Option<Duration> = None, millis(50)..=secs(300);
    }
    special {
        /// The list of replicas, each a base URL with or without `/v1`, or a table. 1 to 128
        /// replicas.
        replicas: Kind::Special {
            reference: "a list of URLs or tables",
            typescript: "(string | ReplicaConfig)[]",
            python: "list[str | ReplicaConfig]",
        } => "none";
        /// A URL with scheme `http`, host and port, such as `"http://vllm.internal:8000"`. Each IP
        /// address of the host is a replica.
        dns: Kind::Text("scheme, host and port") => "none";
        /// The time between two lookups of `dns`, while calls are made. If a lookup fails, the
        /// replicas stay as they are.
        dns_every: <Duration as Setting>::kind(&DNS_EVERY_RANGE) => "5s";
        /// The path of a file that lists the replicas: TOML or JSON with `replicas`, a JSON list,
        /// or one URL per line, beside blank lines and `#` comments. It must be a regular file of
        /// at most 1 MiB. New content is used when two reads 50 ms apart agree. If the file cannot
        /// be read, the replicas stay as they are.
        file: Kind::Text("a path") => "none";
        /// The time between two reads of `file`, while calls are made.
        file_every: <Duration as Setting>::kind(&FILE_EVERY_RANGE) => "1s";
        /// The environment variable with the API key for requests to `/v1/models` of the replicas.
        /// Calls are sent with the key of the caller.
        key_env: Kind::Text("the name of an environment variable") => "none";
    }
}

settings! {
    /// A replica of a pool.
    pub struct ReplicaConfig, table REPLICA "ReplicaConfig", builders [Replica];
    fields {
        /// The base URL, without a final slash and without `/v1`. It identifies the replica.
        url: Arc<str> = "".into();
        /// The models that the replica serves. `None`: requested from the replica.
        models: Option<Arc<[Arc<str>]>> = None;
    }
    keys {
        /// The replica's share of the calls, relative to the weights of the others.
        weight: f64 = 1.0, 0.01..=100.0;
        /// The number of tokens that the replica's KV memory holds.
        kv_tokens: Option<u64> = None, TOKEN_RANGE => "the target's, otherwise requested from the replica";
    }
    special {
        /// The base URL of the replica, with or without `/v1`.
        url: Kind::Text("an http or https URL") => "required";
        /// The models that the replica serves, by their full names.
        models: Kind::TextOrList("a name or a list of names, of 1 to 256 bytes each") => "requested from the replica (`/v1/models`)";
    }
}

/// Builds a replica of a [`Pool`]. A base URL converts to a replica with the default settings.
#[derive(Clone)]
pub struct Replica {
    pub(crate) keys: Table,
}

settings!(@keys Replica);

impl ReplicaConfig {
    /// Creates a replica at this base URL, with the default settings. Removes slashes and `/v1` at
    /// the end of the URL.
    pub fn new(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        Self { url: url.strip_suffix("/v1").unwrap_or(url).into(), ..Self::default() }
    }
}

/// Where the list of a pool's replicas comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaSource {
    /// The configuration lists the replicas.
    Listed(Vec<ReplicaConfig>),
    /// DNS: each IP address of a host is a replica.
    Dns {
        /// Scheme, host and port.
        url: Arc<str>,
        /// The time between two lookups (1 s to 1 h).
        every: Duration,
    },
    /// A file, which is read periodically.
    File {
        /// The path of the file: TOML or JSON with `replicas` as in the configuration, or one URL
        /// per line.
        path: PathBuf,
        /// The time between two reads (100 ms to 1 h).
        every: Duration,
    },
    /// The program sets the replicas (`Gate::set_replicas`).
    Dynamic,
}

impl PoolConfig {
    /// Creates a pool of these replicas with the default settings.
    pub fn from_replicas(members: Vec<ReplicaConfig>) -> Self {
        Self { source: ReplicaSource::Listed(members), ..Self::default() }
    }
}
