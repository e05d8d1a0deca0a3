//! The eight replicas: engines with prefix caches, and the metrics that they report.

use std::time::Duration;

use tidegate::policy::placement::{EngineMetrics, ReplicaSet};
use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, SequenceId, StepCost};

use super::workload::{Call, Workload};

pub(crate) const REPLICAS: usize = 8;
/// Milliseconds to compute one prompt token.
pub(crate) const PROMPT_TOKEN_MS: f64 = 0.06;

/// Returns an engine of about the size of a node of eight GPUs.
///
/// It computes 17,000 prompt tokens per second, accepts the longest prompt of Mooncake's trace, and
/// caches a million tokens. The eight engines together cache about a third of all tokens of the
/// trace. For the workload of sessions, each caches a quarter of a million.
pub(crate) fn engine(workload: Workload) -> EngineConfig {
    EngineConfig {
        block_size: workload.block_size(),
        num_blocks: 2_048,
        max_num_seqs: 256,
        max_num_batched_tokens: 4_096,
        prefix_cache: true,
        max_model_len: 196_608,
        step: StepCost {
            base_ms: 15.0,
            per_prompt_token_ms: PROMPT_TOKEN_MS,
            per_sequence_ms: 0.15,
            ..StepCost::default()
        },
    }
}

/// The prompt tokens of an engine's calls since the start of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Prompt tokens of the calls that it has started.
    pub(crate) asked: u64,
    /// Prompt tokens that were found in the cache.
    pub(crate) cached: u64,
    /// Prompt tokens that were computed.
    pub(crate) computed: u64,
}

/// Eight engines, some of which may be down, and their metrics.
pub(crate) struct Replicas {
    pub(crate) engines: Vec<Engine>,
    down: ReplicaSet,
    /// Whether no engine reports metrics.
    pub(crate) mute: bool,
    /// For each engine, the prompt tokens that it had handled when it was last killed. Zero if it
    /// was not killed.
    lost: Vec<Work>,
    /// For each engine, the prompt tokens of the calls that have had their first token. vLLM counts
    /// a prompt at that time, as a whole.
    prompts: Vec<u64>,
    /// The metrics that the engines have reported since [`Replicas::freeze`]. `None` if metrics are
    /// not frozen.
    frozen: Option<Vec<Option<EngineMetrics>>>,
}

impl Replicas {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let engines = (0..REPLICAS).map(|_| Engine::new(config.clone())).collect();
        Self {
            engines,
            down: ReplicaSet::NONE,
            mute: false,
            lost: vec![Work::default(); REPLICAS],
            prompts: vec![0; REPLICAS],
            frozen: None,
        }
    }

    /// Returns the replicas that are up.
    pub(crate) fn up(&self) -> ReplicaSet {
        (0..self.engines.len()).collect::<ReplicaSet>().less(self.down)
    }

    /// Returns the metrics that the replica `at` reports. `None` if it is down or reports none.
    pub(crate) fn standing(&self, at: usize) -> Option<EngineMetrics> {
        if let Some(frozen) = &self.frozen {
            return frozen.get(at).copied().flatten();
        }
        let engine = self.engines.get(at).filter(|_| !self.mute && !self.down.contains(at))?;
        Some(EngineMetrics {
            running: engine.running() as f64,
            waiting: engine.waiting() as f64,
            kv_usage: Some(engine.blocks().usage()),
            kv_tokens: Some(engine.blocks().capacity_tokens()),
            prefix_queries: Some(engine.totals().prefix_queries as f64),
            prefix_hits: Some(engine.totals().prefix_hits as f64),
            prompt_tokens: self.prompts.get(at).map(|tokens| *tokens as f64),
            shares_prefixes: engine.config().prefix_cache,
        })
    }

    /// Makes all replicas keep reporting the metrics that they have now.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some((0..self.engines.len()).map(|at| self.standing(at)).collect());
    }

    /// Adds `prompt` tokens to the prompt tokens that the replica `at` reports. Must be called at
    /// the first token of a call.
    pub(crate) fn answers(&mut self, at: usize, prompt: u32) {
        if let Some(tokens) = self.prompts.get_mut(at) {
            *tokens += u64::from(prompt);
        }
    }

    /// Sends a call to the replica `at`. Returns `false` if the replica is down.
    pub(crate) fn send(&mut self, now: Duration, at: usize, id: SequenceId, call: &Call) -> bool {
        let Some(engine) = self.engines.get_mut(at).filter(|_| !self.down.contains(at)) else { return false };
        engine.submit_with(now, id, call.input, call.output, &call.blocks).is_ok()
    }

    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    pub(crate) fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        for engine in &mut self.engines {
            engine.advance(now, events);
        }
    }

    /// Kills a replica, with all calls on it and its cache.
    pub(crate) fn kill(&mut self, at: usize) {
        let done = self.work(at);
        if let Some((engine, lost)) = self.engines.get_mut(at).zip(self.lost.get_mut(at)) {
            *lost = done;
            engine.reset();
            self.prompts.iter_mut().skip(at).take(1).for_each(|tokens| *tokens = 0);
            self.down.insert(at);
        }
    }

    pub(crate) fn bring_back(&mut self, at: usize) {
        self.down.remove(at);
    }

    pub(crate) fn slow(&mut self, at: usize, factor: f64) {
        if let Some(engine) = self.engines.get_mut(at) {
            engine.set_slowdown(factor);
        }
    }

    /// Returns the work of a replica, including its work before it was killed.
    pub(crate) fn work(&self, at: usize) -> Work {
        let Some((engine, lost)) = self.engines.get(at).zip(self.lost.get(at)) else {
            return Work::default();
        };
        let totals = engine.totals();
        Work {
            asked: lost.asked + totals.prefix_queries,
            cached: lost.cached + totals.prefix_hits,
            computed: lost.computed + totals.prefill_tokens,
        }
    }
}
