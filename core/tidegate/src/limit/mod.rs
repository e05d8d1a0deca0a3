//! The adaptive concurrency limit alone, as a tower layer for any HTTP service.
//!
//! The layer admits as many concurrent exchanges as the service currently handles within the
//! objective, and queues the rest for as long as they can still meet it. It has no targets,
//! tenants, lanes, budgets, retries or cool-downs. Use it in stacks in which other layers provide
//! these functions, and for upstreams that are not models. The queue, its order and the limit's
//! algorithm are those of the gate ([`crate::schedule`], [`crate::adaptive`]).
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
//! # Calls
//!
//! A call begins when it gets its slot. It ends when its response *body* has ended, failed or been
//! dropped, because the upstream works on a stream until then.
//!
//! - **First token**: the time until it arrives is compared with the objective. For a stream
//!   (`content-type: text/event-stream`), the first token is the first data frame of the body, not
//!   the head. For other responses, it is the end of the body. The time is measured until the
//!   reader polls for this frame or end.
//! - **Rejections**: a 429 is a limit on concurrency, unless it comes with a retry time or with
//!   headers that show an exhausted rate. 503 and 529 mean that the upstream is overloaded. Other
//!   failures do not affect the limit. A timeout of a layer below this one counts as a call that
//!   the upstream did not serve in time. A call that a layer above ends by a timeout counts as
//!   cancelled.
//! - **Long responses that do not stream**, such as a model's response in one piece, would always
//!   be late by the objective. The layer cannot recognize them in advance, so put an
//!   [`adaptive::CallKind`](crate::adaptive::CallKind) with `streams: false` into the request's
//!   extensions. Such calls have a [`latency`](AdaptiveLimitBuilder::latency) objective of their
//!   own, and do not count as awaiting their first token. Their wait is bounded like that of
//!   streams.
//!
//! These rules are those of [`HttpJudge`]. Implement [`Judge`] to change them.
//!
//! # Position in the stack
//!
//! Place retries above this layer, so that each attempt queues for its own slot and no slot is held
//! during a backoff. Timeouts above it include the wait; timeouts below it cover only the exchange.
//! The layer does not act on `Retry-After`, which is the task of the retry layer.
//!
//! A call that the layer rejects fails with an [`Error`](crate::Error) of the kind
//! [`Refused`](crate::ErrorKind::Refused), often immediately. A retry layer must wait for its
//! [`retry_after`](crate::Error::retry_after) before the next attempt.
//!
//! # Guarantees
//!
//! - The number of exchanges in flight never exceeds the limit that was in force when the last one
//!   was admitted.
//! - Waiting calls are admitted in the order of their arrival.
//! - Each slot is released once, after its exchange has been dropped.

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
pub use snapshot::AdaptiveLimitSnapshot;
