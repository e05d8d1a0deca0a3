//! What the client says of itself, and the engine of itself.

use crate::seen::EngineSeen;

/// The share of this process' processors that it used since it was asked last, 0 to 1. `None`: it cannot be told.
pub type Cpu = Box<dyn FnMut() -> Option<f64> + Send>;

/// Signals from outside of the calls.
#[derive(Default)]
pub(crate) struct Signals {
    pub(crate) cpu: Option<Cpu>,
    pub(crate) engine: Option<tokio::sync::watch::Receiver<Option<EngineSeen>>>,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals")
            .field("cpu", &self.cpu.is_some())
            .field("engine", &self.engine.is_some())
            .finish()
    }
}
