//! Tools, and the settings of connections.

use std::time::Duration;

#[cfg(test)]
use super::LIMIT_KIND;
use super::{CAP, LimitConfig, OnFull, QUEUE, REQUESTS, TIME, Table, secs};

builders! {
    /// The settings of connections, for
    /// [`ConfigBuilder::transport`](crate::ConfigBuilder::transport).
    Transport;
}

/// A tool, for [`ConfigBuilder::tool`](crate::ConfigBuilder::tool). A number is a tool with
/// this cap: `.tool("db", 8)`.
#[derive(Clone)]
pub struct Tool {
    pub(crate) keys: Table,
}

impl Tool {
    /// Creates a tool with this cap.
    pub fn new(slots: usize) -> Self {
        Self { keys: Table::default() }.cap(slots)
    }
}

settings!(@keys Tool);

impl From<usize> for Tool {
    fn from(slots: usize) -> Self {
        Self::new(slots)
    }
}

settings! {
    /// A tool: a named resource that is not a model, with a cap of its own.
    pub struct ToolConfig, table TOOL "ToolConfig", builders [Tool];
    fields {
        /// How many slots of the cap are in force.
        limit: LimitConfig = LimitConfig::Fixed;
    }
    keys {
        /// The maximum number of slots.
        cap: usize "slots" = 1, CAP => "required";
        /// The objective for the time of a call. An adaptive limit keeps to it.
        latency: Option<Duration> = None, TIME;
        /// The maximum number of calls in the queue, per tenant.
        queue: usize "calls per tenant" = 10_000, QUEUE;
        /// The maximum time in the queue. Not with `on_full = "refuse"`.
        wait: Option<Duration> = None, TIME;
        /// What happens to a call that finds no free slot.
        on_full: OnFull = OnFull::Wait, ();
        /// Calls per second.
        rps: Option<f64> "calls per second" = None, 0.001..=1e6;
        /// Calls per minute, in place of `rps`.
        rpm: Option<u64> "calls per minute" = None, REQUESTS;
    }
    special {
        /// How many slots of the cap are in force.
        limit: LIMIT_KIND => "fixed; adaptive with a `latency`";
    }
}

impl ToolConfig {
    /// Creates a tool with this cap and the default settings.
    pub fn with_cap(cap: usize) -> Self {
        Self { cap, ..Self::default() }
    }
}

settings! {
    /// The settings of connections, of all targets.
    pub struct TransportConfig, table TRANSPORT "TransportConfig", builders [Transport];
    keys {
        /// The maximum time to open a connection.
        connect: Duration = secs(10), TIME;
        /// Whether proxies are read from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`:
        /// in Python by the rules of httpx or httpx2, in Node by those of undici, otherwise by
        /// those of the Rust crate.
        proxy_from_env: bool = true, ();
        /// The maximum number of idle connections that are kept per host.
        pool_idle: usize "connections per host" = 256, 0..=65_536;
        /// The time for which an idle connection is kept.
        pool_idle_timeout: Duration = secs(90), TIME;
        /// The number of streams on an HTTP/2 connection at which another connection is opened. The
        /// default is below 100, the usual limit of servers.
        http2_streams: usize "streams per connection" = 90, 1..=10_000;
        /// Whether `http://` URLs use HTTP/2 without TLS (h2c with prior knowledge).
        http2_prior_knowledge: bool = false, ();
    }
}
