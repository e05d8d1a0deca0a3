//! The configuration of a simulated upstream that answers in constant time at any load.

use std::time::Duration;

use tidegate_sim::{Faults, SimConfig};
use tidegate_test_servers::constant_steps;

/// Returns the configuration of a simulator that answers a call of [`STEADY_TOKENS`] output tokens
/// in about the duration `service`, at any load.
///
/// A call begins at the next step of the simulated engine, and each step takes an eighth of
/// `service`. So the answer takes between `service` and 9/8 of `service`.
pub(crate) fn steady(service: Duration, faults: Faults) -> SimConfig {
    let step_ms = service.as_secs_f64() * 1e3 / f64::from(STEADY_TOKENS);
    SimConfig { attempt_log: 1_000_000, ..constant_steps(step_ms, faults) }
}

/// The number of output tokens that a call must have for the simulator of [`steady`] to answer it
/// in about the given duration. Each token takes one step of the engine.
pub(crate) const STEADY_TOKENS: u32 = 8;
