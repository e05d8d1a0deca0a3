//! The transport: the innermost service, which sends a request and returns the response.
//!
//! [`Http`] is built in. Any tower service with the same request, response and error types can
//! replace it, including a transport that is implemented in another language ([`foreign`]).

pub mod foreign;
mod http;
pub mod proxy;
mod shards;

use tower::util::BoxCloneSyncService;

pub use crate::admission::ReleaseGuard;

pub use self::foreign::Foreign;
pub use self::http::Http;
pub use self::proxy::ProxyRules;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

/// A boxed transport of any kind. Boxing keeps type parameters out of the client.
///
/// # Requirements
///
/// The layers above rely on these properties:
///
/// - Dropping the response future or the response body ends the exchange at once.
/// - A body that is shorter than its `content-length` fails instead of ending.
/// - A transport that needs time to end an exchange keeps the call's slot meanwhile. It does so by
///   keeping the [`ReleaseGuard`] from the request's extensions.
pub type Transport = BoxCloneSyncService<::http::Request<RequestBody>, ::http::Response<ResponseBody>, Error>;
