//! Fallback: the target that takes the calls another target rejects (`fallback = "NAME"`).
//!
//! A rejected call was never sent, so another target may have it at once, without a retry or a
//! backoff. It stays the same call: it keeps its age, deadline, tenant and lane, and each target
//! has a record of it (rejected here, completed there). What changes is the address: the base URL,
//! model and key of the other target, as configured. The protocol stays the caller's, so a fallback
//! serves the same API on another server.
//!
//! - Only rejections that waiting elsewhere can mend fall back, and only while time is left before
//!   the deadline.
//! - The fallback's own fallback may take what the fallback rejects, and so on, each target once.
//!   The caller gets the last rejection, which names the first.
//! - The key of one target never goes to another: each request is made from the one that the caller
//!   sent, and the key of `key_env` (see `credential.rs`) is added to that. The caller's own key
//!   goes to no other server, unless `forward_headers` names its header.
//! - Another server (protocol, host or port), a pool, and a request with the key of `key_env`
//!   receive only the headers and query parameters of an allowlist (see `forward.rs`) and the
//!   headers named in `forward_headers`. The body goes along whole, and so does the part of the
//!   path below the base URL: a key in either is not removed.
//! - The header `x-tidegate-fallback: NAME` of a response names the target that answered.

mod address;
mod forward;
mod layer;
mod routes;

pub(crate) use layer::FallbackLayer;
pub(crate) use routes::FallbackRoutes;
