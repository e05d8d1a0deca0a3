//! The deadline: the whole call ends by it, with its waits, retries and stream.
//!
//! The stream ends too, because a call whose response is not needed any more holds a slot that
//! others need. A watch closes bodies beside the timers: the timer of a body runs only while the
//! body is read, and the reader that has stopped reading is the one that must lose its slot.

mod body;
mod layer;
mod watch;

pub use layer::DeadlineLayer;
pub use watch::BodyWatch;
