//! Tests of the engine's schedule, with loads so small that the schedule can be computed by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, StepCost};
use tidegate_sim::pool::{EnginePool, Routing};

/// Returns a configuration in which a step takes 10 ms, plus 1 ms per prompt token and 2 ms per
/// sequence.
fn config() -> EngineConfig {
    EngineConfig {
        block_size: 4,
        num_blocks: 10,
        max_num_seqs: 8,
        max_num_batched_tokens: 100,
        prefix_cache: false,
        max_model_len: 40,
        step: StepCost {
            base_ms: 10.0,
            per_prompt_token_ms: 1.0,
            per_sequence_ms: 2.0,
            ..StepCost::default()
        },
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn run(engine: &mut Engine) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_event() {
        engine.advance(at, &mut events);
    }
    events
}

fn token_times(events: &[EngineEvent], id: u64) -> Vec<Duration> {
    let own = events.iter().filter(|e| e.id == SequenceId(id) && matches!(e.kind, EventKind::Token { .. }));
    own.map(|e| e.at).collect()
}

#[test]
fn single_sequence_timing() {
    let mut engine = Engine::new(config());
    engine.submit(ms(5), SequenceId(0), 8, 3).unwrap();
    // 10 + 8 + 2 ms, then 12 ms per token.
    assert_eq!(token_times(&run(&mut engine), 0), [ms(25), ms(37), ms(49)]);
}

#[test]
fn arrival_waits_for_the_running_step_and_slows_the_next() {
    let mut engine = Engine::new(config());
    engine.submit(ms(0), SequenceId(0), 8, 3).unwrap();
    engine.submit(ms(1), SequenceId(1), 4, 1).unwrap();
    let events = run(&mut engine);
    // The second step decodes one sequence and prefills four tokens: 10 + 4 + 2 * 2 ms.
    assert_eq!(token_times(&events, 0), [ms(20), ms(38), ms(50)]);
    assert_eq!(token_times(&events, 1), [ms(38)]);
}

#[test]
fn long_prompt_is_chunked_behind_running_sequences() {
    let mut engine = Engine::new(EngineConfig { max_num_batched_tokens: 5, ..config() });
    engine.submit(ms(0), SequenceId(0), 4, 3).unwrap();
    engine.submit(ms(0), SequenceId(1), 8, 1).unwrap();
    let events = run(&mut engine);
    // Step 1: four prompt tokens of the first sequence (the second has not arrived). Step 2: decode
    // of the first, and 4 of the second's 8 prompt tokens. Step 3 is the same.
    assert_eq!(token_times(&events, 0), [ms(16), ms(34), ms(52)]);
    assert_eq!(token_times(&events, 1), [ms(52)]);
}

#[test]
fn last_admitted_sequence_is_preempted_and_recomputed_first() {
    // 10 blocks of 4 tokens. Two sequences of 16 tokens hold 4 blocks each and need one more at
    // token 17; the first needs a sixth at token 21. The third sequence, of 6 blocks, does not fit
    // beside either.
    let mut engine = Engine::new(config());
    engine.submit(ms(0), SequenceId(0), 16, 8).unwrap();
    engine.submit(ms(0), SequenceId(1), 16, 8).unwrap();
    engine.submit(ms(0), SequenceId(2), 24, 1).unwrap();
    let events = run(&mut engine);
    let order: Vec<_> = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Admitted | EventKind::Preempted | EventKind::Finished))
        .map(|e| (e.id.0, e.kind))
        .collect();
    use EventKind::{Admitted, Finished, Preempted};
    assert_eq!(
        order,
        [
            (0, Admitted),
            (1, Admitted),
            (1, Preempted),
            (0, Finished),
            (1, Finished),
            (2, Admitted),
            (2, Finished)
        ],
        "the victim goes ahead of one that waited longer behind it"
    );
    assert_eq!(engine.totals().preemptions, 1);
    // Three prompts, and the 16 + 4 recomputed tokens of the preempted sequence.
    assert_eq!(engine.totals().prefill_tokens, 16 + 16 + 24 + 20);
}

#[test]
fn waiting_sequence_is_admitted_when_all_its_tokens_fit() {
    let mut engine = Engine::new(EngineConfig { max_num_batched_tokens: 17, ..config() });
    engine.submit(ms(0), SequenceId(0), 16, 8).unwrap();
    engine.submit(ms(0), SequenceId(1), 16, 8).unwrap();
    let times = token_times(&run(&mut engine), 0);
    // The sixth step preempts the second sequence. Its 20 tokens need 5 blocks, and 4 are free
    // while the first sequence runs. A chunk of 16 tokens would fit.
    assert_eq!(times, [28, 58, 72, 86, 100, 112, 124, 136].map(ms));
    assert_eq!(engine.totals().preemptions, 1);
}

#[test]
fn abort_during_a_step_frees_blocks_at_once() {
    let mut engine = Engine::new(config());
    engine.submit(ms(0), SequenceId(0), 16, 8).unwrap();
    assert_eq!(engine.blocks().used(), 4);
    assert!(engine.abort(SequenceId(0)));
    assert_eq!((engine.blocks().used(), engine.running()), (0, 0));
    assert!(!engine.abort(SequenceId(0)));
    assert!(run(&mut engine).iter().all(|e| e.kind == EventKind::Admitted));
}

#[test]
fn sequences_that_can_never_fit_are_rejected() {
    let mut engine = Engine::new(config());
    let refused = engine.submit(ms(0), SequenceId(0), 40, 1).unwrap_err();
    assert_eq!((refused.tokens, refused.max_tokens), (41, 40));
    assert!(engine.submit(ms(0), SequenceId(1), u32::MAX, u32::MAX).is_err());
    assert_eq!(engine.next_event(), None);
}

#[test]
fn slowdown_lengthens_later_steps() {
    let mut engine = Engine::new(config());
    engine.set_slowdown(3.0);
    engine.submit(ms(0), SequenceId(0), 8, 2).unwrap();
    engine.set_slowdown(1.0);
    assert_eq!(token_times(&run(&mut engine), 0), [ms(60), ms(72)]);
    engine.set_slowdown(f64::NAN);
    engine.submit(ms(100), SequenceId(1), 8, 1).unwrap();
    assert_eq!(token_times(&run(&mut engine), 1), [ms(120)]);
}

#[test]
fn routers_pick_engines() {
    let owners = |routing| {
        let mut pool = EnginePool::new(3, &config(), routing);
        let lengths = [(30, 8), (4, 1), (4, 1), (4, 1), (4, 1)];
        let submit = |(i, (prompt, output)): (usize, &(u32, u32))| {
            let now = ms(40 * i as u64);
            pool.advance(now, &mut Vec::new());
            pool.submit(now, SequenceId(i as u64), *prompt, *output).unwrap()
        };
        lengths.iter().enumerate().map(submit).collect::<Vec<_>>()
    };
    assert_eq!(owners(Routing::RoundRobin), [0, 1, 2, 0, 1]);
    assert_eq!(owners(Routing::LeastLoaded), [0, 1, 1, 1, 0]);
}
