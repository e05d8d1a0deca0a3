//! What bounds the calls of tenants: gates with and without settings, and fixed bounds on a tenant.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::config::{EngineMetricsPolicy, Target, Tenant};
use tidegate::{Context, Error, ErrorKind, Gate, Reason, RequestBody, ResponseBody, Transport};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower::{ServiceExt, service_fn};

use super::contender::{TARGET, gate, http};
use crate::Fallible;

/// The tenant that bursts, and those that do not.
pub(super) const BURSTS: &str = "B";
pub(super) const STEADY: [&str; 2] = ["A", "C"];

/// The maximum wait of the post.
pub(super) const WAIT: Duration = Duration::from_secs(30);
/// The caps of the post.
const CAPS: [(&str, usize); 3] = [("A", 64), (BURSTS, 8), ("C", 64)];

/// A rule for the calls of tenants. All rules let a call wait for [`WAIT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TenantRule {
    /// A gate in which nothing is configured except the wait.
    Names,
    /// The same gate, which is not told the names of the tenants.
    WithoutNames,
    /// A gate with the caps of the post.
    PostCaps,
    /// Bounds on [`BURSTS`]: on its calls in flight, and on those of them that await their first
    /// token. No gate has them; they are the best that fixed numbers can do.
    Bounds { in_flight: usize, awaiting: usize },
}

impl TenantRule {
    /// Returns the name in figures and tables.
    pub(super) fn name(self) -> String {
        match self {
            Self::Names => "tenants' names only".to_owned(),
            Self::WithoutNames => "without tenants' names".to_owned(),
            Self::PostCaps => "the post's caps".to_owned(),
            Self::Bounds { in_flight, awaiting } => format!("{in_flight} in flight, {awaiting} awaiting"),
        }
    }

    /// Returns the client of the server at the URL `base`, and its gate, if any. Calls are sent
    /// through `wire`, or, without one, through the built-in HTTP client.
    pub(super) fn client(self, base: &str, wire: Option<Transport>) -> Fallible<(Transport, Option<Gate>)> {
        let target = Target::new(TARGET).url(base).wait(WAIT);
        let target = match self {
            Self::Names | Self::WithoutNames => target,
            Self::PostCaps => {
                // The sum of the tenants' caps, so that the tenants' caps bind, as in the post.
                let sum = CAPS.iter().map(|(_, cap)| cap).sum();
                let target = target.cap(sum).metrics(EngineMetricsPolicy::Off);
                CAPS.iter().fold(target, |target, (name, cap)| target.tenant(*name, Tenant::new().cap(*cap)))
            }
            Self::Bounds { in_flight, awaiting } => {
                let wire = wire.map_or_else(http, Ok)?;
                return Ok((Bounds::new(in_flight, awaiting).over(wire), None));
            }
        };
        let gate = gate(target, wire)?;
        let client = Transport::new(gate.client());
        Ok((if self == Self::WithoutNames { without_names(client) } else { client }, Some(gate)))
    }
}

/// Returns a transport that removes the names of the tenants.
fn without_names(client: Transport) -> Transport {
    Transport::new(service_fn(move |mut request: Request<RequestBody>| {
        request.extensions_mut().remove::<Context>();
        client.clone().oneshot(request)
    }))
}

/// The bounds on one tenant. Calls get both permits in the order of their arrival.
#[derive(Clone, Debug)]
struct Bounds {
    in_flight: Arc<Semaphore>,
    awaiting: Arc<Semaphore>,
}

impl Bounds {
    fn new(in_flight: usize, awaiting: usize) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { in_flight: permits(in_flight), awaiting: permits(awaiting) }
    }

    /// Returns a transport that sends calls through `wire` within the bounds.
    fn over(self, wire: Transport) -> Transport {
        Transport::new(service_fn(move |request| {
            let (bounds, wire) = (self.clone(), wire.clone());
            async move { bounds.send(wire, request).await }
        }))
    }

    async fn send(
        self,
        wire: Transport,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Error> {
        let context = request.extensions().get::<Context>();
        if context.and_then(|context| context.tenant.as_deref()) != Some(BURSTS) {
            return wire.oneshot(request).await;
        }
        let Ok(Some((awaiting, in_flight))) = timeout(WAIT, self.acquire()).await else {
            return Err(Error::new(ErrorKind::Refused(Reason::WaitBudget), "the wait is over"));
        };
        let mut awaiting = Some(awaiting);
        // The permits end with the first bytes of the answer, and with the answer.
        Ok(wire.oneshot(request).await?.map(|body| {
            ResponseBody::new(body.map_frame(move |frame| {
                let _ = &in_flight;
                drop(awaiting.take());
                frame
            }))
        }))
    }

    /// Returns a permit to await the first token, and one to be in flight.
    async fn acquire(self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let awaiting = self.awaiting.acquire_owned().await.ok()?;
        Some((awaiting, self.in_flight.acquire_owned().await.ok()?))
    }
}
