//! What the client says of itself, and the engine of itself.

use crate::observation::EngineObservation;

/// The share of this process' processors that it used since it was asked last, 0 to 1. `None`: it cannot be told.
pub type CpuMonitor = Box<dyn FnMut() -> Option<f64> + Send>;

/// Signals from outside of the calls.
#[derive(Default)]
pub(crate) struct Monitors {
    pub(crate) cpu: Option<CpuMonitor>,
    pub(crate) engine: Option<tokio::sync::watch::Receiver<Option<EngineObservation>>>,
}

impl std::fmt::Debug for Monitors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitors")
            .field("cpu", &self.cpu.is_some())
            .field("engine", &self.engine.is_some())
            .finish()
    }
}
