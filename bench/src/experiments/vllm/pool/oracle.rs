//! An oracle that knows the exact cache, batch and queue of each engine. Shows what a placement can
//! reach on a trace.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId};
use tidegate_sim::scenario::quantile;

use super::conversations::Turn;
use crate::Fallible;

/// The weights that the oracle gives to the time in which the uncached part of a prompt is
/// computed, relative to the time to the call's own first token. This computation delays other
/// calls.
pub(super) const WEIGHTS: [f64; 4] = [0.0, 1.0, 4.0, 16.0];

/// What an oracle reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// The cached share of the prompt tokens, from 0 to 1.
    pub(super) hit_rate: f64,
    pub(super) p99_ttft_ms: f64,
}

/// Plays the trace in the simulator, on `replicas` engines without a gate. Each call is sent to the
/// engine with the lowest cost: the exact time to its first token if no other call followed, plus
/// `weight` times the time to compute its uncached tokens.
pub(super) fn play(config: &EngineConfig, replicas: usize, turns: &[Turn], weight: f64) -> Fallible<Reached> {
    let mut engines: Vec<Engine> = (0..replicas).map(|_| Engine::new(config.clone())).collect();
    let mut sent = HashMap::new();
    let mut ttft_ms = Vec::new();
    let mut record = |sent: &HashMap<SequenceId, Duration>, events: &mut Vec<EngineEvent>| {
        for event in events.drain(..).filter(|event| event.kind == EventKind::Token { index: 0 }) {
            let at = sent.get(&event.id).copied().unwrap_or_default();
            ttft_ms.push((event.at - at).as_secs_f64() * 1e3);
        }
    };
    let mut events = Vec::new();
    for (nth, turn) in turns.iter().enumerate() {
        let id = SequenceId(nth as u64);
        for engine in &mut engines {
            engine.advance(turn.at, &mut events);
        }
        record(&sent, &mut events);
        let costs = engines.iter().enumerate().map(|(at, engine)| Ok((cost(engine, id, turn, weight)?, at)));
        let costs: Vec<(f64, usize)> = costs.collect::<Fallible<_>>()?;
        let best = costs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, at)| at);
        let engine = engines.get_mut(best).ok_or("no engine")?;
        engine.submit_with(
            turn.at,
            id,
            turn.prompt_tokens(),
            turn.output,
            &turn.blocks(config.block_size),
        )?;
        sent.insert(id, turn.at);
    }
    for engine in &mut engines {
        engine.advance(Duration::MAX, &mut events);
    }
    record(&sent, &mut events);
    let total = |of: fn(&Engine) -> u64| engines.iter().map(of).sum::<u64>() as f64;
    let hit_rate =
        total(|engine| engine.totals().prefix_hits) / total(|engine| engine.totals().prefix_queries);
    Ok(Reached { hit_rate, p99_ttft_ms: quantile(&mut ttft_ms, 0.99) })
}

/// Returns the cost of sending a call to the engine, in seconds.
fn cost(engine: &Engine, id: SequenceId, turn: &Turn, weight: f64) -> Fallible<f64> {
    let config = engine.config();
    let blocks = turn.blocks(config.block_size);
    let uncached = turn.prompt_tokens() - engine.blocks().prefix(&blocks, turn.prompt_tokens());
    let mut trial = engine.clone();
    trial.submit_with(turn.at, id, turn.prompt_tokens(), turn.output, &blocks)?;
    let mut events = Vec::new();
    let first = loop {
        let at = trial.next_event().ok_or("the engine does not answer")?;
        trial.advance(at, &mut events);
        let is_first = |event: &&EngineEvent| event.id == id && event.kind == EventKind::Token { index: 0 };
        if let Some(event) = events.iter().find(is_first) {
            break event.at;
        }
        events.clear();
    };
    let computes = config.step.per_prompt_token_ms / 1e3 * f64::from(uncached);
    Ok((first - turn.at).as_secs_f64() + weight * computes)
}
