use proptest::prelude::*;

use super::brute_force_model::{Event, OUTPUTS, PoolModel};
use super::*;
use crate::placement::{Fault, Observation};
use tidegate_config::AdaptiveConfig;

fn fault() -> impl Strategy<Value = Fault> {
    let delay = || prop::option::of((1u64..900).prop_map(ms));
    prop_oneof![
        1 => delay().prop_map(Fault::Full),
        1 => delay().prop_map(Fault::Limited),
        1 => Just(Fault::ConnectRefused),
        2 => Just(Fault::Broke),
        2 => Just(Fault::Rejected),
        1 => Just(Fault::Unauthenticated),
        1 => Just(Fault::Unanswered),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let seen = prop_oneof![4 => Just(Observation::ProbeOk), 1 => Just(Observation::ProbeFailed), 1 => Just(Observation::ConnectRefused), 1 => Just(Observation::ProbeTimeout)];
    let arrival = (
        0usize..3,
        0usize..3,
        (0u64..700, OUTPUTS, (1u64..3, 0u64..8)),
        prop::option::weighted(0.5, 0usize..3),
        prop_oneof![2 => Just(0usize), 1 => 0usize..32],
    );
    prop_oneof![
        12 => (arrival, any::<bool>(), prop::bool::weighted(0.05)).prop_map(
            |((tenant, lane, (tokens, output, begins), model, avoid), streams, forced)| {
                Event::Arrive { tenant, lane, tokens, output, begins, model, avoid, streams, forced }
            }
        ),
        4 => any::<usize>().prop_map(|which| Event::Token { which }),
        2 => any::<usize>().prop_map(|which| Event::Answer { which }),
        8 => (any::<usize>(), prop::option::weighted(0.3, fault()), any::<bool>())
            .prop_map(|(which, fault, again)| Event::End { which, fault, again }),
        1 => any::<usize>().prop_map(|which| Event::Leave { which }),
        1 => (0usize..32).prop_map(|names| Event::Members { names }),
        2 => (any::<usize>(), 0usize..8).prop_map(|(which, models)| Event::Serves { which, models }),
        2 => (any::<usize>(), 400u64..1_200, any::<bool>())
            .prop_map(|(which, tokens, shares)| Event::Told { which, tokens, shares }),
        2 => (any::<usize>(), seen).prop_map(|(which, observation)| Event::Seen { which, observation }),
        3 => (0u64..400).prop_map(|ms| Event::Pass { ms }),
        1 => (0usize..12).prop_map(|cap| Event::Cap { cap }),
    ]
}

/// Generates the settings of a pool and its number of replicas.
fn pool() -> impl Strategy<Value = (SchedulerSettings, usize)> {
    let awaiting = prop::option::of(1usize..3);
    let adaptive =
        prop::option::of((1usize..4, awaiting, 100u64..800).prop_map(|(start, awaiting, objective)| {
            let adaptive = AdaptiveConfig { start, min: 1, awaiting, ..AdaptiveConfig::default() };
            adaptive::LimitSettings {
                max: 5,
                objective: Some(ms(objective)),
                latency: None,
                tpot: None,
                adaptive,
            }
        }));
    let aging = prop_oneof![Just(3_600_000u64), 50u64..500];
    let slow = prop_oneof![Just(0u64), 100u64..2_000];
    (0usize..5, 1usize..5, prop::option::of(500u64..1_500), adaptive, aging, slow).prop_map(
        |(replicas, slots, kv_tokens, adaptive, aging, slow)| {
            let config = PoolConfig { cap: slots, slow_start: Some(ms(slow)), ..PoolConfig::default() };
            let settings = SchedulerSettings {
                pool: Some(config),
                kv_tokens,
                adaptive,
                aging: ms(aging),
                ..of_slots(slots)
            };
            (settings, replicas)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// After any sequence of events: no call waits that fits at a replica that may take it, no call
    /// is assigned to a replica where it does not fit, all slots and all memory are released in the
    /// end, and memory of at most one replica is reserved, for a call that has waited for the
    /// ageing time.
    #[test]
    fn pool_agrees_with_the_model(events in prop::collection::vec(event(), 1..120), (settings, replicas) in pool()) {
        let mut model = PoolModel::new(&settings, replicas, epoch());
        for event in events {
            model.apply(event);
        }
        model.finish();
    }
}
