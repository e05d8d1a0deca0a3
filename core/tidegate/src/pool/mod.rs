//! Pools: discovers the replicas of a target, polls their state, and addresses requests to them.
//!
//! This module makes no decisions. [`crate::placement`] determines what is polled and what the
//! results mean, and the scheduler selects the replica of each call.
//!
//! Each pool has one background task ([`ReplicaMonitor`]). The first call starts the task, and the
//! task ends 10 s after the last call has ended. The task uses the gate's own transport, even if
//! calls bring their own, and bypasses all queues. It has only a weak reference to the gate's
//! state, and ends when the gate is dropped.

mod address;
mod check;
mod dns;
mod engine_monitor;
mod file;
mod poll_task;
mod poller;
mod private_host;
mod replica_monitor;
mod source;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use address::Addresses;
pub use check::{PoolCheck, ReplicaCheck};
pub(crate) use engine_monitor::{EngineMonitor, Engines};
use http::header::HOST;
use http::{Request, Uri};
use replica_monitor::ReplicaMonitor;

use crate::admission::Admission;
use crate::body::RequestBody;
use crate::config::{PoolConfig, ReplicaSource, TargetConfig};
use crate::error::{Error, ErrorKind, Reason};
use crate::placement::ReplicaState;
use crate::schedule::Rule;
use crate::transport::Transport;

/// The replicas of one target: their addresses, and the task that discovers and polls them.
pub(crate) struct TargetPool {
    admission: Arc<Admission>,
    source: ReplicaSource,
    addresses: Addresses,
    /// The task that discovers and polls the replicas. Empty before [`TargetPool::start`].
    replica_monitor: OnceLock<ReplicaMonitor>,
}

impl TargetPool {
    /// Creates the pool of a target. Returns `None` if the target is not a pool.
    pub(crate) fn new(config: &TargetConfig, admission: &Arc<Admission>) -> Option<Self> {
        let source = config.pool.as_ref()?.source.clone();
        if let ReplicaSource::Listed(members) = &source {
            admission.set_members(members);
        }
        let addresses = Addresses::new(config);
        Some(Self { admission: admission.clone(), source, addresses, replica_monitor: OnceLock::new() })
    }

    /// Enables the discovery and polling of the replicas over `transport`, which run while calls
    /// arrive. `acting` is `true` in mode `enforce`.
    ///
    /// # Errors
    /// `Config` if `acting` is `true` and the environment variable of the pool's `key_env` has no
    /// usable key.
    pub(crate) fn start(
        &self,
        config: &PoolConfig,
        transport: &Transport,
        acting: bool,
    ) -> Result<(), Error> {
        let checker = ReplicaMonitor::new(&self.admission, config, transport.clone(), acting)?;
        // A gate starts its pools once, so this never replaces a checker.
        let _ = self.replica_monitor.set(checker);
        Ok(())
    }

    /// Records that a call was made, which starts the discovery and polling of replicas if
    /// necessary.
    pub(crate) fn on_call(&self) {
        if let Some(checker) = self.replica_monitor.get() {
            checker.on_call();
        }
    }

    /// Waits until the first DNS lookup of the replicas has finished, at most `timeout`. Returns
    /// immediately if the replicas are not discovered by DNS.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub(crate) async fn wait_for_first_lookup(&self, timeout: Duration) {
        if let Some(checker) = self.replica_monitor.get() {
            checker.first_lookup(timeout).await;
        }
    }

    /// Returns why the latest lookup of the replicas failed. `None` if it succeeded, or if replicas
    /// are not looked up. After a failure, the replicas found before stay in use.
    pub(crate) fn problem(&self) -> Option<String> {
        self.replica_monitor.get()?.problem()
    }

    /// Asks each replica of the pool for its health and its models. See
    /// [`Gate::check_replicas`](crate::Gate::check_replicas).
    pub(crate) async fn check(&self) -> PoolCheck {
        let replicas = match self.replica_monitor.get() {
            Some(checker) => checker.check(&self.admission).await,
            None => Vec::new(),
        };
        PoolCheck { target: self.admission.name().clone(), problem: self.problem(), replicas }
    }

    /// Adds the problems of the pool ([`Self::with_problems`]) to the rejection of a call that
    /// waited for a replica. Returns other errors unchanged.
    pub(crate) fn explain_rejection(&self, rejection: Error) -> Error {
        let rule = rejection.why().map(|why| why.rule);
        match rule {
            Some(Rule::Outage | Rule::CoolDown | Rule::Replicas) => self.with_problems(rejection),
            _ => rejection,
        }
    }

    /// Adds to a rejection why the replicas of the pool are unknown or out of date, and which
    /// replicas accept no calls, with the reason of each.
    fn with_problems(&self, rejection: Error) -> Error {
        let (problem, mut replicas) = (self.problem(), self.admission.replicas());
        let rejection = match problem.as_deref() {
            Some(problem) => rejection.with_discovery_problem(problem, !replicas.is_empty()),
            None if replicas.is_empty() => {
                rejection.with_discovery_problem("no replica was configured or found", false)
            }
            None => rejection,
        };
        let known = replicas.len();
        replicas.retain(|replica| !replica.is_eligible);
        if replicas.is_empty() {
            return rejection;
        }
        rejection.with_replica_problems(&replicas, replicas.len() == known)
    }

    /// Returns the URL under which the replica `replica` gets the request to `uri`. Returns `None`
    /// if the path of the request cannot be placed below the replica's base URL.
    pub(crate) fn url_at(&self, uri: &Uri, replica: &Arc<str>) -> Option<Uri> {
        self.addresses.at(uri, replica)
    }

    /// Replaces the address in a request with the address of a replica.
    ///
    /// # Errors
    /// `Request` if the URL cannot be placed below the replica's base URL.
    pub(crate) fn route(&self, request: &mut Request<RequestBody>, replica: &Arc<str>) -> Result<(), Error> {
        let text = "its URL cannot be moved below the base URL of the replica";
        *request.uri_mut() = self
            .url_at(request.uri(), replica)
            .ok_or_else(|| Error::new(ErrorKind::Request, text).at(self.admission.name()))?;
        // The transport sets the header to the host that it sends to.
        request.headers_mut().remove(HOST);
        Ok(())
    }

    /// Replaces the address in a request with the address of one of the pool's replicas, in
    /// rotation, whether the replica is healthy or not. Used in mode `off`, in which calls are not
    /// queued and need no slot.
    ///
    /// If the replicas must be looked up first, waits for the first lookup, at most `timeout`. If
    /// DNS has found no replica, the request is sent to the host name of the pool's DNS source.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on the replicas.
    ///
    /// # Errors
    /// `Refused` if no replica is known and the replicas are not discovered by DNS. `Request` as
    /// for [`Self::route`].
    pub(crate) async fn route_in_turn(
        &self,
        request: &mut Request<RequestBody>,
        timeout: Duration,
    ) -> Result<(), Error> {
        if !matches!(self.source, ReplicaSource::Listed(_)) {
            self.on_call();
            self.wait_for_first_lookup(timeout).await;
        }
        let replicas = self.admission.replicas();
        let urls: Vec<&Arc<str>> = replicas
            .iter()
            .filter(|replica| replica.state != ReplicaState::Draining)
            .map(|replica| &replica.url)
            .collect();
        match (self.addresses.next_turn().checked_rem(urls.len()), &self.source) {
            (Some(turn), _) => self.route(request, urls[turn]),
            // The lookup failed, or would take longer than the call may. The transport resolves the
            // name itself, and its error is more precise.
            (None, ReplicaSource::Dns { url, .. }) => self.route(request, url),
            (None, _) => Err(self.no_replica()),
        }
    }

    /// Returns the error for a call that no replica of the pool can take now.
    pub(crate) fn no_replica(&self) -> Error {
        let text = match (self.admission.replicas().is_empty(), &self.source) {
            (true, ReplicaSource::Dynamic) => {
                "the pool has no replica: name its replicas with `set_replicas`"
            }
            (true, _) => "the pool has no replica",
            (false, _) => "no replica of the pool can take the request now",
        };
        self.with_problems(Error::new(ErrorKind::Refused(Reason::Outage), text).at(self.admission.name()))
    }
}
