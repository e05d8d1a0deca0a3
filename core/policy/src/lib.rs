//! Decisions of the gate: who is admitted, when, and what happens after a failure.
//!
//! Every module is pure. `now` is an argument, randomness comes from a seeded generator, and nothing
//! here waits, reads a clock, starts a thread or does I/O. The layers of the crate `tidegate` drive
//! these state machines.
//!
//! - [`cooldown`]: when a target may be sent anything after a failure.
//! - [`backoff`]: how long a failed call waits before its next attempt.
//! - [`outcome`]: how an attempt ended, classified once.
//! - [`fairness`]: start-time fair queueing among tenants.
//! - [`kv`]: how much of a self-hosted engine's memory the calls in flight will use.

pub mod backoff;
pub mod cooldown;
mod error_kind;
pub mod fairness;
pub mod kv;
pub mod outcome;
mod reason;
#[cfg(test)]
mod testing;

pub use error_kind::ErrorKind;
pub use reason::Reason;
