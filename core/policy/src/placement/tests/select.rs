use super::*;

#[test]
fn pool_without_replicas_selects_nothing() {
    let (mut pool, now) = pool(0);
    assert!(pool.place(now, None, work(10)).is_none());
    assert_eq!(pool.choose(now, None, work(10), ReplicaSet::ALL), None);
}

#[test]
fn less_loaded_of_two_replicas_is_selected() {
    let (mut pool, now) = pool(2);
    let first = pool.place(now, None, work(5_000)).unwrap();
    let mut second = pool.place(now, None, work(100)).unwrap();
    assert_ne!(first.at, second.at);
    let third = pool.place(now, None, work(100)).unwrap();
    assert_eq!(third.at, second.at, "two short prompts are less than a long one");
    // A call that is being answered delays nobody.
    pool.on_first_token(now, &mut second);
    let view = pool.view(now);
    assert_eq!((view[first.at].requests, view[second.at].requests), (1, 2));
    assert_eq!(pool.on_ended(second), None);
    assert_eq!(pool.on_ended(first), None);
    assert_eq!(pool.on_ended(third), None);
    assert!(pool.view(now).iter().all(|replica| replica.requests == 0 && replica.tokens == 0));
}

#[test]
fn repeated_prompt_returns_to_its_replica() {
    let (mut pool, now) = pool(8);
    for conversation in 0..50 {
        let hash = 1_000 * (conversation + 1);
        let mut first = pool.place(now, Some(&wants(&[hash, hash + 1])), work(2_000)).unwrap();
        let home = first.at;
        pool.on_first_token(now, &mut first);
        pool.on_ended(first);
        let mut turn = vec![hash, hash + 1];
        for next in 2..6 {
            turn.push(hash + next);
            let mut call = pool.place(now, Some(&wants(&turn)), work(1_000 * (next + 1))).unwrap();
            assert_eq!(call.at, home);
            pool.on_first_token(now, &mut call);
            pool.on_ended(call);
        }
    }
}

#[test]
fn calls_with_the_same_prefix_do_not_exceed_the_load_bound() {
    let (mut pool, now) = pool(8);
    let same = wants(&[1, 2, 3, 4]);
    let calls: Vec<PlacedCall> =
        (0..64).map(|_| pool.place(now, Some(&same), work(4_000)).unwrap()).collect();
    let most = (0..8).map(|at| calls.iter().filter(|call| call.at == at).count()).max().unwrap();
    assert!(most as f64 <= load_bound::max_calls(64.0 / 8.0), "{most}");
}

#[test]
fn clients_that_see_the_pool_agree_on_new_conversations() {
    let now = crate::testing::epoch();
    let mut clients: Vec<Placement> = (0..8)
        .map(|seed| {
            let mut client = Placement::new(&PoolConfig::default(), seed);
            client.set_members(now, &members(8));
            for other in 0..4 {
                let call = client.place(now, Some(&wants(&[seed << 50 | 1 << 40 | other])), work(1)).unwrap();
                client.on_ended(call);
            }
            (0..60).for_each(|_| (0..8).for_each(|at| client.observe_metrics(now, at, 4.0, 0.0)));
            client
        })
        .collect();
    for conversation in 1..40 {
        let wants = wants(&[conversation << 20]);
        let mut homes = Vec::new();
        for client in &mut clients {
            let call = client.place(now, Some(&wants), work(20_000)).unwrap();
            homes.push(call.at);
            client.on_ended(call);
        }
        homes.dedup();
        assert_eq!(homes.len(), 1, "{conversation}");
    }
}

#[test]
fn slow_replica_gets_fewer_calls() {
    let (mut pool, mut now) = pool(4);
    let mut sent = [0; 4];
    for call in 0..2_000 {
        let mut placed_call = pool.place(now, None, work(1_000)).unwrap();
        sent[placed_call.at] += usize::from(call >= 200);
        let took = if placed_call.at == 2 { ms(300) } else { ms(100) };
        pool.on_first_token(now + took, &mut placed_call);
        pool.on_ended(placed_call);
        now += ms(400);
    }
    assert!(sent[2] * 4 < 1_800, "one at a time there is always another: {sent:?}");
}

#[test]
fn stale_metrics_mean_neither_full_nor_empty() {
    let (mut pool, now) = pool(4);
    pool.observe_metrics(now, 0, 50.0, 50.0);
    (1..4).for_each(|at| pool.observe_metrics(now, at, 0.0, 0.0));
    for _ in 0..20 {
        let call = pool.place(now, None, work(100)).unwrap();
        assert_ne!(call.at, 0, "it is full");
        pool.on_ended(call);
    }
    let later = now + Duration::from_secs(4);
    assert!(pool.view(later).iter().all(|replica| replica.others.is_none()));
    let calls: Vec<PlacedCall> = (0..40).filter_map(|_| pool.place(later, None, work(100))).collect();
    assert!(calls.iter().any(|call| call.at == 0), "nothing is known of it");
}

#[test]
fn weights_share_the_calls() {
    let now = crate::testing::epoch();
    let mut pool = Placement::new(&PoolConfig::default(), 7);
    let mut members = members(4);
    members[1].weight = 3.0;
    pool.set_members(now, &members);
    let calls: Vec<PlacedCall> = (0..600).filter_map(|_| pool.place(now, None, work(100))).collect();
    let heavy = calls.iter().filter(|call| call.at == 1).count();
    assert!((270..=330).contains(&heavy), "half: {heavy}");
}

#[test]
fn selection_is_deterministic_for_a_seed() {
    let play = || {
        let (mut pool, now) = pool(8);
        let place = |n: u64| pool.place(now, Some(&wants(&[n % 20, n])), work(100 * n)).unwrap().at;
        (0..200).map(place).collect::<Vec<_>>()
    };
    assert_eq!(play(), play());
}

#[test]
fn answer_without_a_first_token_keeps_its_prefixes_cached() {
    let (mut pool, now) = pool(8);
    let same = wants(&[1, 2]);
    let mut call = pool.place(now, Some(&same), work(4_000)).unwrap();
    let home = call.at;
    pool.on_accepted(now, &mut call);
    pool.on_ended(call);
    assert!(pool.candidates(now, Some(&same), work(4_000), ReplicaSet::one(home))[0].cached > 3_000);
}
