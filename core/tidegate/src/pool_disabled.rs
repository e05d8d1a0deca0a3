//! Replaces the module `pool` in a build without the feature `pool`: no target is a pool, and no
//! metrics are read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::{Request, Uri};

use crate::admission::Admission;
use crate::body::RequestBody;
use crate::config::{PoolConfig, TargetConfig};
use crate::error::Error;
use crate::transport::Transport;

/// The pool of a target. This type has no values, because the configuration rejects pools in this
/// build.
pub(crate) enum TargetPool {}

impl TargetPool {
    pub(crate) fn new(_: &TargetConfig, _: &Arc<Admission>) -> Option<Self> {
        None
    }

    pub(crate) fn start(&self, _: &PoolConfig, _: &Transport, _: bool) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn on_call(&self) {
        match *self {}
    }

    pub(crate) async fn wait_for_first_lookup(&self, _: Duration) {
        match *self {}
    }

    pub(crate) fn problem(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn explain_rejection(&self, _: Error) -> Error {
        match *self {}
    }

    pub(crate) fn url_at(&self, _: &Uri, _: &Arc<str>) -> Option<Uri> {
        match *self {}
    }

    pub(crate) async fn route_in_turn(&self, _: &mut Request<RequestBody>, _: Duration) -> Result<(), Error> {
        match *self {}
    }
}

/// The engines of a gate, of which this build knows none.
pub(crate) struct Engines;

impl Engines {
    pub(crate) fn new(_: Transport) -> Arc<Self> {
        Arc::new(Self)
    }
}

/// The monitor of an engine. This type has no values, because this build reads no metrics.
pub(crate) enum EngineMonitor {}

impl EngineMonitor {
    pub(crate) fn new(_: &TargetConfig, _: &Arc<Admission>, _: Arc<AtomicBool>) -> Option<Self> {
        None
    }

    pub(crate) fn start(&self, _: &Arc<Engines>) {
        match *self {}
    }

    pub(crate) fn on_attempt(&self, _: &Uri, _: bool) -> bool {
        match *self {}
    }

    pub(crate) fn on_vllm_answer(&self) {
        match *self {}
    }
}
