//! The open connections by route: idle HTTP/1.1 connections, and HTTP/2 connections.
//!
//! A server that may speak HTTP/2 is connected to once before others wait for it, because one
//! connection may carry them all. If that fails, each connects on its own, so that no call waits
//! for more than one other attempt. HTTP/2 gets another connection before the limit of streams is
//! reached, which is the server's if that is lower than the configured one: a call that waits for a
//! stream inside a connection would wait where the gate does not see it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{self, Handle};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connector::Connector;
use super::route::Route;
use super::{http1, http2};
use crate::config::TransportConfig;
use crate::error::Error;

/// The connections of a transport.
pub(super) struct ConnectionPool {
    connector: Connector,
    routes: RwLock<HashMap<RuntimeId, HashMap<Route, Arc<RouteConnections>>>>,
    max_idle: usize,
    idle_timeout: Duration,
    max_streams: usize,
    /// The task that closes connections that were idle for too long. `None` if none is needed.
    reaper: Mutex<Option<JoinHandle<()>>>,
}

/// A runtime, or `None` outside of one. A connection is used only on the runtime that opened it,
/// because only the I/O driver of that runtime reports the events of its socket.
type RuntimeId = Option<runtime::Id>;

/// The connections of a route on one runtime.
#[derive(Default)]
pub(super) struct RouteConnections {
    /// HTTP/1.1 connections with the time since when they are idle, longest first.
    idle: Mutex<Vec<(Instant, http1::Connection)>>,
    /// HTTP/2 connections with the time of the last exchange's begin.
    multiplexed: Mutex<Vec<(Instant, http2::Connection)>>,
    /// The number of streams that the server allows on an HTTP/2 connection, as far as its settings
    /// were read. 0 if it is not known.
    allowed_streams: AtomicUsize,
    /// Whether the server has chosen HTTP/1.1.
    speaks_http1: AtomicBool,
    /// Held while the first connection is opened to a server that may speak HTTP/2.
    opening: tokio::sync::Mutex<()>,
    /// The number of connections that could not be opened.
    failures: AtomicU64,
}

/// A connection for one exchange.
pub(super) enum CheckedOut {
    Http1 {
        connection: http1::Connection,
        /// Whether exchanges came before, so that the server may be closing it.
        is_reused: bool,
    },
    Http2 {
        connection: http2::Connection,
        /// As for HTTP/1.1.
        is_reused: bool,
    },
}

impl RouteConnections {
    /// Returns the number of streams that the server allows on an HTTP/2 connection, as its
    /// settings stated last. `None` if it is not known.
    fn allowed_streams(&self) -> Option<usize> {
        Some(self.allowed_streams.load(Ordering::Relaxed)).filter(|&allowed| allowed > 0)
    }
}

impl ConnectionPool {
    /// Creates a pool without connections.
    ///
    /// # Errors
    /// `Config` if the certificate authorities cannot be read.
    pub(super) fn new(config: &TransportConfig) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            connector: Connector::new(config)?,
            routes: RwLock::default(),
            max_idle: config.pool_idle,
            idle_timeout: config.pool_idle_timeout,
            max_streams: config.http2_streams,
            reaper: Mutex::default(),
        }))
    }

    /// Returns the connections of a route on the current runtime.
    ///
    /// # Errors
    /// As for [`Route::check`].
    pub(super) fn connections_of(self: &Arc<Self>, route: &Route) -> Result<Arc<RouteConnections>, Error> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        if let Some(connections) = self.routes.read().get(&runtime).and_then(|routes| routes.get(route)) {
            return Ok(connections.clone());
        }
        route.check()?;
        let mut routes = self.routes.write();
        let connections = routes.entry(runtime).or_default().entry(route.clone()).or_default().clone();
        drop(routes);
        self.start_reaper();
        Ok(connections)
    }

    /// Returns an open connection of a route, or opens one.
    ///
    /// # Errors
    /// `Connect` or `ConnectTimeout`.
    ///
    /// # Cancel safety
    /// Dropping the future closes a connection that is being opened.
    pub(super) async fn checkout(
        &self,
        route: &Route,
        connections: &RouteConnections,
    ) -> Result<CheckedOut, Error> {
        if let Some(checked_out) = self.reuse(connections) {
            return Ok(checked_out);
        }
        if !self.connector.may_speak_http2(route) || connections.speaks_http1.load(Ordering::Relaxed) {
            return self.open(route, connections).await;
        }
        let failures = connections.failures.load(Ordering::Relaxed);
        let opening = connections.opening.lock().await;
        if let Some(checked_out) = self.reuse(connections) {
            return Ok(checked_out);
        }
        let waits_no_longer = connections.failures.load(Ordering::Relaxed) > failures
            || connections.speaks_http1.load(Ordering::Relaxed);
        if waits_no_longer {
            drop(opening);
        }
        self.open(route, connections).await
    }

    /// Returns an open connection with room for an exchange, or `None`.
    fn reuse(&self, connections: &RouteConnections) -> Option<CheckedOut> {
        let now = Instant::now();
        let mut idle = connections.idle.lock();
        while let Some((since, mut connection)) = idle.pop() {
            if now.duration_since(since) >= self.idle_timeout {
                idle.clear();
            } else if connection.is_usable() {
                return Some(CheckedOut::Http1 { connection, is_reused: true });
            }
        }
        drop(idle);
        let mut multiplexed = connections.multiplexed.lock();
        multiplexed.retain(|(_, connection)| !connection.is_closed());
        let (used, connection) =
            multiplexed.iter_mut().find(|(_, connection)| self.has_room(connections, connection))?;
        *used = now;
        Some(CheckedOut::Http2 { connection: connection.clone(), is_reused: true })
    }

    /// Returns `true` if an HTTP/2 connection of a route may carry another exchange.
    fn has_room(&self, connections: &RouteConnections, connection: &http2::Connection) -> bool {
        let in_flight = connection.in_flight();
        if in_flight >= self.max_streams {
            return false;
        }
        if let Some(allowed) = connection.allowed_streams() {
            // A server that allows none for a while would otherwise get a connection for each call.
            connections.allowed_streams.store(allowed.max(1), Ordering::Relaxed);
        }
        connections.allowed_streams().is_none_or(|allowed| in_flight < allowed)
    }

    /// Opens a connection.
    async fn open(&self, route: &Route, connections: &RouteConnections) -> Result<CheckedOut, Error> {
        let opened = self.connector.open(route).await.inspect_err(|_| {
            connections.failures.fetch_add(1, Ordering::Relaxed);
        })?;
        connections.speaks_http1.store(!opened.is_http2, Ordering::Relaxed);
        if !opened.is_http2 {
            return Ok(CheckedOut::Http1 {
                connection: http1::Connection::new(opened.stream),
                is_reused: false,
            });
        }
        let connection =
            http2::Connection::start(opened.stream, self.max_streams, connections.allowed_streams()).await?;
        connections.multiplexed.lock().push((Instant::now(), connection.clone()));
        Ok(CheckedOut::Http2 { connection, is_reused: false })
    }

    /// Keeps a connection for later exchanges, unless enough are kept.
    pub(super) fn keep(self: &Arc<Self>, connections: &RouteConnections, connection: http1::Connection) {
        let mut idle = connections.idle.lock();
        if idle.len() >= self.max_idle {
            return;
        }
        idle.push((Instant::now(), connection));
        drop(idle);
        self.start_reaper();
    }

    /// Starts the task that closes idle connections, unless it runs. It ends when no route is left,
    /// or with the runtime that it runs on. Outside a runtime, does nothing.
    pub(super) fn start_reaper(self: &Arc<Self>) {
        let mut reaper = self.reaper.lock();
        if reaper.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let pool = Arc::downgrade(self);
        let interval = (self.idle_timeout / 2).clamp(Duration::from_secs(1), Duration::from_secs(30));
        *reaper = Some(runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(pool) = pool.upgrade() else { return };
                if pool.close_idle() {
                    return;
                }
            }
        }));
    }

    /// Closes connections that were idle for too long or that the server has closed, and forgets
    /// routes without connections. Returns `true` if none are left, so that the reaper may end.
    fn close_idle(&self) -> bool {
        let now = Instant::now();
        let is_recent = |since: &Instant| now.duration_since(*since) < self.idle_timeout;
        let mut all = self.routes.write();
        let has_connections = |connections: &Arc<RouteConnections>| {
            let mut idle = connections.idle.lock();
            idle.retain_mut(|(since, connection)| is_recent(since) && connection.is_usable());
            let mut multiplexed = connections.multiplexed.lock();
            multiplexed.retain(|(used, connection)| {
                !connection.is_closed() && (connection.in_flight() > 0 || is_recent(used))
            });
            !idle.is_empty() || !multiplexed.is_empty() || Arc::strong_count(connections) > 1
        };
        all.retain(|_, routes| {
            routes.retain(|_, connections| has_connections(connections));
            !routes.is_empty()
        });
        // Before the lock is released: a route that comes later starts another reaper.
        let is_empty = all.is_empty();
        if is_empty {
            *self.reaper.lock() = None;
        }
        is_empty
    }
}
