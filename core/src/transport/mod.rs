//! The innermost service: whatever turns a request into a response. [`Http`] is built in; any tower service of the same shape can take its place.

mod http;
mod shards;

use tower::util::BoxCloneSyncService;

pub use self::http::Http;
use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;

/// A transport of any kind, boxed, so that generics stay below the client.
///
/// What the layers above rely on: dropping the future or the response's body ends the exchange at once, and the body fails,
/// rather than ends, when it is shorter than it was said to be.
pub type Transport = BoxCloneSyncService<::http::Request<RequestBody>, ::http::Response<ResponseBody>, Error>;
