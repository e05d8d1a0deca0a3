//! Replica selection while the gate is off: calls are not queued, polled or counted.
//!
//! A pool's name is not an address, so its calls still need a replica. They use the replicas in
//! turn.

use std::sync::Arc;

use http::Request;
use tokio::time::Instant;

use super::layer::{nowhere, send_to};
use crate::body::RequestBody;
use crate::config::ReplicaSource;
use crate::context::Context;
use crate::error::Error;
use crate::target::Target;

/// Points a request at the next of the pool's replicas, in turn and regardless of their health.
///
/// If the replicas have to be looked up first, it waits for the first lookup, at most for the rest
/// of the call's deadline.
///
/// # Cancel safety
///
/// Cancel safe.
///
/// # Errors
///
/// `Refused` if no replica is known. `Request` if the URL cannot be placed below the replica's base
/// URL.
pub(crate) async fn point(target: &Target, request: &mut Request<RequestBody>) -> Result<(), Error> {
    let Some(addresses) = target.addresses() else { return Ok(()) };
    let source = target.config().pool.as_ref().map(|pool| &pool.source);
    if source.is_some_and(|source| !matches!(source, ReplicaSource::Listed(_))) {
        // Makes the keeper look up the replicas.
        target.called();
        let own = request.extensions().get::<Context>().and_then(|context| context.deadline);
        let left = own.map(|own| own.saturating_duration_since(Instant::now()));
        let longest = target.config().deadline;
        target.replicas_known(left.map_or(longest, |left| left.min(longest))).await;
    }
    let replicas = target.admission().replicas();
    let urls: Vec<&Arc<str>> =
        replicas.iter().filter(|replica| replica.state != "draining").map(|replica| &replica.url).collect();
    let turn = addresses.turn().checked_rem(urls.len());
    match turn.and_then(|turn| urls.get(turn)) {
        Some(url) => send_to(target, url, request),
        None => match source {
            // The lookup failed, or would take longer than the call may. The transport resolves the
            // name itself, and its error is more precise.
            Some(ReplicaSource::Dns { url, .. }) => send_to(target, url, request),
            _ => Err(nowhere(target)),
        },
    }
}
