//! Runs the engines on tokio's clock, as one [`Simulator`].
//!
//! [`Simulator::respond`] is the whole server in process; the HTTP server ([`crate::serve`]) passes
//! every request to it. Under tokio's paused clock, a run takes virtual time and is reproducible.
//! The first call starts a background task that advances the engines from step to step. The task
//! ends when the last handle is dropped.

mod body;
mod call_guards;
mod clock;
mod control_api;
mod engine_task;
mod fault_responses;
mod metrics;
mod respond;
mod state;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::body::{BodyError, SimBody};
use self::clock::SimClock;
use self::metrics::Metrics;
use self::state::SimState;
use self::stats::StatsRecorder;
pub use self::stats::{AttemptEnd, LoggedAttempt, Stats, TenantStats};
use crate::config::SimConfig;
use crate::config_error::ConfigError;
use crate::faults::{FaultInjector, Faults};
use crate::pool::EnginePool;

/// A simulated vLLM deployment in process. Clones share one deployment.
#[derive(Clone)]
pub struct Simulator {
    shared: Arc<Shared>,
}

/// The connection of a request ends without an answer, because an outage with
/// [`OutageMode::Refuse`](crate::faults::OutageMode::Refuse) or
/// [`OutageMode::Kill`](crate::faults::OutageMode::Kill) is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The connection is refused, so that the request is not sent.
    #[error("connection refused by the simulator")]
    Refused,
    /// The connection breaks while the request waits for its answer.
    #[error("connection reset by the simulator")]
    Broken,
}

pub(super) struct Shared {
    config: SimConfig,
    clock: SimClock,
    state: Mutex<SimState>,
    wake: Arc<Notify>,
    task_started: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Lets an idle engine task see that no handle is left.
        self.wake.notify_one();
    }
}

impl Simulator {
    /// Returns a simulator whose simulated time starts now. Call this in the tokio runtime that
    /// will use the simulator, because it reads the clock of that runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if [`SimConfig::validate`] does.
    pub fn new(config: SimConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let clock = SimClock::new(config.time_scale);
        let pool = EnginePool::new(config.workers, &config.engine, config.routing);
        let model = config.models.first().map_or("sim", String::as_str);
        let metrics =
            Metrics::new(model, &pool).map_err(|e| ConfigError { key: "models", problem: e.to_string() })?;
        let faults = FaultInjector::new(config.faults.clone(), clock.now());
        let state = SimState::new(pool, faults, StatsRecorder::new(config.attempt_log), metrics);
        let (wake, task_started) = (Arc::new(Notify::new()), AtomicBool::new(false));
        Ok(Self { shared: Arc::new(Shared { config, clock, state: Mutex::new(state), wake, task_started }) })
    }

    /// Answers one request as vLLM's server would.
    ///
    /// For a stream, this returns the head at once, and the body yields events as the engine
    /// generates tokens. For any other call, this returns when the whole answer is generated. A
    /// malformed request gets an error answer.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectionError::Refused`] if an outage refuses or kills connections when the
    /// request arrives, and [`ConnectionError::Broken`] if an outage kills the server while the
    /// request waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or later the body, aborts the sequence at once, whether it waits or
    /// runs. The attempt counts as [`AttemptEnd::Aborted`].
    pub async fn respond(&self, request: Request<Bytes>) -> Result<Response<SimBody>, ConnectionError> {
        respond::respond(&self.shared, request).await
    }

    /// Replaces all faults. The times of the new faults count from now, and their random draws
    /// begin with their seed. Streams that have begun keep the pauses and cuts that were drawn for
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if [`Faults::validate`] does. The previous faults then stay in force.
    pub fn set_faults(&self, faults: Faults) -> Result<(), ConfigError> {
        faults.validate()?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        state.advance(now);
        state.faults = FaultInjector::new(faults, now);
        // An outage that begins now affects open streams.
        state.advance(now);
        drop(state);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Returns a copy of the faults in force.
    pub fn faults(&self) -> Faults {
        self.shared.state.lock().faults.faults().clone()
    }

    /// Calls [`Engine::set_max_num_seqs`](crate::engine::Engine::set_max_num_seqs) on every engine.
    pub fn set_max_num_seqs(&self, sequences: u32) {
        let mut state = self.shared.state.lock();
        state.advance(self.shared.clock.now());
        state.pool.set_max_num_seqs(sequences);
    }

    /// Returns the statistics since the start, or since the last [`Simulator::reset_stats`].
    pub fn stats(&self) -> Stats {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let now = state.advance(now);
        let mut stats = state.stats.snapshot();
        stats.now_s = now.as_secs_f64();
        stats.waiting = state.pool.waiting();
        stats.running = state.pool.running();
        stats.preemptions = state.pool.preemptions();
        stats.peak_kv = state.pool.peak_kv();
        stats
    }

    /// Clears the attempts, sums and maxima of the statistics. Attempts in flight still count as in
    /// flight; their ends are not counted.
    pub fn reset_stats(&self) {
        self.shared.state.lock().stats.reset();
    }

    /// Returns the `vllm:` metrics in Prometheus text format.
    pub fn metrics(&self) -> String {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        state.advance(now);
        state.metrics.render(&state.pool)
    }

    /// Returns the simulated time since the simulator was created.
    pub fn now(&self) -> std::time::Duration {
        self.shared.clock.now()
    }

    /// Returns the configuration that the simulator was created with.
    pub fn config(&self) -> &SimConfig {
        &self.shared.config
    }
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Shared {
    /// Starts the engine task if it was not started before. Each request calls this method, because
    /// a tokio runtime certainly exists only then.
    fn ensure_engine_task(self: &Arc<Self>) {
        if !self.task_started.swap(true, Ordering::AcqRel) {
            tokio::spawn(engine_task::run_engines(Arc::downgrade(self), Arc::clone(&self.wake)));
        }
    }
}
