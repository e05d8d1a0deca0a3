//! The inputs and the result of the driver.

use std::sync::Arc;

use tidegate::Gate;
use tokio::sync::{mpsc, watch};

use super::call_log::CallLine;
use super::event_hub::{DriverEvent, EventHub};
use super::recorded_search::SearchSession;
use super::resource_monitors::Monitors;
use crate::endpoint::Endpoint;
use crate::mix::Mix;
use crate::progress::SweepProgress;
use crate::sweep_outcome::{SeriesPoint, SweepEnd};

/// Inputs of [`Driver`](super::Driver).
pub(crate) struct DriverParts<'a> {
    pub(crate) gate: Gate,
    pub(crate) target: String,
    pub(crate) hub: Arc<EventHub>,
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) mix: Mix,
    pub(crate) session: SearchSession,
    pub(crate) monitors: Monitors,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) progress: &'a mut (dyn FnMut(&SweepProgress) + Send),
    pub(crate) log: &'a mut (dyn FnMut(&CallLine) + Send),
}

/// Result of [`Driver::run`](super::Driver::run).
pub(crate) struct DriverResult {
    pub(crate) session: SearchSession,
    pub(crate) ended: SweepEnd,
    pub(crate) series: Vec<SeriesPoint>,
    /// Status and error code of the response that rejected the key, if that ended the sweep.
    /// Otherwise `None`.
    pub(crate) rejection: Option<String>,
}
