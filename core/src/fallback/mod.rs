//! Fallback: a target may name another for what it refuses (`fallback = "NAME"`).
//!
//! A call refused at the door was never sent, so another target may have it at once: no retry, no backoff, nothing twice. It stays the same call:
//! its age, its deadline, its tenant and its lane go along, and each target has an entry of it in its books (refused here, completed there). What
//! changes is its address ([`address`]): the other's base URL, model and key, where it has them. Each is one it was configured with, and the
//! protocol stays the caller's, so a fallback speaks the same API, on another server.
//!
//! - Only what waiting elsewhere can mend falls back ([`policy`]), and only while there is time left before the deadline.
//! - The other's fallback may take what the other refuses, and so on, each target once. The last refusal is the caller's, and names the first.
//! - The key of one target never goes to another: each request is made from the one that the caller
//!   sent, and the key of `key_env` ([`credential`](crate::credential)) is added to that. The caller's own key goes to
//!   no other server, unless `forward_headers` names its header.
//! - Another server (protocol, host or port), a pool, and a request with the key of `key_env` receive
//!   only the headers and query parameters of an allowlist ([`forward`]) and the headers named in
//!   `forward_headers`. The body goes along whole, and so does the part of the path below the base
//!   URL: a key in either is not removed.
//! - A response says who gave it: `x-tidegate-fallback: NAME`.

mod address;
mod forward;
mod layer;
mod policy;
mod ways;

pub(crate) use layer::FallbackLayer;
pub(crate) use ways::Ways;
