//! Tests of the prefix cache with prompts that have a common prefix.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, StepCost};

/// Returns a configuration in which a step takes 10 ms, plus 1 ms per prompt token.
fn config() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        num_blocks: 10,
        max_num_seqs: 4,
        max_num_batched_tokens: 100,
        max_model_len: 40,
        prefix_cache: true,
        step: StepCost {
            base_ms: 10.0,
            per_prompt_token_ms: 1.0,
            per_sequence_ms: 0.0,
            ..StepCost::default()
        },
    }
}

/// Advances the engine until it is idle, and returns its events.
fn run(engine: &mut Engine) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_event() {
        engine.advance(at, &mut events);
    }
    events
}

/// Submits one sequence to an idle engine, and returns its time to first token in milliseconds.
fn first_token_ms(engine: &mut Engine, id: u64, prompt: u32, hashes: &[u64]) -> u128 {
    let now = Duration::from_secs(id);
    engine.submit_with(now, SequenceId(id), prompt, 1, hashes).unwrap();
    let events = run(engine);
    let first = events.iter().find(|event| event.kind == EventKind::Token { index: 0 }).unwrap();
    (first.at - now).as_millis()
}

#[test]
fn cached_prefix_is_not_recomputed_except_its_last_token() {
    let mut engine = Engine::new(config());
    assert_eq!(first_token_ms(&mut engine, 1, 14, &[1, 2, 3]), 24);
    assert_eq!(
        first_token_ms(&mut engine, 2, 14, &[1, 2, 3]),
        12,
        "all but the two tokens of a part of a block"
    );
    assert_eq!(
        first_token_ms(&mut engine, 3, 12, &[1, 2, 3]),
        14,
        "its last token has to be computed, and with it its block"
    );
    assert_eq!(first_token_ms(&mut engine, 4, 14, &[1, 9, 3]), 20, "another middle, another end");
    assert_eq!((engine.totals().prefix_queries, engine.totals().prefix_hits), (54, 12 + 8 + 4));
}

#[test]
fn hashes_are_ignored_without_a_prefix_cache() {
    let mut engine = Engine::new(EngineConfig { prefix_cache: false, ..config() });
    assert_eq!(first_token_ms(&mut engine, 1, 14, &[1, 2, 3]), 24);
    assert_eq!(first_token_ms(&mut engine, 2, 14, &[1, 2, 3]), 24);
    assert_eq!((engine.totals().prefix_queries, engine.totals().prefix_hits), (0, 0));
}

#[test]
fn least_recently_used_blocks_are_evicted_last_block_first() {
    let mut engine = Engine::new(config());
    first_token_ms(&mut engine, 1, 16, &[1, 2, 3, 4]);
    first_token_ms(&mut engine, 2, 16, &[11, 12, 13, 14]);
    // Two blocks were never used; this prompt takes one more.
    first_token_ms(&mut engine, 3, 12, &[21, 22, 23]);
    let kept = |hashes: &[u64]| engine.blocks().prefix(hashes, 17);
    assert_eq!((kept(&[1, 2, 3, 4]), kept(&[11, 12, 13, 14]), kept(&[21, 22, 23])), (12, 16, 12));
    assert_eq!((engine.blocks().used(), engine.blocks().idle()), (0, 10));
}

#[test]
fn running_sequences_share_blocks_that_are_never_evicted() {
    let mut engine = Engine::new(EngineConfig { max_num_batched_tokens: 20, ..config() });
    let mut events = Vec::new();
    engine.submit_with(Duration::ZERO, SequenceId(1), 16, 20, &[1, 2, 3, 4]).unwrap();
    engine.advance(Duration::from_millis(26), &mut events);
    engine.submit_with(Duration::from_millis(27), SequenceId(2), 17, 1, &[1, 2, 3, 4]).unwrap();
    engine.advance(Duration::from_millis(40), &mut events);
    assert_eq!(engine.totals().prefix_hits, 16);
    assert_eq!(engine.blocks().used(), 6, "four that are shared, and one of each");
    run(&mut engine);
    assert_eq!(engine.blocks().used(), 0);
}

#[test]
fn next_turn_reuses_generated_blocks() {
    let mut engine = Engine::new(config());
    engine.submit_with(Duration::ZERO, SequenceId(1), 6, 7, &[1, 2, 3]).unwrap();
    run(&mut engine);
    assert_eq!(
        engine.blocks().prefix(&[1, 2, 3], 20),
        12,
        "the last token generated was never computed: 12 of 13"
    );
}

#[test]
fn uncomputed_excludes_cached_tokens() {
    let mut engine = Engine::new(EngineConfig { max_num_seqs: 1, ..config() });
    first_token_ms(&mut engine, 1, 8, &[1, 2]);
    engine.submit_with(Duration::from_secs(2), SequenceId(2), 20, 5, &[]).unwrap();
    engine.submit_with(Duration::from_secs(2), SequenceId(3), 14, 5, &[1, 2, 3]).unwrap();
    assert_eq!(engine.uncomputed(), 20 + 6);
    engine.advance(Duration::from_millis(2_050), &mut Vec::new());
    assert_eq!(engine.uncomputed(), 6);
}

#[derive(Debug, Clone)]
struct Load {
    after_ms: u64,
    path: Vec<u8>,
    prompt: u32,
    output: u32,
}

fn load() -> impl Strategy<Value = Load> {
    (0u64..200, prop::collection::vec(0u8..2, 0..10), 1u32..40, 1u32..30)
        .prop_map(|(after_ms, path, prompt, output)| Load { after_ms, path, prompt, output })
}

/// Submits one sequence per load, advances the engine until all have ended, and returns the events
/// and the engine. If `own` is `true`, each sequence gets different hashes, so that no blocks are
/// shared.
fn play(config: EngineConfig, loads: &[Load], own: bool) -> (Vec<EngineEvent>, Engine) {
    let mut engine = Engine::new(config);
    let (mut now, mut events) = (Duration::ZERO, Vec::new());
    for (id, load) in loads.iter().enumerate() {
        now += Duration::from_millis(load.after_ms);
        engine.advance(now, &mut events);
        let mut hash = if own { (2 * id as u64 + 1) << 12 } else { 1 };
        let hashes: Vec<u64> = load
            .path
            .iter()
            .map(|branch| {
                hash = hash * 2 + u64::from(*branch);
                hash
            })
            .collect();
        engine.submit_with(now, SequenceId(id as u64), load.prompt, load.output, &hashes).unwrap();
        assert!(engine.blocks().used() + engine.blocks().idle() <= engine.blocks().total());
    }
    events.append(&mut run(&mut engine));
    (events, engine)
}

fn large() -> EngineConfig {
    EngineConfig { num_blocks: 2_000, max_model_len: 100, ..config() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unshared_prompts_gain_nothing(loads in prop::collection::vec(load(), 1..30)) {
        let (events, engine) = play(large(), &loads, true);
        prop_assert_eq!(engine.totals().prefix_hits, 0);
        prop_assert_eq!(events, play(EngineConfig { prefix_cache: false, ..large() }, &loads, true).0);
    }

    #[test]
    fn every_prompt_token_is_cached_or_computed(loads in prop::collection::vec(load(), 1..30)) {
        let (_, engine) = play(large(), &loads, false);
        let totals = engine.totals();
        prop_assert_eq!(totals.preemptions, 0);
        prop_assert_eq!(totals.prefix_queries, loads.iter().map(|load| u64::from(load.prompt)).sum::<u64>());
        prop_assert_eq!(totals.prefill_tokens + totals.prefix_hits, totals.prefix_queries);
    }

    #[test]
    fn small_cache_changes_only_timing(loads in prop::collection::vec(load(), 1..30)) {
        let (events, engine) = play(EngineConfig { num_blocks: 18, max_model_len: 72, ..config() }, &loads, false);
        for (id, load) in loads.iter().enumerate() {
            let own = events.iter().filter(|event| event.id == SequenceId(id as u64));
            let tokens = own.filter(|event| matches!(event.kind, EventKind::Token { .. })).count();
            prop_assert_eq!(tokens, load.output as usize);
        }
        prop_assert_eq!(engine.blocks().used(), 0, "something was left");
    }
}
