//! Property tests: invariants of an engine that hold under any load, including aborts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_sim::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, StepCost};
use tidegate_sim::pool::{EnginePool, Routing};

#[derive(Debug, Clone)]
enum Act {
    Submit { prompt: u32, output: u32 },
    Abort { which: usize },
    Wait { ms: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1u32..120, 1u32..60).prop_map(|(prompt, output)| Act::Submit { prompt, output }),
        1 => (0usize..64).prop_map(|which| Act::Abort { which }),
        3 => (0u64..300).prop_map(|ms| Act::Wait { ms }),
    ]
}

/// Generates configurations so small that preemptions and full batches are common.
fn config() -> impl Strategy<Value = EngineConfig> {
    (1u32..=16, 12u32..80, 1u32..12, 16u32..200).prop_map(|(block_size, blocks, seqs, budget)| {
        let num_blocks = blocks.max(180u32.div_ceil(block_size));
        EngineConfig {
            block_size,
            num_blocks,
            max_num_seqs: seqs,
            max_num_batched_tokens: budget,
            prefix_cache: false,
            max_model_len: 180,
            step: StepCost {
                base_ms: 10.0,
                per_prompt_token_ms: 0.1,
                per_sequence_ms: 0.5,
                ..StepCost::default()
            },
        }
    })
}

#[derive(Debug, Default, PartialEq)]
struct EngineRun {
    events: Vec<EngineEvent>,
    submitted: BTreeMap<SequenceId, u32>,
    aborted: BTreeSet<SequenceId>,
}

fn play(config: &EngineConfig, acts: &[Act]) -> EngineRun {
    let mut engine = Engine::new(config.clone());
    let mut played = EngineRun::default();
    let mut now = Duration::ZERO;
    for act in acts {
        match *act {
            Act::Submit { prompt, output } => {
                let id = SequenceId(played.submitted.len() as u64);
                engine.submit(now, id, prompt, output).unwrap();
                played.submitted.insert(id, output);
            }
            Act::Abort { which } => {
                let id = SequenceId(which as u64);
                let held = (engine.blocks().used(), engine.waiting() + engine.running());
                if engine.abort(id) {
                    assert!(played.aborted.insert(id), "{id:?} was aborted twice");
                    assert_eq!(engine.waiting() + engine.running(), held.1 - 1);
                } else {
                    assert_eq!((engine.blocks().used(), engine.waiting() + engine.running()), held);
                }
            }
            Act::Wait { ms } => {
                now += Duration::from_millis(ms);
                engine.advance(now, &mut played.events);
            }
        }
        check(&engine);
    }
    while let Some(at) = engine.next_event() {
        engine.advance(at, &mut played.events);
        check(&engine);
    }
    assert_eq!((engine.waiting(), engine.running(), engine.blocks().used()), (0, 0, 0), "something was left");
    played
}

fn check(engine: &Engine) {
    assert!(engine.blocks().used() <= engine.blocks().total());
    assert!(engine.running() <= engine.config().max_num_seqs as usize);
    assert!(engine.running() > 0 || engine.blocks().used() == 0, "blocks without an owner");
    // Work conserving: if there is anything to do, a step is in progress.
    assert!(engine.next_event().is_some() || engine.waiting() + engine.running() == 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_ends_exactly_once(config in config(), acts in prop::collection::vec(act(), 1..60)) {
        let played = play(&config, &acts);
        for (id, output) in &played.submitted {
            let own: Vec<_> = played.events.iter().filter(|e| e.id == *id).map(|e| e.kind).collect();
            let tokens: Vec<u32> =
                own.iter().filter_map(|k| if let EventKind::Token { index } = k { Some(*index) } else { None }).collect();
            prop_assert_eq!(&tokens, &(0..tokens.len() as u32).collect::<Vec<_>>(), "tokens repeat or are missing");
            let ends = own.iter().filter(|k| **k == EventKind::Finished).count();
            if played.aborted.contains(id) {
                prop_assert_eq!(ends, 0);
                prop_assert!(tokens.len() < *output as usize);
            } else {
                prop_assert_eq!(ends, 1);
                prop_assert_eq!(tokens.len(), *output as usize);
                prop_assert_eq!(own.last(), Some(&EventKind::Finished));
            }
        }
    }

    #[test]
    fn sequences_are_admitted_in_arrival_order(config in config(), acts in prop::collection::vec(act(), 1..60)) {
        let played = play(&config, &acts);
        let admitted: Vec<_> =
            played.events.iter().filter(|e| e.kind == EventKind::Admitted).map(|e| e.id).collect();
        let mut sorted = admitted.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(admitted, sorted, "admitted out of order, or twice");
    }

    #[test]
    fn event_times_are_monotonic_and_runs_are_deterministic(config in config(), acts in prop::collection::vec(act(), 1..60)) {
        let played = play(&config, &acts);
        // An abort may drop events of its sequence, but the remaining events are in order.
        prop_assert!(played.events.windows(2).all(|w| w[0].at <= w[1].at));
        prop_assert_eq!(&played, &play(&config, &acts));
    }

    #[test]
    fn pool_of_one_engine_behaves_like_the_engine(config in config(), loads in prop::collection::vec((1u32..120, 1u32..60), 1..20)) {
        let mut pool = EnginePool::new(1, &config, Routing::RoundRobin);
        let mut engine = Engine::new(config.clone());
        let (mut of_pool, mut of_engine) = (Vec::new(), Vec::new());
        for (i, (prompt, output)) in loads.iter().enumerate() {
            let (now, id) = (Duration::from_millis(25 * i as u64), SequenceId(i as u64));
            pool.advance(now, &mut of_pool);
            engine.advance(now, &mut of_engine);
            pool.submit(now, id, *prompt, *output).unwrap();
            engine.submit(now, id, *prompt, *output).unwrap();
        }
        let end = Duration::from_secs(10_000);
        pool.advance(end, &mut of_pool);
        engine.advance(end, &mut of_engine);
        prop_assert_eq!(of_pool, of_engine);
        prop_assert_eq!(pool.next_event(), None);
    }
}
