//! The configurations of the vLLM servers. `bench/vllm/run.py` starts vLLM with them, and the
//! simulator uses the same.

use std::collections::BTreeMap;

use tidegate_sim::engine::EngineConfig;

use super::load::Lengths;
use crate::Fallible;

const ENGINES: &str = include_str!("../../../vllm/engines.json");

/// A configuration of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// At most 16 sequences run at the same time, and further calls wait in the server's queue.
    Queue,
    /// Like `Queue`, but a prompt token takes three times as long, which is longer than two cores
    /// need for it: 0.2 to 0.22 ms in a prompt of 400 to 1,000 tokens.
    Tenants16,
    /// At most 256 sequences, which is never reached: prompts wait because a step computes a
    /// bounded number of tokens. Steps take a third longer than in `Tenants16`, because the
    /// server's own work between steps grows with the sequences.
    Tenants256,
    /// The KV cache is too small for the calls in the batch, so sequences are preempted.
    Kv,
    /// Like `SweepKv`, with the time per prompt token of `Tenants16` and a quarter of the tokens
    /// per step, so that long prompts take several steps.
    KvPrompts,
    /// Like `Queue`, with longer steps, because two servers and the client share two cores.
    Pool,
    /// Like `Queue` with at most 8, 16 or 24 sequences, and without a prefix cache. To the server's
    /// tokenizer, all words of a sweep's prompts are the same, unknown word.
    Sweep8,
    Sweep16,
    Sweep24,
    /// Like `Sweep24`, with the time per prompt token of `Tenants16`.
    SweepPrompts,
    /// Like `Kv`, without a prefix cache.
    SweepKv,
}

impl Profile {
    /// Returns the name in `bench/vllm/engines.json`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Profile::Queue => "queue",
            Profile::Tenants16 => "tenants-16",
            Profile::Tenants256 => "tenants-256",
            Profile::Kv => "kv",
            Profile::KvPrompts => "kv-prompts",
            Profile::Pool => "pool",
            Profile::Sweep8 => "sweep-8",
            Profile::Sweep16 => "sweep-16",
            Profile::Sweep24 => "sweep-24",
            Profile::SweepPrompts => "sweep-prompts",
            Profile::SweepKv => "sweep-kv",
        }
    }
}

/// Returns the engine of `profile`.
pub(super) fn engine(profile: Profile) -> Fallible<EngineConfig> {
    let mut engines: BTreeMap<String, EngineConfig> = serde_json::from_str(ENGINES)?;
    Ok(engines.remove(profile.name()).ok_or("bench/vllm/engines.json lacks a profile")?)
}

/// Returns the number of calls of the given mean lengths that `engine` completes per second while
/// its batch has as many sequences or tokens as it can. The KV cache must have room for all
/// sequences of the batch.
pub(super) fn capacity(engine: &EngineConfig, lengths: Lengths) -> f64 {
    // A sequence uses a token of each step, and its part of the prompts of later ones.
    let tokens_per_sequence = 1.0 + lengths.mean_prompt() / lengths.mean_output();
    let sequences =
        f64::from(engine.max_num_seqs).min(f64::from(engine.max_num_batched_tokens) / tokens_per_sequence);
    let calls_per_step = sequences / lengths.mean_output();
    let step = &engine.step;
    let ms = step.base_ms
        + step.per_sequence_ms * sequences
        + step.per_prompt_token_ms * lengths.mean_prompt() * calls_per_step;
    calls_per_step / ms * 1e3
}
