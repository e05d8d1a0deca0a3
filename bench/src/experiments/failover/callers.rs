//! The compared callers: a gate with a pool, the same with parts switched off, and a client without
//! a gate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use parking_lot::Mutex;
use tidegate::config::{Config, ConfigBuilder, Pool, Replica, Retry, Target, TransportConfig};
use tidegate::transport::Http;
use tidegate::{Gate, RequestBody, Transport};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::Fallible;
use crate::chosen_replica::to_chosen;
use crate::retrying_clients::Rule;

/// The URL of the pool.
pub(super) const POOL: &str = "http://llama";

/// The deadline of each call.
pub(super) const DEADLINE: Duration = Duration::from_secs(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A pool of the four replicas with default settings.
    Ours,
    /// The pool without health checks. It notices failures only from the results of calls.
    HealthOff,
    /// Like `HealthOff`, and calls that may have run are not retried. Calls that have certainly not
    /// run are still sent to another replica.
    RetriesOff,
    /// One target per replica. Calls use the targets in turn, without failover.
    FailoverOff,
    /// The pool with 12 slots per replica, so that calls wait while one replica is lost.
    Tight,
    /// No gate: each attempt goes to the next replica in turn, at most four attempts per call.
    RoundRobin,
}

impl Caller {
    /// Returns the name of the caller in figures and tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Caller::Ours => "ours",
            Caller::HealthOff => "health off",
            Caller::RetriesOff => "health off, 1 attempt",
            Caller::FailoverOff => "no pool, in turn, 1 attempt",
            Caller::Tight => "the pool, 12 slots a replica",
            Caller::RoundRobin => "round robin, 4 attempts",
        }
    }

    pub(super) fn over(self, replicas: &[String], sent: &Arc<Sent>) -> Fallible<(Transport, Option<Gate>)> {
        let connections = TransportConfig { proxy_from_env: false, ..TransportConfig::default() };
        let wire = sent.over(Transport::new(Http::new(connections)?));
        if self == Caller::RoundRobin {
            return Ok((Rule::four(DEADLINE).over(in_turn(wire, replicas)), None));
        }
        if self == Caller::FailoverOff {
            let single = |(nth, url): (usize, &String)| {
                let once = Retry::new().attempts(1);
                Target::new(format!("replica-{nth}")).url(url).cap(64).retry(once).deadline(DEADLINE)
            };
            let singles = replicas.iter().enumerate().map(single);
            let gate = Gate::over(singles.fold(Config::builder(), ConfigBuilder::target).build()?, wire)?;
            return Ok((in_turn(Transport::new(gate.client()), replicas), Some(gate)));
        }
        let cap = if self == Caller::Tight { 12 } else { 64 };
        let pool = Pool::new(replicas.iter().map(Replica::new)).cap(cap);
        let asks = matches!(self, Caller::Ours | Caller::Tight);
        let pool = if asks { pool } else { pool.health(None).poll(None) };
        let retry = if self == Caller::RetriesOff { Retry::new().attempts(1) } else { Retry::new() };
        let target = Target::new("llama").pool(pool).retry(retry).deadline(DEADLINE);
        let gate = Gate::over(Config::builder().target(target).build()?, wire)?;
        Ok((Transport::new(gate.client()), Some(gate)))
    }
}

/// Returns a transport that sends the requests to the `replicas` in turn.
fn in_turn(wire: Transport, replicas: &[String]) -> Transport {
    let mut turns = (0..replicas.len()).cycle();
    to_chosen(wire, replicas, move || turns.next().unwrap_or_default())
}

/// The times at which calls were sent to each replica, by its address. Health checks are not
/// counted.
#[derive(Default)]
pub(super) struct Sent(Mutex<HashMap<String, Vec<Instant>>>);

impl Sent {
    fn over(self: &Arc<Self>, wire: Transport) -> Transport {
        let sent = self.clone();
        Transport::new(tower::service_fn(move |request: Request<RequestBody>| {
            if request.method() == Method::POST
                && let Some(authority) = request.uri().authority()
            {
                sent.0.lock().entry(authority.to_string()).or_default().push(Instant::now());
            }
            wire.clone().oneshot(request)
        }))
    }

    pub(super) fn to(&self, authority: &str) -> Vec<Instant> {
        self.0.lock().get(authority).cloned().unwrap_or_default()
    }
}
