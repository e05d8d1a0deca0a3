//! Simulators without an engine limit, for experiments on policies.

use std::time::Duration;

use tidegate_sim::{Faults, SimConfig};
use tidegate_test_servers::constant_steps;

/// Returns the configuration of a simulator that answers each call in about `service` at any load.
///
/// A call begins at the next step of the engine, so an answer takes 8 to 9 eighths of `service`.
pub(crate) fn steady(service: Duration, faults: Faults) -> SimConfig {
    let step_ms = service.as_secs_f64() * 1e3 / f64::from(STEADY_TOKENS);
    SimConfig { attempt_log: 1_000_000, ..constant_steps(step_ms, faults) }
}

/// Output tokens of a call for which [`steady`] takes `service`. Each token takes one step.
pub(crate) const STEADY_TOKENS: u32 = 8;
