//! The keys of tools, and of the connections to targets.

use std::time::Duration;

#[cfg(test)]
use super::LIMIT_KIND;
use super::{CAP_RANGE, LimitConfig, OnFull, QUEUE_RANGE, REQUEST_RANGE, TIME_RANGE, Table, secs};

builders! {
    /// Builds the settings of connections, for
    /// [`ConfigBuilder::transport`](crate::ConfigBuilder::transport).
    Transport;
}

/// Builds a tool, for [`ConfigBuilder::tool`](crate::ConfigBuilder::tool). A number converts to a
/// tool with this cap: `.tool("db", 8)`.
#[derive(Clone)]
pub struct Tool {
    pub(crate) keys: Table,
}

impl Tool {
    /// Creates a tool with this cap, the maximum number of slots (1 to 65,536).
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
        /// How many of the slots that `cap` allows are in force.
        limit: LimitConfig = LimitConfig::Fixed;
    }
    keys {
        /// The maximum number of slots.
        cap: usize "slots" = 1, CAP_RANGE => "required";
        /// The objective for the duration of a call. With it, the limit is adaptive by default.
        /// Without it, there is no objective.
        latency: Option<Duration> = None, TIME_RANGE;
        /// The maximum number of queued calls per tenant. Further calls are rejected.
        queue: usize "calls per tenant" = 10_000, QUEUE_RANGE;
        /// The maximum time of a call in the queue. Cannot be combined with `on_full = "refuse"`.
        /// Without it, the deadline of the call's context limits the time, or 24 h without one.
        wait: Option<Duration> = None, TIME_RANGE;
        /// What happens to a call that finds no free slot.
        on_full: OnFull = OnFull::Wait, ();
        /// The maximum number of calls per second. Without it and `rpm`, the rate is not limited.
        rps: Option<f64> "calls per second" = None, 0.001..=1e6;
        /// The maximum number of calls per minute. Cannot be combined with `rps`. Without both, the
        /// rate is not limited.
        rpm: Option<u64> "calls per minute" = None, REQUEST_RANGE;
    }
    special {
        /// How many of the slots that `cap` allows are in force.
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
    /// The settings of the connections to all targets.
    pub struct TransportConfig, table TRANSPORT "TransportConfig", builders [Transport];
    keys {
        /// The maximum time to open a connection.
        connect: Duration = secs(10), TIME_RANGE;
        /// Whether proxies are read from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`:
        /// in Python by the rules of httpx or httpx2, in Node by those of undici, otherwise by
        /// those of the Rust crate.
        proxy_from_env: bool = true, ();
        /// The maximum number of idle connections that are kept per host.
        pool_idle: usize "connections per host" = 256, 0..=65_536;
        /// The time after which an idle connection is closed.
        pool_idle_timeout: Duration = secs(90), TIME_RANGE;
        /// The maximum number of concurrent streams on an HTTP/2 connection, if the server does not
        /// allow fewer. For more, another connection is opened. The default is below 100, the usual
        /// limit of servers.
        http2_streams: usize "streams per connection" = 90, 1..=10_000;
        /// Whether `http://` URLs use HTTP/2 without TLS (h2c with prior knowledge). Requests that
        /// an HTTP proxy forwards use HTTP/1.1.
        http2_prior_knowledge: bool = false, ();
    }
}
