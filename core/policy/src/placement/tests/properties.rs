use proptest::prelude::*;

use super::*;

/// A random event that the test applies to a pool.
#[derive(Clone, Debug)]
enum Event {
    Call { conversation: u64, turns: u64, input: u64 },
    FirstToken(prop::sample::Index),
    End(prop::sample::Index),
    Fault(usize, u8),
    Accepted(usize),
    Observation(usize, u8),
    Members(u8),
    Pass(u64),
    PollRequests,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..6_u64, 1..8_u64, 1..20_000_u64)
            .prop_map(|(conversation, turns, input)| Event::Call { conversation, turns, input }),
        3 => any::<prop::sample::Index>().prop_map(Event::FirstToken),
        4 => any::<prop::sample::Index>().prop_map(Event::End),
        2 => (0..6_usize, 0..5_u8).prop_map(|(at, fault)| Event::Fault(at, fault)),
        1 => (0..6_usize).prop_map(Event::Accepted),
        3 => (0..6_usize, 0..6_u8).prop_map(|(at, observation)| Event::Observation(at, observation)),
        1 => any::<u8>().prop_map(Event::Members),
        3 => (1..3_000_u64).prop_map(Event::Pass),
        1 => Just(Event::PollRequests),
    ]
}

fn fault(which: u8) -> Fault {
    match which {
        0 => Fault::Full(None),
        1 => Fault::Limited(Some(ms(700))),
        2 => Fault::ConnectRefused,
        3 => Fault::Rejected,
        _ => Fault::Broke,
    }
}

fn observation(which: u8) -> Observation {
    match which {
        0 => Observation::ProbeOk,
        1 => Observation::ProbeFailed,
        2 => Observation::ConnectRefused,
        3 => Observation::ProbeTimeout,
        4 => Observation::Metrics(EngineMetrics { running: 5.0, waiting: 3.0, ..EngineMetrics::default() }),
        _ => Observation::MetricsUnreadable,
    }
}

proptest! {
    #[test]
    fn invariants_hold_for_any_events(events in prop::collection::vec(event(), 1..150)) {
        let (mut pool, mut now) = pool(6);
        let mut calls: Vec<PlacedCall> = Vec::new();
        for event in events {
            match event {
                Event::Call { conversation, turns, input } => {
                    let turn: Vec<u64> = (1..=turns).map(|turn| conversation * 1_000 + turn).collect();
                    let wants = wants(&turn);
                    let open = pool.eligible(now).and(pool.serving(Some(&wants), input));
                    let before = pool.candidates(now, None, work(input), open);
                    match pool.choose(now, Some(&wants), work(input), open) {
                        None => prop_assert!(open.is_empty()),
                        Some(at) => {
                            prop_assert!(open.contains(at), "outside of what is open");
                            prop_assert!(crate::placement::select::is_within(&before, at), "over the bound");
                            calls.extend(pool.on_sent(now, at, Some(&wants), work(input)));
                        }
                    }
                }
                Event::FirstToken(index) if !calls.is_empty() => {
                    let at = index.index(calls.len());
                    pool.on_first_token(now, &mut calls[at]);
                }
                Event::End(index) if !calls.is_empty() => {
                    let call = calls.swap_remove(index.index(calls.len()));
                    let _ = pool.on_ended(call);
                }
                Event::Fault(at, which) => pool.fault(now, at, fault(which)),
                Event::Accepted(at) => pool.accept(now, at),
                Event::Observation(at, which) => {
                    let id = pool.replica(at).map(|known| known.placed.id);
                    pool.observe(now, id.unwrap_or(ReplicaId(99)), observation(which));
                }
                Event::Members(which) => {
                    let chosen = members(6).into_iter().enumerate().filter(|(n, _)| which & (1 << n) != 0);
                    pool.set_members(now, &chosen.map(|(_, member)| member).collect::<Vec<_>>());
                }
                Event::Pass(milliseconds) => now += ms(milliseconds),
                Event::PollRequests => drop(pool.poll_requests(now)),
                Event::FirstToken(_) | Event::End(_) => {}
            }
            // Evidence that may be wrong never ejects more than half of the replicas that accept
            // connections. Replicas that fail each call are compared with a healthy one.
            let eligible = pool.eligible(now);
            let failing = pool.failing();
            let is_healthy = |replica: &Replica| !replica.draining && replica.health.state == HealthState::In;
            prop_assert!(failing.is_empty() || pool.known().any(|(_, replica)| is_healthy(replica)));
            let (mut out, mut listen) = (0, 0);
            for (at, replica) in pool.known().filter(|(_, replica)| !replica.draining) {
                let listens = !replica.health.is_refusing() && !failing.contains(at);
                listen += usize::from(listens);
                let doubted = listens && replica.health.is_ejected();
                out += usize::from(doubted && !eligible.contains(at) && !replica.health.is_busy(now));
            }
            prop_assert!(out <= listen / 2);
            // Counts match the calls in flight.
            for replica in pool.view(now) {
                let here = calls.iter().filter(|call| call.placed.id == replica.id).count();
                prop_assert_eq!(replica.requests, here);
            }
            prop_assert!(pool.next_wake(now).is_none_or(|next| next > now));
        }
        for call in calls {
            let _ = pool.on_ended(call);
        }
        prop_assert!(pool.known().all(|(_, replica)| replica.load.awaiting_tokens == 0 && replica.load.tokens == 0));
        prop_assert!(pool.view(now).iter().all(|replica| replica.state != ReplicaState::Draining));
    }
}
