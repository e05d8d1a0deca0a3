use proptest::prelude::*;

use super::*;

/// What happens to the calls of a process that shares the pool.
#[derive(Clone, Copy, Debug)]
enum Action {
    Send {
        conversation: u64,
    },
    FirstToken {
        nth: usize,
    },
    End {
        nth: usize,
        accepted: bool,
    },
    /// The pending events reach the partner.
    Tell,
    /// The connection is lost, and both join again.
    Rejoin,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..5_u64).prop_map(|conversation| Action::Send { conversation }),
        3 => any::<usize>().prop_map(|nth| Action::FirstToken { nth }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, accepted)| Action::End { nth, accepted }),
        2 => Just(Action::Tell),
        1 => Just(Action::Rejoin),
    ]
}

/// Two processes that share a pool of three replicas.
fn two() -> (Placement, Placement, Instant) {
    let ((mut one, now), (mut other, _)) = (pool(3), pool(3));
    join(now, &mut one, &mut other);
    (one, other, now)
}

fn join(now: Instant, one: &mut Placement, other: &mut Placement) {
    let (from_one, from_other) = (one.join_partners(), other.join_partners());
    one.on_placements(now, Some(2), 1, &from_other);
    other.on_placements(now, Some(1), 1, &from_one);
}

fn tell(now: Instant, from: &mut Placement, to: &mut Placement) {
    while let Some(placements) = from.take_placements() {
        to.on_placements(now, Some(1), 1, &placements);
    }
}

fn end(pool: &mut Placement, calls: impl IntoIterator<Item = PlacedCall>) {
    for call in calls {
        let _ = pool.on_ended(call);
    }
}

/// Returns the calls in flight at each replica, and those that are not the placement's own.
fn loads(pool: &Placement) -> Vec<(usize, usize)> {
    let load = |(_, replica): (usize, &Replica)| {
        (replica.load.calls(), replica.load.calls() - replica.load.own_calls())
    };
    pool.known().map(load).collect()
}

proptest! {
    /// Each process counts the calls of the other that began since they joined, until they end.
    #[test]
    fn calls_of_partner_are_counted_until_they_end(actions in prop::collection::vec(action(), 0..80)) {
        let (mut one, mut other, mut now) = two();
        let mut open = Vec::new();
        for action in actions.into_iter().chain([Action::Tell]) {
            now += ms(5);
            match action {
                Action::Send { conversation } => {
                    let prefixes: Vec<_> = (0..4).map(|chunk| 100 * conversation + chunk).collect();
                    open.extend(one.place(now, Some(&wants(&prefixes)), work(1_000)));
                }
                Action::FirstToken { nth } if !open.is_empty() => {
                    let nth = nth % open.len();
                    one.on_first_token(now, &mut open[nth]);
                }
                Action::End { nth, accepted } if !open.is_empty() => {
                    let mut call = open.remove(nth % open.len());
                    if accepted {
                        one.on_accepted(now, &mut call);
                    }
                    end(&mut one, [call]);
                }
                Action::FirstToken { .. } | Action::End { .. } => {}
                Action::Rejoin => {
                    // Calls in flight are not told again, so they must end first.
                    end(&mut one, open.drain(..));
                    tell(now, &mut one, &mut other);
                    join(now, &mut one, &mut other);
                    prop_assert!(loads(&other).iter().all(|load| *load == (0, 0)));
                }
                Action::Tell => {
                    tell(now, &mut one, &mut other);
                    let seen: Vec<_> = loads(&one).iter().map(|(calls, _)| (*calls, *calls)).collect();
                    prop_assert_eq!(loads(&other), seen);
                    let awaiting = |pool: &Placement| -> Vec<_> {
                        let load = |(_, replica): (usize, &Replica)| {
                            (replica.load.awaiting, replica.load.awaiting_tokens)
                        };
                        pool.known().map(load).collect()
                    };
                    prop_assert_eq!(awaiting(&one), awaiting(&other));
                }
            }
        }
        other.leave_partners();
        prop_assert!(loads(&other).iter().all(|load| *load == (0, 0)));
    }
}

#[test]
fn call_goes_where_a_partner_has_sent_its_prefix() {
    let (mut one, mut other, now) = two();
    // A prefix becomes a key only after calls that begin differently.
    let others = (10..20).map(|prefix| one.place(now, Some(&wants(&[prefix])), work(10)).unwrap());
    let others: Vec<_> = others.collect();
    end(&mut one, others);
    let at = (0..3).find(|at| rendezvous_owner(&one, 7) != *at).unwrap();
    let mut call = one.on_sent(now, at, Some(&wants(&[7, 8])), work(5_000)).unwrap();
    one.on_accepted(now, &mut call);
    tell(now, &mut one, &mut other);
    for at in 0..3 {
        other.observe_metrics(now, at, f64::from(u8::from(call.at == at)), 0.0);
    }
    end(&mut one, [call]);
    tell(now, &mut one, &mut other);
    // As if the pool had been polled for long: all traffic is that of the two.
    other.others_share = 0.0;
    let call = other.place(now, Some(&wants(&[7, 8, 9])), work(6_000)).unwrap();
    assert_eq!(call.at, at);
    end(&mut other, [call]);
}

fn rendezvous_owner(pool: &Placement, key: u64) -> usize {
    let draw = |(at, replica): (usize, &Replica)| (at, rendezvous::draw(key, replica.name, 1.0));
    pool.known().map(draw).max_by(|one, other| one.1.total_cmp(&other.1)).unwrap().0
}

#[test]
fn calls_of_partner_are_no_calls_of_others_and_keep_no_replica() {
    let (mut one, mut other, now) = two();
    let call = one.on_sent(now, 0, None, work(1_000)).unwrap();
    tell(now, &mut one, &mut other);
    other.observe_metrics(now, 0, 3.0, 0.0);
    assert_eq!(other.replica(0).unwrap().load.others(now).unwrap().calls(), 2.0);
    let view = other.view(now).remove(0);
    assert_eq!(
        (view.requests, view.tokens, view.others),
        (0, 0, Some(3.0)),
        "for users, partners are others"
    );
    other.set_members(now, &members(3)[1..]);
    assert_eq!(other.view(now).len(), 2, "it does not drain for a partner");
    end(&mut one, [call]);
    tell(now, &mut one, &mut other);
    assert_eq!(loads(&other), [(0, 0); 2]);
}

#[test]
fn replica_that_a_partner_cannot_reach_stays_eligible() {
    let (mut one, mut other, now) = two();
    one.fault(now, 0, Fault::ConnectRefused);
    tell(now, &mut one, &mut other);
    assert_eq!((one.state(now, 0), other.state(now, 0)), ("suspect", "in"));
}

#[test]
fn events_that_make_no_sense_change_nothing() {
    let (_, mut pool, now) = two();
    let event = |call, what| PlacementEvent { call, what };
    let sent = |replica| PlacementStep::Sent {
        replica,
        input: u64::MAX,
        output: u64::MAX,
        session: None,
        prefixes: [1, 2].into(),
    };
    let first_token = PlacementStep::FirstToken { after_us: u64::MAX };
    let name = pool.replica(0).unwrap().name;
    let events = vec![
        event(1, first_token.clone()),
        event(1, PlacementStep::Ended { accepted: true }),
        event(2, sent(12)),
        event(3, sent(name)),
        event(3, sent(name)),
        event(3, first_token.clone()),
        event(3, first_token.clone()),
    ];
    pool.on_placements(now, Some(9), 1, &Placements { restarts: false, events });
    assert_eq!(loads(&pool), [(1, 1), (0, 0), (0, 0)]);
    pool.on_placements(now, Some(8), 1, &Placements::restart());
    assert_eq!(loads(&pool)[0], (1, 1), "that of another partner");
    pool.on_placements(now, None, 1, &Placements::restart());
    assert_eq!(loads(&pool)[0], (0, 0));
    assert!(pool.take_placements().is_none(), "calls of partners are told to nobody");
}

#[test]
fn partners_that_call_at_the_same_moment_choose_different_replicas() {
    let now = crate::testing::epoch();
    let mut pools: Vec<Placement> =
        (0..16).map(|seed| Placement::new(&PoolConfig::default(), seed)).collect();
    for (number, pool) in (0..).zip(&mut pools) {
        pool.set_members(now, &members(8));
        let first = pool.join_partners();
        (0..16)
            .filter(|other| *other != number)
            .for_each(|other| pool.on_placements(now, Some(other), 15, &first));
        // As if the pool had been polled for long: all traffic is that of the partners.
        (0..8).for_each(|at| pool.observe_metrics(now, at, 0.0, 0.0));
        pool.others_share = 0.0;
    }
    let tell_all = |now, pools: &mut [Placement]| {
        for from in 0..pools.len() {
            while let Some(placements) = pools[from].take_placements() {
                for to in (0..pools.len()).filter(|to| *to != from) {
                    pools[to].on_placements(now, Some(from as u64), 15, &placements);
                }
            }
        }
    };
    // One replica is free, so all would choose it.
    let busy: Vec<_> = (1..8).map(|at| pools[0].on_sent(now, at, None, work(1_000)).unwrap()).collect();
    tell_all(now, &mut pools);
    let mut at_free = Vec::new();
    for burst in 0..60 {
        let now = now + ms(1_000 + 10 * burst);
        let calls: Vec<_> = pools.iter_mut().map(|pool| pool.place(now, None, work(100)).unwrap()).collect();
        at_free.push(calls.iter().filter(|call| call.at == 0).count());
        tell_all(now + ms(5), &mut pools);
        calls.into_iter().zip(&mut pools).for_each(|(call, pool)| end(pool, [call]));
        tell_all(now + ms(6), &mut pools);
    }
    assert_eq!(at_free[0], 16);
    let later = at_free[30..].iter().sum::<usize>() as f64 / 30.0;
    assert!(later < 8.0, "{at_free:?}");
    end(&mut pools[0], busy);
}

#[test]
fn calls_of_partner_that_had_nobody_to_tell_are_forgotten() {
    let (mut one, mut other, now) = two();
    let call = one.place(now, None, work(10));
    tell(now, &mut one, &mut other);
    assert_eq!(loads(&other).iter().map(|load| load.0).sum::<usize>(), 1);
    // The other one is silent, and the call ends.
    one.on_placements(now, Some(2), 0, &Placements::restart());
    end(&mut one, call);
    one.on_placements(now, Some(2), 1, &Placements::default());
    assert!(one.take_placements_announcement());
    tell(now, &mut one, &mut other);
    assert_eq!(loads(&other).iter().map(|load| load.0).sum::<usize>(), 0);
}

#[test]
fn process_without_partners_shows_itself_when_it_begins_to_send() {
    let (mut pool, now) = pool(3);
    let _ = pool.join_partners();
    let send = |pool: &mut Placement| {
        let call = pool.place(now, None, work(10));
        let told = pool.take_placements_announcement().then(|| pool.take_placements()).flatten();
        (call, told)
    };
    assert_eq!(send(&mut pool).1, Some(Placements::default()));
    assert_eq!(send(&mut pool).1, None, "once");
    assert!(pool.take_activity() && !pool.take_activity());
    assert_eq!(send(&mut pool).1, Some(Placements::default()), "it was silent meanwhile");
    pool.take_activity();
    pool.on_placements(now, Some(2), 1, &Placements::default());
    let (call, told) = send(&mut pool);
    assert!(
        call.is_some() && told.is_some_and(|told| told.events.len() == 1),
        "the partner is told of the call"
    );
}
