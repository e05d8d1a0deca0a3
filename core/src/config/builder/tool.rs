//! Tools and connection settings in code.

use std::time::Duration;

use super::{count, or_none, text, time, whole};
use crate::config::OnFull;
use crate::config::parse::tree::{Table, Value};

/// A tool, for [`ConfigBuilder::tool`](super::ConfigBuilder::tool). A bare cap is one as well: `.tool("db", 8)`.
#[derive(Clone)]
pub struct Tool {
    pub(super) keys: Table,
}

impl Tool {
    /// A tool with this cap.
    pub fn new(slots: usize) -> Self {
        Self { keys: Table::default() }.set("cap", whole(slots))
    }

    pub(super) fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `queue`: the most calls that may wait, per tenant.
    pub fn queue(self, calls: usize) -> Self {
        self.set("queue", whole(calls))
    }

    /// `wait`: the longest a call may wait; `None` for no limit.
    pub fn wait(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("wait", time(longest))
    }

    /// `on_full`: queue, or refuse at once.
    pub fn on_full(self, what: OnFull) -> Self {
        self.set("on_full", text(what.as_str()))
    }

    /// `rps`: calls a second; `None` for no such rate. Beside `rpm` it is an error.
    pub fn rps(self, rate: impl Into<Option<f64>>) -> Self {
        self.set("rps", or_none(rate.into().map(Value::Float)))
    }

    /// `rpm`: calls a minute; `None` for no such rate.
    pub fn rpm(self, rate: impl Into<Option<u64>>) -> Self {
        self.set("rpm", or_none(rate.into().map(count)))
    }
}

impl From<usize> for Tool {
    fn from(slots: usize) -> Self {
        Self::new(slots)
    }
}

/// Connection settings, for [`ConfigBuilder::transport`](super::ConfigBuilder::transport).
#[derive(Clone, Default)]
pub struct Transport {
    pub(super) keys: Table,
}

impl Transport {
    /// The default connection settings.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `connect`: the longest a connection may take to open.
    pub fn connect(self, longest: Duration) -> Self {
        self.set("connect", time(longest))
    }

    /// `proxy_from_env`: take proxies from the environment.
    pub fn proxy_from_env(self, yes: bool) -> Self {
        self.set("proxy_from_env", Value::Bool(yes))
    }

    /// `pool_idle`: idle connections kept per host.
    pub fn pool_idle(self, connections: usize) -> Self {
        self.set("pool_idle", whole(connections))
    }

    /// `pool_idle_timeout`: how long an idle connection is kept.
    pub fn pool_idle_timeout(self, longest: Duration) -> Self {
        self.set("pool_idle_timeout", time(longest))
    }

    /// `http2_streams`: open another connection once this many streams share one.
    pub fn http2_streams(self, streams: usize) -> Self {
        self.set("http2_streams", whole(streams))
    }

    /// `http2_prior_knowledge`: HTTP/2 without TLS to `http://` URLs.
    pub fn http2_prior_knowledge(self, yes: bool) -> Self {
        self.set("http2_prior_knowledge", Value::Bool(yes))
    }
}
