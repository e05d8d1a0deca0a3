//! The deadline: the whole call ends by it, waiting, retries and stream included.
//!
//! Why the stream too: a call whose answer nobody needs any more holds a slot that somebody needs. Why a watch beside the timers: a timer
//! in a body runs only while somebody reads it, and the reader that has stopped reading is the one that must lose its slot.

mod body;
mod layer;
mod watch;

pub use layer::DeadlineLayer;
pub use watch::Watch;
