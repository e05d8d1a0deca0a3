//! Observation of calls: the log of calls, and the layer that counts and logs each call once.
//!
//! Each attempt has five timestamps (queued, admitted, sent, first token, released), and each call
//! has one outcome. When a call ends, the [`ObserveLayer`] adds both to the
//! [metrics](crate::metrics) and to the [`CallLog`].

mod layer;
mod log;
mod tally;

pub(crate) use layer::ObserveLayer;
pub(crate) use log::CallLog;
pub use log::{AttemptRecord, CallRecord, LOGGED_CALLS};
pub(crate) use tally::Tally;
