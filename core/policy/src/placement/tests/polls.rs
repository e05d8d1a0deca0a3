use super::*;

const S: Duration = Duration::from_secs(1);

fn asks(poll_requests: &PollRequests, ask: PollKind) -> usize {
    poll_requests.due.iter().filter(|poll_request| poll_request.kind == ask).count()
}

#[test]
fn unused_pool_is_not_polled() {
    let (mut pool, now) = pool(4);
    assert_eq!(pool.poll_requests(now), PollRequests::default());
    let call = pool.place(now, None, work(1)).unwrap();
    assert!(!pool.poll_requests(now).due.is_empty());
    assert!(!pool.poll_requests(now + 60 * S).due.is_empty(), "it runs still");
    pool.on_ended(call);
    assert_eq!(pool.poll_requests(now + 61 * S), PollRequests::default());
    pool.wake(now + 70 * S);
    assert!(!pool.poll_requests(now + 70 * S).due.is_empty());
    assert_eq!(pool.poll_requests(now + 81 * S), PollRequests::default());
}

#[test]
fn each_poll_request_is_returned_once_until_answered_or_lost() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    let poll_requests = pool.poll_requests(now);
    assert_eq!(
        [PollKind::Health, PollKind::Load, PollKind::Models].map(|ask| asks(&poll_requests, ask)),
        [2, 2, 2]
    );
    assert!(poll_requests.next.is_some_and(|next| next > now));
    assert!(pool.poll_requests(now + 2 * S).due.is_empty());
    assert_eq!(pool.poll_requests(now + 5 * S).due.len(), 6, "lost");
}

#[test]
fn poll_intervals_are_jittered() {
    let (mut pool, mut now) = pool(1);
    let begun = now;
    let mut polls = Vec::new();
    while now < begun + 100 * S {
        pool.wake(now);
        if asks(&pool.poll_requests(now), PollKind::Load) == 1 {
            polls.push(now);
            pool.observe_metrics(now, 0, 1.0, 0.0);
        }
        now += ms(10);
    }
    assert!((90..=112).contains(&polls.len()), "{}", polls.len());
    let gaps: Vec<Duration> = polls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (ms(790)..=ms(1_220)).contains(gap)));
    assert!(gaps.iter().max() > gaps.iter().min());
}

#[test]
fn replica_that_answers_calls_is_not_probed() {
    let (mut pool, mut now) = pool(1);
    let mut call = pool.place(now, None, work(1)).unwrap();
    pool.on_first_token(now, &mut call);
    for _ in 0..100 {
        now += ms(100);
        pool.on_alive(now, 0);
        assert_eq!(asks(&pool.poll_requests(now), PollKind::Health), 0);
    }
    assert_eq!(asks(&pool.poll_requests(now + ms(200)), PollKind::Health), 0);
    assert_eq!(asks(&pool.poll_requests(now + ms(300)), PollKind::Health), 1, "silent");
    pool.on_ended(call);
}

#[test]
fn suspect_replica_is_probed_at_once_and_a_down_one_every_second() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.poll_requests(now);
    (0..4).for_each(|at| pool.observe_at(now, at, Observation::ProbeOk));
    pool.fault(now + ms(10), 0, Fault::ConnectRefused);
    assert_eq!(asks(&pool.poll_requests(now + ms(10)), PollKind::Health), 1);
    pool.observe_at(now + ms(12), 0, Observation::ConnectRefused);
    assert_eq!(pool.state(now + ms(12), 0), "down");
    let mut probes = Vec::new();
    for step in 2..1_000 {
        let at = now + ms(10) * step;
        pool.wake(at);
        for poll_request in pool.poll_requests(at).due {
            match (poll_request.kind, pool.index_of(poll_request.to)) {
                (PollKind::Health, Some(0)) => {
                    // Twice, which takes the replica down.
                    probes.extend((pool.state(at, 0) == "down").then_some(at));
                    pool.observe_at(at, 0, Observation::ConnectRefused);
                }
                (PollKind::Health, Some(other)) => pool.observe_at(at, other, Observation::ProbeOk),
                (ask, to) => assert!(to != Some(0) || ask == PollKind::Health, "it is down"),
            }
        }
    }
    assert!(probes.windows(2).all(|pair| pair[1] - pair[0] <= S + ms(10)));
    assert!((9..=13).contains(&probes.len()), "{}", probes.len());
}

#[test]
fn models_are_polled_when_a_call_names_an_unknown_one() {
    let (mut pool, now) = pool(1);
    let model = |name: &str| Model { name: name.into(), max_tokens: None, parent: None };
    pool.wake(now);
    pool.poll_requests(now);
    pool.observe_at(now, 0, Observation::Models(vec![model("base")]));
    let mut asked = 0;
    for step in 0..50 {
        let at = now + ms(100) * step;
        pool.wake(at);
        asked += asks(&pool.poll_requests(at), PollKind::Models);
        pool.observe_at(at, 0, Observation::Models(vec![model("base")]));
    }
    assert_eq!(asked, 0, "once a minute");
    let wanted = Wants { model: Some("new-adapter".into()), ..Wants::default() };
    for step in 0..50 {
        let at = now + 5 * S + ms(100) * step;
        let call = pool.place(at, Some(&wanted), work(1)).expect("the replica is the source of truth");
        pool.on_ended(call);
        let poll_requests = pool.poll_requests(at);
        asked += asks(&poll_requests, PollKind::Models);
        if asks(&poll_requests, PollKind::Models) > 0 {
            pool.observe_at(at, 0, Observation::Models(vec![model("base")]));
        }
    }
    assert!((4..=7).contains(&asked), "about once a second: {asked}");
}

#[test]
fn disabled_polls_are_not_requested() {
    let (mut pool, now) = with(2, PoolConfig { health: None, poll: None, ..PoolConfig::default() });
    pool.wake(now);
    let poll_requests = pool.poll_requests(now);
    assert_eq!(
        [PollKind::Health, PollKind::Load, PollKind::Models].map(|ask| asks(&poll_requests, ask)),
        [0, 0, 2]
    );
}

#[test]
fn idle_replicas_are_probed_rarely() {
    let (mut pool, now) = with(2, PoolConfig { poll: None, ..PoolConfig::default() });
    let call = pool.on_sent(now, 1, None, work(1)).unwrap();
    let mut probes = [Vec::new(), Vec::new()];
    for step in 0..2_000 {
        let at = now + ms(5) * step;
        for poll_request in pool
            .poll_requests(at)
            .due
            .into_iter()
            .filter(|poll_request| poll_request.kind == PollKind::Health)
        {
            let place = pool.index_of(poll_request.to).unwrap();
            probes[place].push(at);
            pool.observe_at(at, place, Observation::ProbeOk);
        }
    }
    let gaps = |place: usize| probes[place].windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    assert!(gaps(0).iter().all(|gap| *gap >= S && *gap <= ms(1_260)), "{:?}", gaps(0));
    assert!(gaps(1).iter().all(|gap| *gap >= ms(240) && *gap <= ms(310)), "{:?}", gaps(1));
    assert_eq!(pool.on_ended(call), None);
}

#[test]
fn refused_probe_is_repeated_within_fifty_milliseconds() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.poll_requests(now);
    pool.probe_all_ok(now);
    pool.observe_at(now, 0, Observation::ConnectRefused);
    let poll_requests = pool.poll_requests(now);
    assert!(
        !poll_requests.due.iter().any(|poll_request| poll_request.kind == PollKind::Health),
        "not the same moment"
    );
    assert!(poll_requests.next.is_some_and(|next| next > now && next <= now + ms(50)));
    assert_eq!(asks(&pool.poll_requests(now + ms(50)), PollKind::Health), 1);
}
