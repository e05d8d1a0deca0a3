//! Fallback: a rejected call is sent to another target (`fallback = "NAME"`).
//!
//! A rejected call was not sent, so it can be sent to another target immediately, without a
//! backoff. It remains the same call: it keeps its age, deadline, tenant and lane. Each target that
//! the call reaches records it: as rejected at the first target, and as completed at the second.
//! The base URL, the model and the key change to those of the second target, as configured. The
//! request format does not change, so the fallback must serve the same API.
//!
//! - Rejections fall back unless their reason applies to every target (a draining gate or a
//!   deadlock). After its deadline, a call does not fall back.
//! - A fallback target can have a fallback of its own, and so on. Each target is tried once. The
//!   caller gets the last rejection, which names the first.
//! - The key of one target is never sent to another. Each request is created from the caller's
//!   request, and the key of `key_env` (see `credential.rs`) is added. The caller's own key is not
//!   sent to another server, unless `forward_headers` names its header.
//! - Another server (protocol, host or port), a pool, and a request with the key of `key_env`
//!   receive only the headers and query parameters of an allowlist (see `header_allowlist.rs`) and
//!   the headers named in `forward_headers`. The body and the part of the path below the base URL
//!   are sent unchanged, so a key in either is not removed.
//! - The header `x-tidegate-fallback: NAME` of a response names the target that answered.

mod fallback_request;
mod header_allowlist;
mod layer;
mod routes;

pub(crate) use layer::FallbackLayer;
pub(crate) use routes::FallbackRoutes;
