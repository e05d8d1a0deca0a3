//! What is seen of each call: the five stamps of every attempt, one outcome per call, histograms and counters.

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
