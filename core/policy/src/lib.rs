//! The policies of Tidegate as pure state machines.
//!
//! The current time is an argument (`now`), randomness comes from a seeded generator, and nothing
//! here waits, reads a clock, starts a thread or does I/O. The async layers of the crate `tidegate`
//! report events to these state machines and carry out their decisions.
//!
//! | module | decides |
//! |---|---|
//! | [`schedule`] | which call is admitted next, and which calls wait or are rejected |
//! | [`fairness`] | the order among tenants: start-time fair queueing |
//! | [`adaptive`] | how many calls may be in flight, from observed latencies |
//! | [`budget`] | whether the rates of requests and tokens, and the retry budget, allow a call |
//! | [`kv`] | whether the KV-cache memory of an inference engine allows a call |
//! | [`placement`] | which replica of a pool a call is sent to, and which replicas are healthy |
//! | [`cooldown`] | when a target is sent attempts again after a failure |
//! | [`retry`], [`backoff`] | whether a failed attempt is repeated, and after which delay |
//! | [`outcome`] | how an attempt ended, classified once for all of them |

pub mod adaptive;
pub mod backoff;
pub mod budget;
pub mod cooldown;
mod error_kind;
pub mod fairness;
pub mod kv;
mod labels;
pub mod outcome;
pub mod placement;
mod reason;
pub mod retry;
pub mod schedule;
#[cfg(test)]
mod testing;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use error_kind::ErrorKind;
pub use reason::Reason;
pub use tidegate_config::Lane;

/// Appends `item` to the end of `queue`. If the queue already contains `max` items, its first item
/// is removed.
fn push_bounded<T>(queue: &mut VecDeque<T>, max: usize, item: T) {
    if queue.len() == max {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Returns how many spans of the length `span` have ended at `now` since the current one began: 0,
/// 1, or 2 for two or more. `ends` is the end of the current span. If it has ended, a new span
/// begins at `now`.
#[inline]
fn ended_spans(ends: &mut Instant, now: Instant, span: Duration) -> usize {
    let ended = if now < *ends { 0 } else { 1 + usize::from(now >= *ends + span) };
    if ended > 0 {
        *ends = now + span;
    }
    ended
}

/// Converts a number of tokens to `u32`. Numbers above `u32::MAX` become `u32::MAX`.
fn saturate(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
