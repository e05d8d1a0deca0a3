//! Pools in code.

use std::time::Duration;

use super::{Target, count, or_none, text, time, whole};
use crate::config::parse::tree::{Node, Table, Value};
use crate::config::{ConfigError, ReplicaConfig, parse};

/// The replicas of a target, for [`Target::pool`]. Defaults and ranges: the [table](crate::config#pools).
///
/// ```
/// use tidegate::config::{Config, Pool, Replica, Target};
///
/// let pool = Pool::new(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]).cap(128);
/// let more = Replica::new("http://10.0.0.3:8000").weight(2.0);
/// let config = Config::builder().target(Target::new("llama").pool(pool.replica(more))).build()?;
/// assert_eq!(config.targets[0].matches.urls[0], "http://llama");
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Pool {
    keys: Table,
}

/// A replica of a [`Pool`]. A bare base URL is one as well.
#[derive(Clone)]
pub struct Replica {
    keys: Table,
}

impl Pool {
    /// A pool of these replicas.
    pub fn new<R: Into<Replica>>(replicas: impl IntoIterator<Item = R>) -> Self {
        replicas.into_iter().fold(Self::default(), Self::replica)
    }

    /// A pool of the addresses of this host: scheme `http`, host and port.
    pub fn from_dns(url: impl Into<String>) -> Self {
        Self::default().set("dns", text(url))
    }

    /// A pool of the replicas that this file names.
    pub fn from_file(path: impl Into<String>) -> Self {
        Self::default().set("file", text(path))
    }

    /// A pool whose replicas are told of by `Gate::set_replicas` alone.
    pub fn dynamic() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `replicas`: one more.
    pub fn replica(mut self, replica: impl Into<Replica>) -> Self {
        self.keys.append("replicas", Value::Table(replica.into().keys));
        self
    }

    /// `dns_every`: how often the name is looked up.
    pub fn dns_every(self, pace: Duration) -> Self {
        self.set("dns_every", time(pace))
    }

    /// `file_every`: how often the file is looked at.
    pub fn file_every(self, pace: Duration) -> Self {
        self.set("file_every", time(pace))
    }

    /// `cap`: the most slots of each replica. Without an objective it is their number as well.
    pub fn cap(self, slots: usize) -> Self {
        self.set("cap", whole(slots))
    }

    /// `health`: the path that says whether a replica is well; `None`: what calls meet there is all that is known.
    pub fn health<'a>(self, path: impl Into<Option<&'a str>>) -> Self {
        self.set("health", or_none(path.into().map(text)))
    }

    /// `poll`: how often a replica is asked how it stands; `None` for never.
    pub fn poll(self, pace: impl Into<Option<Duration>>) -> Self {
        self.set("poll", time(pace))
    }

    /// `down_after`: after how long without a good answer a replica that does not answer counts as down.
    pub fn down_after(self, silence: Duration) -> Self {
        self.set("down_after", time(silence))
    }

    /// `cut_after`: for how long a stream of a replica that is down may be silent.
    pub fn cut_after(self, silence: Duration) -> Self {
        self.set("cut_after", time(silence))
    }

    /// `slow_start`: the time in which a replica is brought to its whole share; `None` for at once.
    pub fn slow_start(self, time_taken: impl Into<Option<Duration>>) -> Self {
        self.set("slow_start", time(time_taken))
    }

    /// `session`: the request header that names a session; `None` for none.
    pub fn session<'a>(self, header: impl Into<Option<&'a str>>) -> Self {
        self.set("session", or_none(header.into().map(text)))
    }

    /// `affinity`: whether calls with the same beginning go to one replica.
    pub fn affinity(self, yes: bool) -> Self {
        self.set("affinity", Value::Bool(yes))
    }

    /// `hedge`: after how long without a first token a call is tried at another replica as well; `None` for never. Only streams are, in mode `enforce`, and never those of a
    /// client that keeps its own transport.
    pub fn hedge(self, after: impl Into<Option<Duration>>) -> Self {
        self.set("hedge", time(after))
    }

    /// `key_env`: the environment variable with the key that `/v1/models` is asked with.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }
}

impl Replica {
    /// A replica at this base URL, with `/v1` or without.
    pub fn new(url: impl Into<String>) -> Self {
        Self { keys: Table::default() }.set("url", text(url))
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `weight`: its share of the calls, beside the others'.
    pub fn weight(self, weight: f64) -> Self {
        self.set("weight", Value::Float(weight))
    }

    /// `models`: a model that it serves; one more with each call. Without any it is asked.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.keys.append("models", text(name));
        self
    }

    /// `kv_tokens`: tokens that its memory for keys and values holds. Without it, it is asked.
    pub fn kv_tokens(self, tokens: u64) -> Self {
        self.set("kv_tokens", count(tokens))
    }

    /// Reads replicas as a file's would be.
    pub fn members(replicas: impl IntoIterator<Item = Self>) -> Result<Vec<ReplicaConfig>, ConfigError> {
        let node = |replica: Self| Node { value: Value::Table(replica.keys), line: None };
        let list = Value::List(replicas.into_iter().map(node).collect());
        parse::told(&Node { value: list, line: None })
    }
}

impl<U: Into<String>> From<U> for Replica {
    fn from(url: U) -> Self {
        Self::new(url)
    }
}

impl Target {
    /// `pool`: it is a pool of replicas.
    pub fn pool(self, pool: Pool) -> Self {
        self.set("pool", Value::Table(pool.keys))
    }
}
