//! A simulated server that a sweep or a peer measures, and the connection to it.

use std::time::Duration;

use tidegate::Transport;
use tidegate_sim::faults::{LimitRamp, LoadGrowth, Overload, TokenRate};
use tidegate_sim::{SimConfig, Simulator};
use tidegate_sweep::CpuMonitor;
use tidegate_test_servers::simulator_transport;

use super::slow_client::SlowReader;
use crate::Fallible;

/// A simulated server, and the client's connection to it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) config: SimConfig,
    pub(crate) round_trip: Duration,
    /// The time that the client needs to read an event of a stream. Zero if the client is not the
    /// slow one of [`slow_client`](super::slow_client).
    pub(crate) read_time: Duration,
}

/// A simulator, and a transport to it.
pub(crate) struct Running {
    pub(crate) simulator: Simulator,
    pub(crate) transport: Transport,
    /// The monitor of the client's processor. `None` if the client is not slow.
    pub(crate) cpu: Option<CpuMonitor>,
}

impl Server {
    /// Returns a description of the server: the values that scenarios set, under names that do not
    /// depend on the simulator's.
    ///
    /// Two servers have the same description if they have the same long-run yields. A scenario that
    /// sets another value of the simulator has to add it here.
    pub(crate) fn description(&self) -> String {
        let SimConfig { engine, faults, .. } = &self.config;
        let step = &engine.step;
        let mut parts = vec![
            format!("round trip {} ms", self.round_trip.as_millis()),
            format!(
                "step {} ms + {} per prompt token + {} per sequence + {} squared",
                step.base_ms, step.per_prompt_token_ms, step.per_sequence_ms, step.per_sequence_squared_ms
            ),
            format!("{} blocks of {} tokens", engine.num_blocks, engine.block_size),
            format!(
                "at most {} sequences, {} tokens a step, {} tokens a sequence",
                engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len
            ),
        ];
        if !self.read_time.is_zero() {
            parts.push(format!("client {} ms per event", self.read_time.as_millis()));
        }
        if let Some(limit) = faults.concurrency_limit {
            parts.push(format!("limit {limit} calls"));
        }
        if let Some(seconds) = faults.limits_retry_after_s {
            parts.push(format!("Retry-After {seconds} s"));
        }
        if faults.hide_limit_name {
            parts.push("limit not named".to_owned());
        }
        if let Some(TokenRate { tokens_per_minute, burst_s, headers, retry_after, .. }) = &faults.token_rate {
            let rate = tokens_per_minute.unwrap_or_default();
            parts.push(format!("{rate} tokens per minute, burst {burst_s} s"));
            parts.push(format!("rate headers {headers}, rate Retry-After {retry_after}"));
        }
        if let Some(LoadGrowth { at_once, per_s }) = faults.load_growth {
            parts.push(format!("load grows from {at_once} by {per_s} per s"));
        }
        if let Some(LimitRamp { from, over_s }) = faults.limit_ramp {
            parts.push(format!("limit rises from {from} over {over_s} s"));
        }
        if let Some(Overload { above, for_s, factor, limit }) = faults.overload {
            let limit = limit.map_or_else(String::new, |limit| format!(" with limit {limit}"));
            parts.push(format!("above {above} calls {factor} times slower{limit} for {for_s} s"));
        }
        parts.join(", ")
    }

    /// Starts the server in the current runtime.
    pub(crate) fn start(&self) -> Fallible<Running> {
        let simulator = Simulator::new(self.config.clone())?;
        let transport = simulator_transport(&simulator, self.round_trip);
        if self.read_time.is_zero() {
            return Ok(Running { simulator, transport, cpu: None });
        }
        let client = SlowReader::new(transport, self.read_time);
        let cpu = Some(client.cpu());
        Ok(Running { simulator, transport: Transport::new(client), cpu })
    }
}
