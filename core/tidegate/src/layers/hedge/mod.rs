//! Hedging: a stream whose first token is late is sent to a second replica too.
//!
//! The first attempt to deliver a token provides the response. The other is dropped immediately,
//! and counts as cancelled. Each attempt of a call is hedged once. A hedge wins only with an
//! accepted response, which ends the attempts of the call.
//!
//! # Limits
//!
//! - Hedges are charged to the retry budget. If a pool is overloaded, all of its responses are
//!   late, and a second attempt of each call would add to the load.
//! - A hedge is sent only if a slot is free. It does not wait in the queue.
//! - Only streams are hedged. Other calls show no progress until they end, so a long response
//!   cannot be distinguished from a late one.
//! - Calls over a client's own transport are not hedged, because it serves one exchange of a call
//!   at a time.

mod layer;

pub(crate) use layer::HedgeLayer;
