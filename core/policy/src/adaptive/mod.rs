//! Adaptive concurrency limit: learns from the time to first token how many concurrent calls an
//! upstream can serve.
//!
//! # Algorithm
//!
//! The only setting is a latency objective. Without one, calls are compared with the latency of
//! similar calls on an uncongested upstream. The limit has two bounds:
//!
//! - The *first-token limit* (`first_token_limit`) bounds the streaming calls that await their
//!   first token. Such calls are the upstream's own queue. By Little's law (`N = rate * time`),
//!   their number divided by the rate of first tokens is the time that each of them waits. This
//!   bound takes effect immediately.
//! - The *slots* (`slot_limit`) bound all calls in flight. A stream keeps its slot until it ends,
//!   so this bound acts slowly and follows what the upstream is seen to serve. It is the bound that
//!   counts if the upstream rejects calls, if calls do not stream, or if even one queued call would
//!   be late.
//!
//! ```text
//! first token, end of a call, overdue call ─▶ latency class ─▶ evidence ─┬─ breach ──────────▶ cut
//!                                                                        ├─ headroom, full ──▶ raise
//!                                                                        └─ otherwise ───────▶ hold
//! 429 for concurrency ─▶ cut slots to the calls in flight
//! 503, 529, timeout   ─▶ half the evidence of a breach
//! caller's deadline   ─▶ the same, if similar calls usually take less time
//! 429 for a rate      ─▶ nothing
//! ```
//!
//! - **Late** calls are identified per class (`latency_class`). The share of late calls, not a
//!   percentile, is evidence (`evidence`). An overdue call counts before it is answered. Time in
//!   the local queue is not part of a call's latency: a limit that reacted to it with a cut would
//!   lengthen that queue and cut again.
//! - **Overtaken** calls (`recent_calls`) are weak evidence: if most similar calls that were sent
//!   after late ones are answered already, a single queue has not delayed the late ones.
//! - **One cut per epoch**: only calls sent after the last cut are evidence.
//! - **Growth** (`growth`) needs calls that were not late and were in flight *while the limit was
//!   full*: other calls show nothing about a higher limit. Growth is slow start until the slots are
//!   first found to be too many. After that they grow in trials, of one slot at first and of more
//!   after each success.
//! - **Inherent variance** is not congestion: each class learns its usual deviation and its usual
//!   share of late calls while the upstream is uncongested.
//! - **Recovery**: a cut halves the recent number of calls at most, and stops at a quarter of the
//!   recent peak first, where calls refresh their class's baseline. Late calls that were sent while
//!   at most two calls were in flight are not evidence, so a slow upstream is not treated as a
//!   congested one forever.
//!
//! # Rationale
//!
//! Plain AIMD on the slots does not fit streams. If streams last a minute, a cut takes a minute to
//! act, each probe above the capacity makes calls late until a stream ends, and a percentile over a
//! window shows neither when to stop cutting nor when to start. `bench/RESULTS.md`
//! compares the two. AIMD remains available: a `decrease` by factor or step gives slow
//! start, additive increase and multiplicative (or subtractive) decrease, and the `percentile`
//! detector evaluates a window at each tick.
//!
//! # Guarantees
//!
//! - The slots are always between the configured minimum and the cap, or those of another process,
//!   if it finds the limit.
//! - The counts of calls in flight, and of calls that await their first token, are exact if the
//!   caller passes each [`Sample`] to [`Limit::on_ended`] once.
//! - Each event takes amortized constant time and allocates only when the number of awaiting calls
//!   reaches a new maximum, or for the first 256 calls. The percentile detector's tick is linear in
//!   its window.
//! - The module has no clock and does no I/O.
//!
//! # Sources
//!
//! - D. Chiu, R. Jain, *Analysis of the increase and decrease algorithms for congestion avoidance*
//!   (1989).
//! - E. Page, *Continuous inspection schemes* (1954).
//! - J. Little, *A proof for the queuing formula L = λW* (1961).
//! - RFC 7661, for not growing an unused limit.
//!
//! # Examples
//!
//! ```
//! use std::time::{Duration, Instant};
//! use tidegate_policy::adaptive::{CallKind, Ended, Limit, LimitSettings};
//! use tidegate_config::AdaptiveConfig;
//!
//! # #[allow(clippy::disallowed_methods)]
//! let mut now = Instant::now();
//! let objective = Some(Duration::from_secs(1));
//! let settings =
//!     LimitSettings { max: 64, objective, latency: None, tpot: None, adaptive: AdaptiveConfig::default() };
//! let mut limit = Limit::new(&settings, now);
//! assert_eq!(limit.slots(), 8);
//! for _ in 0..10 {
//!     let kind = CallKind { input: 500, output: 100, streams: true };
//!     let mut calls: Vec<_> =
//!         std::iter::from_fn(|| limit.has_room().then(|| limit.on_sent(now, kind))).collect();
//!     now += Duration::from_millis(100);
//!     calls.iter_mut().for_each(|call| limit.on_first_token(now, call));
//!     calls.into_iter().for_each(|call| limit.on_ended(now, call, Ended::Completed { output: 100 }));
//! }
//! assert_eq!(limit.slots(), 64, "all calls were in time");
//! ```

mod awaiting_calls;
mod batch_size;
mod call_sample;
mod engine_queue;
mod evidence;
mod first_token_capacity;
mod first_token_limit;
mod growth;
mod latency_class;
mod limit;
mod load_tracker;
mod loaded_times;
mod percentile;
mod recent_calls;
mod slot_limit;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use latency_class::{PROMPT_CLASSES, prompt_class};

pub use call_sample::Sample;
pub use limit::{Limit, LimitSettings};
pub use tidegate_share::{CallKind, Ended};
pub use view::{AdaptiveView, Decision, DecisionCause, LimitView};
