//! A gate that stands aside: nothing is queued, asked or counted. But a pool's name is no address, so that its calls still need a replica.

use std::sync::Arc;

use http::Request;
use tokio::time::Instant;

use super::layer::{nowhere, send_to};
use crate::body::RequestBody;
use crate::config::ReplicaSource;
use crate::context::Context;
use crate::error::Error;
use crate::target::Target;

/// Points a request at the pool's replicas in turn, whatever is known of them: those that are listed, or those last heard of. Where nobody has looked yet it waits for that,
/// within the deadline.
///
/// *Cancellation safety*: nothing is held.
///
/// # Errors
/// `Refused` where none is known.
pub(crate) async fn point(target: &Target, request: &mut Request<RequestBody>) -> Result<(), Error> {
    let Some(addresses) = target.addresses() else { return Ok(()) };
    let source = target.config().pool.as_ref().map(|pool| &pool.source);
    if source.is_some_and(|source| !matches!(source, ReplicaSource::Listed(_))) {
        // Somebody has to look where they are.
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
            // The lookup failed, or takes longer than the call may: the transport has a lookup of its own, and its error says more.
            Some(ReplicaSource::Dns { url, .. }) => send_to(target, url, request),
            _ => Err(nowhere(target)),
        },
    }
}
