//! What a simulator is made of.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::EngineConfig;
use crate::pool::Routing;

/// Workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimConfig {
    /// Engines.
    pub workers: usize,
    /// Router.
    pub routing: Routing,
    /// Each engine.
    pub engine: EngineConfig,
    /// Milliseconds from the client to the engine's queue.
    pub ingress_ms: f64,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { workers: 2, routing: Routing::RoundRobin, engine: EngineConfig::default(), ingress_ms: 0.0 }
    }
}

impl SimConfig {
    /// Time from client to queue.
    pub fn ingress(&self) -> Duration {
        Duration::try_from_secs_f64(self.ingress_ms / 1e3).unwrap_or(Duration::ZERO)
    }
}
