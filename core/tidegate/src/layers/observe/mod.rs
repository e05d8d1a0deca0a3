//! Observation of calls: the log of calls, and the layer that counts and logs each call once.
//!
//! Each attempt has five timestamps (queued, admitted, sent, first token, released), and each call
//! has one outcome. When a call ends, the [`ObserveLayer`] adds both to the
//! [metrics](crate::metrics) and to the [`CallLog`].

mod call_log;
mod layer;
mod open_record;

pub(crate) use call_log::CallLog;
pub use call_log::{AttemptRecord, CallRecord, LOGGED_CALLS};
pub(crate) use layer::ObserveLayer;
pub(crate) use open_record::OpenRecord;
