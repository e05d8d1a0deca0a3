//! A target that is a pool of replicas.
//!
//! Plain values, in range, as those of [`super::model`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most replicas that a pool can have.
pub const MAX_REPLICAS: usize = 128;

/// A pool of replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Where its replicas are named.
    pub source: ReplicaSource,
    /// The most slots of each replica (1 to 65,536): the limit itself where that is fixed, its ceiling where it adapts. Default 256.
    pub cap: usize,
    /// The path that says whether a replica is well. Default `/health`; `None`: what calls meet there is all that is known.
    pub health: Option<Arc<str>>,
    /// How often a replica is asked how it stands (`/metrics`), while calls go to it (50 ms to 1 min). Default 1 s; `None`: never.
    pub poll: Option<Duration>,
    /// After how long without a good answer a replica that does not answer counts as down, and calls that it has not begun to answer go elsewhere (100 ms to
    /// 5 min). Until then it only gets no new ones. Default 2 s.
    pub down_after: Duration,
    /// For how long a stream may be silent whose replica is down before it is ended as truncated (100 ms to 1 h). Default 10 s.
    pub cut_after: Duration,
    /// The time in which a replica that comes back, or joins others that run, is brought to its whole share (up to 1 h). Default 10 s; zero: at once.
    pub slow_start: Duration,
    /// The request header that names a session: calls of one go to one replica, within bounds. Default `x-session-id`; `None`: by their prompts alone.
    pub session: Option<http::HeaderName>,
    /// Whether calls with the same beginning go to one replica, within bounds. Default: yes.
    pub affinity: bool,
    /// After how long without a first token a call is tried at another replica as well (50 ms to 5 min), inside the retry budget; the one that answers first counts, the
    /// other is cancelled. Only streams are, in mode `enforce`, and never those of a client that keeps its own transport. Default: never.
    pub hedge: Option<Duration>,
    /// The environment variable with the key that `/v1/models` is asked with, where replicas want one. Calls bring their own. Default: none; what they serve is
    /// not known then.
    pub key_env: Option<Arc<str>>,
}

/// A replica as its pool's configuration, the file or DNS names it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// Its base URL, without a final slash and without `/v1`: what it is known by, and called at.
    pub url: Arc<str>,
    /// Its share of the calls, beside the others' (0.01 to 100).
    pub weight: f64,
    /// The models that it serves, where somebody said so; else it is asked.
    pub models: Option<Arc<[Arc<str>]>>,
    /// Tokens that its memory for keys and values holds, where somebody said so; else it is asked.
    pub kv_tokens: Option<u64>,
}

impl ReplicaConfig {
    /// A replica at this base URL, of weight 1, of which all else is asked.
    pub fn new(url: &str) -> Self {
        Self { url: url.trim_end_matches('/').into(), weight: 1.0, models: None, kv_tokens: None }
    }
}

/// Where a pool's replicas are named.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaSource {
    /// In the configuration.
    Listed(Vec<ReplicaConfig>),
    /// By DNS: each address of the host is a replica.
    Dns {
        /// Scheme, host and port.
        url: Arc<str>,
        /// How often it is looked up (1 s to 1 h). Default 5 s.
        every: Duration,
    },
    /// In a file, which is read again when it changes.
    File {
        /// The file: TOML or JSON, with `replicas` as in the configuration; or one URL a line.
        path: PathBuf,
        /// How often it is looked at (100 ms to 1 h). Default 1 s.
        every: Duration,
    },
    /// By `Gate::set_replicas` alone.
    Dynamic,
}

impl PoolConfig {
    /// A pool of these replicas, and every default.
    pub fn from_replicas(members: Vec<ReplicaConfig>) -> Self {
        Self { source: ReplicaSource::Listed(members), ..Self::default() }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            source: ReplicaSource::Dynamic,
            cap: 256,
            health: Some("/health".into()),
            poll: Some(Duration::from_secs(1)),
            down_after: Duration::from_secs(2),
            cut_after: Duration::from_secs(10),
            slow_start: Duration::from_secs(10),
            session: Some(http::HeaderName::from_static("x-session-id")),
            affinity: true,
            hedge: None,
            key_env: None,
        }
    }
}
