//! Faults to inject, and the state that decides when.
//!
//! Random ones draw from one generator with the seed of [`Faults::seed`], in order of arrival, so that a run
//! under virtual time repeats itself.

mod config;
mod injector;
mod load_dependent;
mod token_bucket;

pub use self::config::{
    Faults, Outage, OutageMode, RateLimitWindow, SlowStart, Stall, StreamCut, TokenCounting, TokenRate,
};
pub(crate) use self::injector::{FaultInjector, Rejection, RetryAfter, StreamPlan};
pub use self::load_dependent::{Drift, LimitRamp, LoadGrowth, Overload};
pub(crate) use self::token_bucket::RateHeaders;
