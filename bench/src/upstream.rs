//! Simulators without an engine limit, for experiments on policies.

use std::time::Duration;

use tidegate_sim::{Faults, SimConfig};
use tidegate_test_servers::constant_steps;

/// Returns the configuration of a simulator that answers each call in about `service`, regardless
/// of load.
///
/// A call begins at the next step, so it takes between 8 and 9 eighths of `service`.
pub(crate) fn steady(service: Duration, faults: Faults) -> SimConfig {
    let step_ms = service.as_secs_f64() * 1e3 / f64::from(STEADY_TOKENS);
    SimConfig { attempt_log: 1_000_000, ..constant_steps(step_ms, faults) }
}

/// The number of tokens of an answer of [`steady`], each of which takes one step.
pub(crate) const STEADY_TOKENS: u32 = 8;
