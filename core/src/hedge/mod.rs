//! Hedging: a stream whose first token is late is sent to another replica as well.
//!
//! The first attempt to bring a token is the answer. The other is dropped at once, and counts as
//! cancelled. Each attempt of a call is hedged once, and no more after a hedge has come first.
//!
//! # Limits
//!
//! - A hedge is charged to the retry budget: a pool is late when it is busy, and needs no second
//!   attempt of each call then.
//! - A hedge takes a free slot or none: a slot that is waited for goes to the calls that wait.
//! - Only streams are hedged: nothing is known of another call until it ends, and a long response
//!   is not a late one.
//! - Clients that bring their own transport are not hedged: it serves one exchange of a call at a
//!   time.

mod layer;

pub(crate) use layer::HedgeLayer;
