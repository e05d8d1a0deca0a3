//! Faults to inject, and the state that decides when.
//!
//! Random ones draw from one generator with the seed of [`Faults::seed`], in order of arrival, so that a run
//! under virtual time repeats itself.

mod bucket;
mod config;
mod gate;
mod load;

pub(crate) use self::bucket::RateHeaders;
pub use self::config::{
    Counted, Cut, Faults, Outage, OutageMode, RateLimitWindow, SlowStart, Stall, TokenRate,
};
pub(crate) use self::gate::{FaultGate, Rejection, RetryAfter, StreamPlan};
pub use self::load::{Drift, LimitRamp, LoadGrowth, Overload};
