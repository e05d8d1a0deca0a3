//! The innermost service: whatever turns a request into a response. [`Http`] is built in; any tower service of the same shape can take its place,
//! and so can a transport that lives in another language ([`foreign`]).

pub mod foreign;
mod http;
pub mod proxy;
mod shards;

use tower::util::BoxCloneSyncService;

pub use self::foreign::Foreign;
pub use self::http::Http;
pub use self::proxy::ProxyRules;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

/// A transport of any kind, boxed, so that generics stay below the client.
///
/// What the layers above rely on: dropping the future or the response's body ends the exchange at once, and the body fails,
/// rather than ends, when it is shorter than it was said to be. Where the end takes a while, [`crate::admission::ReleaseGuard`] keeps the slot meanwhile:
/// it is in the request's extensions, so a transport that keeps those beyond the exchange keeps the slot.
pub type Transport = BoxCloneSyncService<::http::Request<RequestBody>, ::http::Response<ResponseBody>, Error>;
