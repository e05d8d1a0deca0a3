//! A server, and the connection to it.

use std::time::Duration;

use tidegate::Transport;
use tidegate_sim::{SimConfig, Simulator};
use tidegate_sweep::CpuMonitor;
use tidegate_test_servers::simulator_transport;

use super::client::Laborious;
use crate::Fallible;

/// A server that a sweep is played against.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) config: SimConfig,
    pub(crate) round_trip: Duration,
    /// The client's time per event.
    pub(crate) labour: Duration,
}

/// A running server.
pub(crate) struct Running {
    pub(crate) simulator: Simulator,
    pub(crate) transport: Transport,
    /// The client's processor use, if it is measured.
    pub(crate) cpu: Option<CpuMonitor>,
}

impl Server {
    /// Starts the server in the current runtime.
    pub(crate) fn start(&self) -> Fallible<Running> {
        let simulator = Simulator::new(self.config.clone())?;
        let transport = simulator_transport(&simulator, self.round_trip);
        if self.labour.is_zero() {
            return Ok(Running { simulator, transport, cpu: None });
        }
        let client = Laborious::new(transport, self.labour);
        let cpu = Some(client.cpu());
        Ok(Running { simulator, transport: Transport::new(client), cpu })
    }
}
