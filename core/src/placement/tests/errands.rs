use super::*;

const S: Duration = Duration::from_secs(1);

fn asks(errands: &Errands, ask: Ask) -> usize {
    errands.due.iter().filter(|errand| errand.ask == ask).count()
}

#[test]
fn nobody_is_asked_while_nobody_calls() {
    let (mut pool, now) = pool(4);
    assert_eq!(pool.errands(now), Errands::default());
    let call = pool.place(now, None, work(1)).unwrap();
    assert!(!pool.errands(now).due.is_empty());
    assert!(!pool.errands(now + 60 * S).due.is_empty(), "it runs still");
    pool.ended(call);
    assert_eq!(pool.errands(now + 61 * S), Errands::default());
    pool.wake(now + 70 * S);
    assert!(!pool.errands(now + 70 * S).due.is_empty());
    assert_eq!(pool.errands(now + 81 * S), Errands::default());
}

#[test]
fn each_errand_is_told_once_until_its_answer_or_its_loss() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    let errands = pool.errands(now);
    assert_eq!([Ask::Health, Ask::Load, Ask::Models].map(|ask| asks(&errands, ask)), [2, 2, 2]);
    assert!(errands.next.is_some_and(|next| next > now));
    assert!(pool.errands(now + 2 * S).due.is_empty());
    assert_eq!(pool.errands(now + 5 * S).due.len(), 6, "lost");
}

#[test]
fn polls_are_spread_about_their_period() {
    let (mut pool, mut now) = pool(1);
    let begun = now;
    let mut polls = Vec::new();
    while now < begun + 100 * S {
        pool.wake(now);
        if asks(&pool.errands(now), Ask::Load) == 1 {
            polls.push(now);
            pool.stands(now, 0, 1.0, 0.0);
        }
        now += ms(10);
    }
    assert!((90..=112).contains(&polls.len()), "{}", polls.len());
    let gaps: Vec<Duration> = polls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (ms(790)..=ms(1_220)).contains(gap)));
    assert!(gaps.iter().max() > gaps.iter().min());
}

#[test]
fn one_that_answers_calls_is_not_asked_whether_it_is_well() {
    let (mut pool, mut now) = pool(1);
    let mut call = pool.place(now, None, work(1)).unwrap();
    pool.first_token(now, &mut call);
    for _ in 0..100 {
        now += ms(100);
        pool.alive(now, 0);
        assert_eq!(asks(&pool.errands(now), Ask::Health), 0);
    }
    assert_eq!(asks(&pool.errands(now + ms(200)), Ask::Health), 0);
    assert_eq!(asks(&pool.errands(now + ms(300)), Ask::Health), 1, "silent");
    pool.ended(call);
}

#[test]
fn a_suspect_is_asked_at_once_and_one_that_is_down_every_second() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.errands(now);
    (0..4).for_each(|at| pool.tell(now, at, Sight::Well));
    pool.fault(now + ms(10), 0, Fault::Gone);
    assert_eq!(asks(&pool.errands(now + ms(10)), Ask::Health), 1);
    pool.tell(now + ms(12), 0, Sight::Gone);
    assert_eq!(pool.state(now + ms(12), 0), "down");
    let mut probes = Vec::new();
    for step in 2..1_000 {
        let at = now + ms(10) * step;
        pool.wake(at);
        for errand in pool.errands(at).due {
            match (errand.ask, pool.place_of(errand.to)) {
                (Ask::Health, Some(0)) => {
                    // Twice, and it is down.
                    probes.extend((pool.state(at, 0) == "down").then_some(at));
                    pool.tell(at, 0, Sight::Gone);
                }
                (Ask::Health, Some(other)) => pool.tell(at, other, Sight::Well),
                (ask, to) => assert!(to != Some(0) || ask == Ask::Health, "it is down"),
            }
        }
    }
    assert!(probes.windows(2).all(|pair| pair[1] - pair[0] <= S + ms(10)));
    assert!((9..=13).contains(&probes.len()), "{}", probes.len());
}

#[test]
fn models_are_asked_for_when_one_is_wanted_that_nobody_serves() {
    let (mut pool, now) = pool(1);
    let model = |name: &str| Model { name: name.into(), longest: None, parent: None };
    pool.wake(now);
    pool.errands(now);
    pool.tell(now, 0, Sight::Models(vec![model("base")]));
    let mut asked = 0;
    for step in 0..50 {
        let at = now + ms(100) * step;
        pool.wake(at);
        asked += asks(&pool.errands(at), Ask::Models);
        pool.tell(at, 0, Sight::Models(vec![model("base")]));
    }
    assert_eq!(asked, 0, "once a minute");
    let wanted = Wants { model: Some("new-adapter".into()), ..Wants::default() };
    for step in 0..50 {
        let at = now + 5 * S + ms(100) * step;
        let call = pool.place(at, Some(&wanted), work(1)).expect("the replica is the source of truth");
        pool.ended(call);
        let errands = pool.errands(at);
        asked += asks(&errands, Ask::Models);
        if asks(&errands, Ask::Models) > 0 {
            pool.tell(at, 0, Sight::Models(vec![model("base")]));
        }
    }
    assert!((4..=7).contains(&asked), "about once a second: {asked}");
}

#[test]
fn what_is_off_is_not_asked() {
    let (mut pool, now) = with(2, PoolConfig { health: None, poll: None, ..PoolConfig::default() });
    pool.wake(now);
    let errands = pool.errands(now);
    assert_eq!([Ask::Health, Ask::Load, Ask::Models].map(|ask| asks(&errands, ask)), [0, 0, 2]);
}

#[test]
fn idle_replicas_are_asked_rarely_and_those_with_calls_soon() {
    let (mut pool, now) = with(2, PoolConfig { poll: None, ..PoolConfig::default() });
    let call = pool.sent(now, 1, None, work(1)).unwrap();
    let mut probes = [Vec::new(), Vec::new()];
    for step in 0..2_000 {
        let at = now + ms(5) * step;
        for errand in pool.errands(at).due.into_iter().filter(|errand| errand.ask == Ask::Health) {
            let place = pool.place_of(errand.to).unwrap();
            probes[place].push(at);
            pool.tell(at, place, Sight::Well);
        }
    }
    let gaps = |place: usize| probes[place].windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    assert!(gaps(0).iter().all(|gap| *gap >= S && *gap <= ms(1_260)), "{:?}", gaps(0));
    assert!(gaps(1).iter().all(|gap| *gap >= ms(240) && *gap <= ms(310)), "{:?}", gaps(1));
    assert_eq!(pool.ended(call), None);
}

#[test]
fn where_a_probe_found_nobody_another_looks_within_fifty_milliseconds() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.errands(now);
    pool.all_well(now);
    pool.tell(now, 0, Sight::Gone);
    let errands = pool.errands(now);
    assert!(!errands.due.iter().any(|errand| errand.ask == Ask::Health), "not the same moment");
    assert!(errands.next.is_some_and(|next| next > now && next <= now + ms(50)));
    assert_eq!(asks(&pool.errands(now + ms(50)), Ask::Health), 1);
}
