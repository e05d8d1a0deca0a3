//! Converts the upstreams of `adaptive` to configurations of the simulator.

use std::time::Duration;

use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::faults::Stall;
use tidegate_sim::{Faults, SimConfig, Simulator};
use tokio::time::{Instant, sleep_until};

use crate::Fallible;
use crate::experiments::adaptive::prepared_scenario::Server;
use crate::experiments::adaptive::upstream::Change;

/// A number of blocks, sequences or tokens that no run reaches.
const PLENTY: u32 = 1_000_000;

pub(super) fn config(server: &Server) -> SimConfig {
    let (workers, engine, faults) = match server {
        Server::Engines { engines, config } => (*engines, config.clone(), Faults::default()),
        Server::Hosted { at_once, .. } => (1, unbound(), turned_away(*at_once)),
    };
    SimConfig { workers, engine, faults, ..SimConfig::calibrated() }
}

/// Returns an engine that produces 50 tokens per second for each call, at any concurrency.
fn unbound() -> EngineConfig {
    EngineConfig {
        num_blocks: PLENTY,
        max_num_seqs: PLENTY,
        max_num_batched_tokens: PLENTY,
        prefix_cache: false,
        step: StepCost {
            base_ms: 20.0,
            per_prompt_token_ms: 0.0,
            per_sequence_ms: 0.0,
            ..StepCost::default()
        },
        ..EngineConfig::default()
    }
}

/// Returns faults with which the simulator answers 429, without Retry-After, to each call above
/// `at_once` concurrent calls, and delays each first token by about 0.3 s.
fn turned_away(at_once: usize) -> Faults {
    Faults {
        concurrency_limit: Some(at_once),
        stall_before_headers: Some(Stall { seconds: Some(0.28), ..Stall::default() }),
        ..Faults::default()
    }
}

/// Applies each change of a scenario to the simulator at its time, counted from the call of this
/// function. Returns after the last change.
///
/// # Errors
///
/// Returns an error if the simulator cannot make a change.
pub(super) async fn change(
    simulator: Simulator,
    server: Server,
    changes: Vec<(Duration, Change)>,
) -> Fallible<()> {
    let start = Instant::now();
    for (at, change) in changes {
        sleep_until(start + at).await;
        match (change, &server) {
            (Change::No, _) => {}
            (Change::AtOnce(sequences), Server::Engines { .. }) => simulator.set_max_num_seqs(sequences),
            (Change::AtOnce(calls), Server::Hosted { .. }) => {
                simulator.set_faults(turned_away(calls as usize))?;
            }
            (other, _) => return Err(format!("the simulator cannot do this: {other:?}").into()),
        }
    }
    Ok(())
}
