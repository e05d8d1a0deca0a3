//! Hedging: a stream whose first token is late is sent to a second replica too.
//!
//! The first attempt to deliver a token provides the response. The other is dropped at once, and
//! counts as cancelled. Each attempt of a call is hedged once, and no attempt is hedged after a
//! hedge has won.
//!
//! # Limits
//!
//! - Hedges are charged to the retry budget. A busy pool is late as a whole, and a second attempt
//!   of each call would add to its load.
//! - A hedge takes a free slot or none. A slot that becomes free goes to the waiting calls.
//! - Only streams are hedged. Other calls show no progress until they end, and a long response is
//!   not a late one.
//! - Calls over a client's own transport are not hedged, because it serves one exchange of a call
//!   at a time.

mod layer;

pub(crate) use layer::HedgeLayer;
