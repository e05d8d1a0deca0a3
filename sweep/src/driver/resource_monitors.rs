//! Monitors of the client's CPU usage and of the engine's metrics.

use crate::observation::EngineObservation;

/// Function that returns the share of the available CPU time that this process used since the
/// previous call, 0 to 1, or `None` if unknown.
pub type CpuMonitor = Box<dyn FnMut() -> Option<f64> + Send>;

/// The monitors of a sweep. A field that is `None` means that its quantity is not monitored.
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
