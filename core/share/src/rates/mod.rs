//! Requests and tokens per time that several processes share.
//!
//! The broker keeps the account of each limit, and gives members *advances*: amounts that a member
//! may charge to its calls within [`StockTime`]. A member that lacks an amount *draws*. The advance
//! counts as charged when it is given, and what was not used in time is returned. So the sum of all
//! members never exceeds the limit in any window, whoever ends, and a call that finds its amount in
//! the advance costs no message.
//!
//! - `RateDivision`: the broker's account of the limits of one resource, and the order of advances.
//! - [`RateStock`]: the advance of a member, and what it asks for.
//! - [`TokenBucket`], [`SlidingWindow`]: the bounds, which a process without others uses alike.
//!
//! # Fairness
//!
//! Advances are given by start-time fair queueing: an advance costs the largest part that it is of
//! any limit, divided by the weight of the member. If the next member's advance does not fit yet,
//! all wait for it, so that a large call is not overtaken for ever.
//!
//! # Guarantees
//!
//! - Members whose estimates are exact never exceed a limit in any window of its length.
//! - If the provider counted more than was charged, the difference is charged as soon as it is
//!   known.
//! - A member can only take back what it was given within the window.
//! - A new broker learns from each member what it has used. What processes have used that ended
//!   before is not known to it.

mod division;
mod rate_stock;
mod sliding_window;
mod token_bucket;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use division::RateDivision;
pub use rate_stock::{RateStock, RateTerms};
pub use sliding_window::SlidingWindow;
pub use token_bucket::{MAX_DELAY, TokenBucket, after, seconds};

/// The maximum number of limits of one resource.
pub const MAX_LIMITS: usize = 8;
/// The maximum number of [`Correction`]s in one message.
const MAX_CORRECTIONS: usize = 512;

/// The least [`StockTime`].
pub const MIN_STOCK_TIME: Duration = Duration::from_millis(50);
/// The number of bins of a broker's window.
pub const BINS: u64 = 480;
/// The number of bins for the time that a request travels to the provider: 0.25 s of a minute.
pub const TRAVEL_BINS: u64 = 2;
/// The shortest and the longest window in milliseconds. Others are clamped.
pub const WINDOWS_MS: (u64, u64) = (100, 7 * 86_400_000);
/// The length in milliseconds from which a window is long: an hour. What is charged to it is not
/// smoothed.
pub const LONG_WINDOW_MS: u64 = 3_600_000;
/// The largest amount of a limit, which a floating-point number still represents exactly.
pub const MAX_AMOUNT: u64 = 1 << 52;

/// One amount for each limit of a resource: requests or tokens.
pub type Amounts = Vec<u64>;

/// What a member asks of the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// The number of the draw, from 1.
    pub number: u64,
    /// The limits of the member. The smallest ones of the members that use them count.
    pub limits: Vec<RateLimit>,
    /// The weight of the member's calls, positive and finite. Shares follow weights.
    pub weight: f64,
    /// The amounts that the member could use soon. Replaces what was asked before. Empty if it
    /// needs none.
    pub want: Amounts,
    /// The amounts of its next call, at most `want`.
    pub least: Amounts,
    /// Changes of what was charged earlier. In the first draw: what the member has charged within
    /// the windows.
    pub corrections: Vec<Correction>,
    /// In the first draw: changes of charges that an earlier broker knows of. They replace the
    /// corrections that are older than [`Draw::unknown_ms`] if that broker has not lost its
    /// account. A local broker always has.
    #[serde(skip)]
    pub pending: Vec<Correction>,
    /// The time for which the broker did not know of charges, in milliseconds. Read in the first
    /// draw only.
    pub unknown_ms: u64,
}

/// A limit of requests or tokens per time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The length of the window in milliseconds.
    pub window_ms: u64,
    /// The maximum amount in any window.
    pub per_window: u64,
    /// The amount that accrues per second.
    pub per_second: f64,
    /// The amount that may be used without a pause, as the time in which it accrues, in
    /// milliseconds.
    pub burst_ms: u64,
}

/// A change of what a member has charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The time since the charge, in milliseconds.
    pub age_ms: u64,
    /// What is added to the charge, negative if it was too high. One number for each limit.
    pub amounts: Vec<i64>,
}

/// The answer of the broker to a [`Draw`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// The number of the draw that it answers.
    pub number: u64,
    /// The amounts that the member may use.
    pub amounts: Amounts,
    /// The number of members of the resource.
    pub members: usize,
    /// What all members have charged within the window of each limit, with this advance.
    pub charged: Amounts,
}

/// Time for which an advance may be used, which is also the time for which a member draws at once.
///
/// At most [`LeaseTimes::advance`](crate::LeaseTimes::advance), and less for limits per second: the
/// window is longer by this time, because an amount may be sent later than it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockTime(pub Duration);

impl StockTime {
    /// Returns the time for the shortest of `limits`, at most `longest`.
    pub fn of(limits: &[RateLimit], longest: Duration) -> Self {
        let shortest = limits.iter().map(|limit| limit.window_ms).min().unwrap_or(0);
        Self(Duration::from_millis(shortest / 80).min(longest).max(MIN_STOCK_TIME))
    }
}

/// Returns the time at which a test starts.
#[cfg(test)]
#[allow(clippy::disallowed_methods)]
pub(crate) fn epoch() -> std::time::Instant {
    std::time::Instant::now()
}
