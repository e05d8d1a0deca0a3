//! The decisions of a gate, as pure state machines.
//!
//! `now` is an argument, randomness comes from a seeded generator, and nothing here waits, reads a
//! clock, starts a thread or does I/O. The layers of the crate `tidegate` drive these state machines:
//! they report what happened and ask what to do next.
//!
//! | module | decides |
//! |---|---|
//! | [`schedule`] | which call is admitted next, who waits, and who is rejected |
//! | [`fairness`] | the order among tenants: start-time fair queueing |
//! | [`adaptive`] | how many slots are in force, from observed latencies |
//! | [`budget`] | whether the rates of requests and tokens, and the retry budget, permit a call |
//! | [`kv`] | whether an engine's memory permits a call |
//! | [`placement`] | which replica of a pool a call is sent to, and which replicas are healthy |
//! | [`cooldown`] | when a target may be sent anything after a failure |
//! | [`retry`], [`backoff`] | what follows a failed attempt, and after which delay |
//! | [`outcome`] | how an attempt ended, classified once for all of them |

pub mod adaptive;
pub mod backoff;
pub mod budget;
pub mod cooldown;
mod error_kind;
pub mod fairness;
pub mod kv;
pub mod outcome;
pub mod placement;
mod reason;
pub mod retry;
pub mod schedule;
#[cfg(test)]
mod testing;

pub use error_kind::ErrorKind;
pub use reason::Reason;
pub use tidegate_config::Lane;
