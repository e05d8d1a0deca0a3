//! The adaptive limit alone, as a tower layer around any HTTP service: as many exchanges at once as
//! it can take now, and a queue for the rest.
//!
//! Of the gate it has that one thing: no targets, tenants, lanes, budgets, retries or cool-downs.
//! It is for stacks that have those from elsewhere, and for upstreams that are no models. What
//! waits, who goes next and what moves the limit are the gate's own ([`crate::schedule`],
//! [`crate::adaptive`]).
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt, Full};
//! use tidegate::limit::AdaptiveLimitLayer;
//! use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let limit = AdaptiveLimitLayer::new(Duration::from_secs(1));
//! let client = ServiceBuilder::new()
//!     .layer(limit.clone())
//!     .service(service_fn(async |_: Request<Full<Bytes>>| Ok::<_, BoxError>(Response::new(Full::new(Bytes::from("done"))))));
//!
//! let response = client.oneshot(Request::post("http://llm/v1/completions").body(Full::default())?).await?;
//! assert_eq!(limit.snapshot().in_flight, 1, "its body is still to come");
//! response.into_body().collect().await?;
//! assert_eq!(limit.snapshot().in_flight, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What a call is
//!
//! It begins when it gets its slot, and ends when its response's *body* has ended, has failed or is
//! dropped: a stream is at work until then.
//!
//! - **Its first token** is kept to the objective: of an answer that streams (`content-type: text/event-stream`) the first frame of data in its body, and not
//!   its head; of any other its end, for that is judged whole. The time runs until the body's reader has asked for it.
//! - **A head may say it all**: a 429 is a limit on concurrency unless it comes with a time to come back or with headers that show a rate used up; 503 and
//!   529 say that there is no room. Other failures say nothing. A timeout below this layer counts against the upstream, one above it is a caller that left.
//! - **Answers that do not stream and take longer than the objective** by their nature, as a model's in one piece, are late by it. Nobody can see that before
//!   they come, so say it: with an [`adaptive::CallKind`](crate::adaptive::CallKind) in the request's extensions whose `streams` is false. Such calls are judged by a
//!   [`latency`](AdaptiveLimitBuilder::latency) of their own, and not bounded by how many await their first token.
//!
//! All of it is [`HttpJudge`]'s; a [`Judge`] of your own says otherwise.
//!
//! # Where it stands
//!
//! Retries above it, so that each attempt queues for a slot of its own and none is held through a
//! backoff. Timeouts above it bound the wait as well, those below it the exchange alone. It sends
//! nobody away for a `Retry-After`: to heed that is the retries' part.
//!
//! Invariants: at most as many exchanges are under way as there were slots when the last was let
//! in; who waits goes first come, first served; each slot goes back once, after its exchange is
//! gone.

mod body;
mod builder;
mod judge;
mod layer;
mod limit_permit;
mod service;
mod snapshot;
mod state;

pub use body::LimitedBody;
pub use builder::AdaptiveLimitBuilder;
pub use judge::{Head, HttpJudge, Judge};
pub use layer::AdaptiveLimitLayer;
pub use service::AdaptiveLimit;
pub use snapshot::Snapshot;
