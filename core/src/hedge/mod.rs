//! Hedging: a stream whose first token is late is tried at another replica as well.
//!
//! Why only inside the retry budget: a pool is late when it is busy, and then a second of each call is what it needs least. Why never from the queue: a slot that
//! somebody waits for goes to who waits. Why not for calls that do not stream: nothing is known of them until they are over, and a long answer is not a late one.
//!
//! Why not for a client that keeps its own transport: that serves one exchange of a call at a time.
//!
//! The first to bring a token is the answer; the other is dropped at once, and counts as cancelled. A call is hedged once an attempt, and not again once its
//! twin has come first.

mod layer;

pub(crate) use layer::HedgeLayer;
