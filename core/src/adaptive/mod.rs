//! The limit that finds itself: how many calls an upstream can take now, learned from how long they take to their first tokens.
//!
//! One number is set, the objective; or none, and calls are held against what their like take when there is room. Two things are moved:
//!
//! - the **bound** on calls that await their first token (`bound`). They are the queue before the upstream itself, and by Little's law
//!   (`N = rate * time`) their number over the rate of first tokens is the time that each takes. It acts at once.
//! - the **slots**, which bound all that is in flight (`slots`). A stream keeps its slot to its end, so they act slowly; they follow what the upstream is
//!   seen to serve, and are what holds where it turns calls away, where calls do not stream, or where even one call in the queue would be late.
//!
//! ```text
//! a first token, an end, a call that still waits ─▶ class: late? how much room? ─▶ evidence ─┬─ enough ──▶ cut the bound; slots to what is served
//!                                                                                            ├─ room, full ▶ raise what was full
//!                                                                                            └─ neither ──▶ hold (the dead band)
//! 429 that is not for a rate ─▶ slots to what is in flight still      503, 529, timeout ─▶ half of enough      429 for a rate ─▶ nothing
//! ```
//!
//! - **Late** is judged by class (`class`), against the objective, by the share of late calls (`evidence`). A call that waits past its moment counts at
//!   once, not when it is answered. What calls wait in our own queue is not judged: a limit that answered it by a cut would make it longer, and cut again
//!   (the death spiral).
//! - **One cut an epoch**: only calls sent after the last cut are judged.
//! - **Growth** (`growth`) needs calls in time, and sent or answered *while all was taken*: in flight counts as demand, and a limit that nobody presses on
//!   proves nothing. It is slow start as long as no level is known that was too much; then trials, one slot at first, that become bold as they succeed.
//! - **What differs by itself** is not congestion: a class knows what its calls differ by, and what share of them is late, when there is room.
//! - **The floor** is not where it ends: a cut by lateness halves what was in flight of late at the most, goes to a quarter of the peak first, where calls teach
//!   what they take anyway, and calls that are nearly alone are never held against the upstream. A slow upstream is not taken for a busy one for ever.
//!
//! Why not plain AIMD on the slots: with streams of a minute a cut takes a minute to act, each probe above a cliff makes calls late until a stream ends, and
//! a percentile over a window knows neither when to stop cutting nor when to begin. `bench/RESULTS.md`, *adaptive*, has them side by side. It is there: with
//! a `decrease` by factor or step it is slow start, then additive increase and multiplicative (or subtractive) decrease; with a detector of `percentile` also
//! the posts' law, which looks at its window again at each tick that is not held, whatever was sent when.
//!
//! Invariants: `floor <= slots <= ceiling`; one [`Limit::ended`] for each [`Limit::sent`]; the counts of calls in flight and awaiting are exact; no step
//! allocates but for the longest line ever seen, and each takes constant time, amortised; but for a percentile's tick, which looks at its window.
//!
//! Sources: D. Chiu, R. Jain, *Analysis of the increase and decrease algorithms for congestion avoidance* (1989); E. Page, *Continuous inspection schemes*
//! (1954); J. Little, *A proof for the queuing formula L = λW* (1961); RFC 7661 for not growing what is not used.
//!
//! Knows no clock and does no I/O.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use tidegate::adaptive::{Ended, Kind, Limit, Settings};
//! use tidegate::config::AdaptiveConfig;
//!
//! # #[allow(clippy::disallowed_methods)]
//! let mut now = Instant::now();
//! let objective = Some(Duration::from_secs(1));
//! let settings = Settings { max: 64, objective, latency: None, tpot: None, adaptive: AdaptiveConfig::default() };
//! let mut limit = Limit::new(&settings, now);
//! assert_eq!(limit.slots(), 8);
//! for _ in 0..10 {
//!     let kind = Kind { input: 500, output: 100, streams: true };
//!     let mut calls: Vec<_> = std::iter::from_fn(|| limit.has_room().then(|| limit.sent(now, kind))).collect();
//!     now += Duration::from_millis(100);
//!     calls.iter_mut().for_each(|call| limit.first_token(now, call));
//!     calls.into_iter().for_each(|call| limit.ended(now, call, Ended::Completed { output: 100 }));
//! }
//! assert_eq!(limit.slots(), 64, "all were in time");
//! ```

mod awaiting_calls;
mod evidence;
mod first_token_limit;
mod first_token_rate;
mod growth;
mod latency_class;
mod limit;
mod load_tracker;
mod outcome;
mod percentile;
mod sample;
mod settings;
mod slot_limit;
#[cfg(test)]
mod tests;
mod view;

pub use limit::Limit;
pub use sample::{CallKind, Ended, Sample};
pub use settings::Settings;
pub use view::{Decision, DecisionCause, LimitView};
