//! Observation: metrics, snapshots and the log of calls.
//!
//! Each attempt has five timestamps (queued, admitted, sent, first token, released), and each call
//! has one outcome. When a call ends, the [`ObserveLayer`] adds both to the metrics and to the
//! [`CallLog`].

mod layer;
mod limit;
mod log;
mod metrics;
mod outcome;
mod quantiles;
mod replica;
mod snapshot;
mod tally;

pub use layer::ObserveLayer;
pub use limit::{DecisionSnapshot, LimitSnapshot};
pub use log::{AttemptRecord, CallLog, CallRecord, KEPT};
pub(crate) use metrics::{
    CALLED_BACK, DEFAULT_TENANT, ELSEWHERE, Hedged, HeldHow, Metrics, REPLICA_DOWN, TargetMetrics,
    TenantMetrics, ToolMetrics,
};
pub use outcome::Outcome;
pub use quantiles::Quantiles;
pub use replica::ReplicaSnapshot;
pub use snapshot::{
    BudgetSnapshot, KvSnapshot, LaneSnapshot, Snapshot, TargetSnapshot, TenantSnapshot, ToolSnapshot,
};
pub(crate) use tally::Tally;
