//! The transport: the innermost service, which sends a request and returns the response.
//!
//! [`Http`] is built in. Any tower service with the same request, response and error types can
//! replace it, including a transport that is implemented in another language ([`foreign`]).

pub mod foreign;
pub(crate) mod gate_request;
mod http;
pub mod proxy;

use tower::util::BoxCloneSyncService;

pub use crate::admission::ReleaseGuard;

pub use self::foreign::Foreign;
pub use self::http::Http;
pub use self::proxy::ProxyRules;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

/// A transport of any kind, boxed, so that the type of [`Client`](crate::Client) does not depend on
/// it.
///
/// ```
/// use tidegate::Transport;
/// use tidegate::transport::Http;
///
/// let transport = Transport::new(Http::new(tidegate::config::TransportConfig::default())?);
/// # Ok::<(), tidegate::Error>(())
/// ```
///
/// Besides the attempts of calls, a transport gets the requests of the gate itself: health probes,
/// and requests for metrics (`/metrics`), models (`/v1/models`) and token counts (`/tokenize`).
///
/// # Requirements
///
/// A transport must have these properties:
///
/// - Dropping the response future or the response body ends the exchange immediately.
/// - A body that is shorter than its `content-length` fails instead of ending.
/// - It becomes ready quickly. An attempt polls a clone for readiness after it has acquired its
///   slot, so this wait counts as a part of the attempt.
/// - If a transport needs time to end an exchange after such a drop, it keeps the [`ReleaseGuard`]
///   from the request's extensions until the exchange has ended. The slot is released then.
pub type Transport = BoxCloneSyncService<::http::Request<RequestBody>, ::http::Response<ResponseBody>, Error>;
