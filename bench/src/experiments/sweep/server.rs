//! One server, and the way to it.

use std::time::Duration;

use tidegate::Transport;
use tidegate_sim::{SimConfig, Simulator};
use tidegate_sweep::CpuMonitor;
use tidegate_test_servers::simulator_transport;

use super::client::Laborious;
use crate::Fallible;

/// What a sweep is played against.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) config: SimConfig,
    pub(crate) round_trip: Duration,
    /// What each event costs this client.
    pub(crate) labour: Duration,
}

/// It runs.
pub(crate) struct Running {
    pub(crate) simulator: Simulator,
    pub(crate) transport: Transport,
    /// How busy the client is, where that is known.
    pub(crate) cpu: Option<CpuMonitor>,
}

impl Server {
    /// Starts it, in the runtime that this is called in.
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
