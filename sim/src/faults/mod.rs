//! Faults to inject, and the state that decides when they occur.
//!
//! Random faults draw from one generator, seeded with [`Faults::seed`], in order of arrival, so a
//! run in virtual time is reproducible.

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
