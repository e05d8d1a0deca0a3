//! Monitors of the client's CPU usage and of the engine's metrics.

use crate::observation::EngineObservation;

/// Shares of the CPU time of this machine that were used since the previous measurement, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuUsage {
    /// Share that this process used.
    pub process: f64,
    /// Share that all programs used together, or `None` if unknown.
    pub machine: Option<f64>,
}

/// Function that returns the CPU usage since the previous call, or `None` if unknown.
pub type CpuMonitor = Box<dyn FnMut() -> Option<CpuUsage> + Send>;

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
