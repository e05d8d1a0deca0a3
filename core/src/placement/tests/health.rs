use super::*;

const S: Duration = Duration::from_secs(1);

fn no_probes() -> PoolConfig {
    PoolConfig { health: None, ..PoolConfig::default() }
}

#[test]
fn one_refused_connection_makes_it_suspect_and_two_take_it_down() {
    let (mut pool, now) = pool(4);
    pool.failed(now, 1, Fault::Gone);
    assert_eq!(pool.state(now, 1), "suspect");
    assert!(!pool.in_choice(now).contains(1));
    assert!(pool.take_fallen().is_empty(), "nothing is called back yet");
    pool.tell(now, 1, Sight::Well);
    assert_eq!(pool.state(now, 1), "in", "it was one connection");
    pool.failed(now, 1, Fault::Gone);
    pool.tell(now, 1, Sight::Gone);
    assert_eq!(pool.state(now, 1), "down");
    assert_eq!(pool.take_fallen(), Places::one(1));
    assert!(pool.take_fallen().is_empty(), "told once");
    pool.failed(now, 2, Fault::Gone);
    pool.failed(now, 2, Fault::Gone);
    assert_eq!(pool.take_fallen(), Places::one(2), "two calls are as good as a probe");
}

#[test]
fn who_refuses_connections_is_out_whatever_their_number() {
    let (mut pool, now) = pool(4);
    for at in 0..4 {
        pool.tell(now, at, Sight::Gone);
    }
    assert!(pool.in_choice(now).is_empty());
    assert_eq!(pool.take_fallen().len(), 4);
}

#[test]
fn of_silence_never_more_than_half() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.errands(now);
    for at in 0..4 {
        pool.tell(now + S, at, Sight::Silent);
    }
    assert_eq!(pool.in_choice(now + S).len(), 2);
    let later = now + 4 * S;
    assert_eq!(pool.in_choice(later).len(), 2);
    assert_eq!(pool.take_fallen().len(), 2, "nor are the calls of the others called back");
}

#[test]
fn the_least_bad_stay_in() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    pool.errands(now);
    pool.tell(now + S, 0, Sight::Silent);
    pool.tell(now + S, 1, Sight::Silent);
    assert_eq!(pool.in_choice(now + S), [2, 3].into_iter().collect());
    for _ in 0..5 {
        pool.failed(now + S, 2, Fault::Broke);
    }
    assert_eq!(pool.in_choice(now + S), [2, 3].into_iter().collect());
    assert_eq!(pool.state(now + S, 2), "suspect");
}

#[test]
fn a_silent_one_is_suspect_then_down_and_comes_back_by_trial_and_slow_start() {
    let (mut pool, now) = pool(4);
    pool.wake(now);
    let asked = pool.errands(now).due.into_iter().filter(|errand| errand.ask == Ask::Health).count();
    assert_eq!(asked, 4);
    pool.tell(now + ms(500), 3, Sight::Silent);
    assert_eq!(pool.state(now + ms(500), 3), "suspect");
    assert!(pool.take_fallen().is_empty());
    assert_eq!(pool.next_wake(now + ms(500)), Some(now + 2 * S), "down_after its first miss was asked");
    assert!(!pool.in_choice(now + 2 * S).contains(3));
    assert_eq!(pool.state(now + 2 * S, 3), "down");
    assert_eq!(pool.take_fallen(), Places::one(3));
    pool.tell(now + 3 * S, 3, Sight::Well);
    assert_eq!(pool.state(now + 3 * S, 3), "trial");
    // One call at a time.
    assert!(pool.in_choice(now + 3 * S).contains(3));
    let call = pool.sent(now + 3 * S, 3, None, work(1)).unwrap();
    assert!(!pool.in_choice(now + 3 * S).contains(3));
    pool.succeeded(now + 3 * S, 3);
    assert!(pool.in_choice(now + 3 * S).contains(3));
    pool.tell(now + 4 * S, 3, Sight::Well);
    assert_eq!(pool.state(now + 4 * S, 3), "starting");
    assert!(pool.share(now + 4 * S, 3) <= 0.1);
    assert!((pool.share(now + 9 * S, 3) - 0.5).abs() < 1e-9);
    assert_eq!(pool.share(now + 14 * S, 3), 1.0);
    assert_eq!(pool.state(now + 14 * S, 3), "in");
    assert!(pool.ended(now + 14 * S, call).is_none());
}

#[test]
fn a_trial_that_ends_unheard_of_leaves_room_for_the_next() {
    let (mut pool, now) = pool(2);
    pool.tell(now, 0, Sight::Gone);
    pool.tell(now + S, 0, Sight::Well);
    let call = pool.sent(now + S, 0, None, work(1)).unwrap();
    assert!(!pool.in_choice(now + S).contains(0));
    pool.ended(now + S, call);
    assert!(pool.in_choice(now + S).contains(0));
}

#[test]
fn bytes_are_life() {
    let (mut pool, now) = pool(2);
    pool.wake(now);
    pool.errands(now);
    pool.alive(now + ms(100), 0);
    pool.tell(now + ms(500), 0, Sight::Silent);
    assert_eq!(pool.state(now + ms(500), 0), "in", "the probe was lost, the replica is not");
    pool.tell(now + ms(500), 1, Sight::Silent);
    pool.alive(now + ms(600), 1);
    assert_eq!(pool.state(now + ms(600), 1), "in");
}

#[test]
fn five_failures_in_a_minute_eject_unless_most_calls_are_accepted() {
    let (mut pool, now) = pool(4);
    for n in 0..5 {
        assert!(pool.in_choice(now).contains(0));
        pool.failed(now + S * n, 0, Fault::Broke);
    }
    assert_eq!(pool.state(now + 4 * S, 0), "suspect");
    for n in 0..50 {
        pool.failed(now + 16 * S * n, 1, Fault::Broke);
    }
    assert_eq!(pool.state(now + 800 * S, 1), "in", "too few for a minute");
    for n in 0..200 {
        pool.succeeded(now, 2);
        if n % 10 == 0 {
            pool.failed(now, 2, Fault::Broke);
        }
    }
    assert_eq!(pool.state(now, 2), "in", "a tenth of many");
}

#[test]
fn calls_that_fail_while_probes_are_well_try_it_ever_more_rarely() {
    let (mut pool, mut now) = pool(4);
    (0..5).for_each(|_| pool.failed(now, 0, Fault::Broke));
    let mut trials = 0;
    for _ in 0..400 {
        now += ms(250);
        pool.tell(now, 0, Sight::Well);
        if pool.state(now, 0) == "trial" {
            trials += 1;
            let call = pool.sent(now, 0, None, work(1)).unwrap();
            pool.failed(now, 0, Fault::Broke);
            pool.ended(now, call);
            assert_eq!(pool.state(now, 0), "suspect");
        }
    }
    assert!((5..=8).contains(&trials), "in a hundred seconds: {trials}");
}

#[test]
fn without_probes_time_opens_the_trial() {
    let (mut pool, now) = with(4, no_probes());
    pool.failed(now, 0, Fault::Gone);
    pool.failed(now, 0, Fault::Gone);
    assert_eq!(pool.next_wake(now), Some(now + S));
    assert!(pool.in_choice(now + S).contains(0));
    assert_eq!(pool.state(now + S, 0), "trial");
    pool.failed(now + S, 0, Fault::Gone);
    assert!(!pool.in_choice(now + 2 * S).contains(0));
    assert!(pool.in_choice(now + 3 * S).contains(0), "twice as long");
    pool.succeeded(now + 3 * S, 0);
    pool.succeeded(now + 3 * S, 0);
    assert_eq!(pool.state(now + 3 * S, 0), "starting");
}

#[test]
fn every_state_is_left() {
    // Without anybody who asks or answers: time alone.
    for config in [PoolConfig::default(), no_probes()] {
        let (mut pool, now) = with(8, config);
        pool.tell(now, 0, Sight::Gone);
        pool.tell(now, 1, Sight::Silent);
        pool.tell(now, 2, Sight::Unwell);
        (0..5).for_each(|_| pool.failed(now, 3, Fault::Broke));
        pool.failed(now, 4, Fault::Gone);
        pool.failed(now, 5, Fault::Full(None));
        pool.failed(now, 6, Fault::Limited(Some(20 * S)));
        assert_eq!(pool.in_choice(now), Places::one(7));
        let mut at = now;
        while let Some(next) = pool.next_wake(at) {
            assert!(next > at);
            at = next;
            pool.in_choice(at);
        }
        assert_eq!(pool.in_choice(at).len(), 8, "{:?}", pool.view(at));
        for place in 0..8 {
            pool.succeeded(at, place);
            pool.succeeded(at, place);
        }
        assert!(pool.view(at + 60 * S).iter().all(|replica| ["in", "starting"].contains(&replica.state)));
        pool.in_choice(at + 60 * S);
        assert!(pool.view(at + 60 * S).iter().all(|replica| replica.state == "in"));
    }
}

#[test]
fn busy_is_not_ill() {
    let (mut pool, now) = pool(2);
    for _ in 0..20 {
        pool.failed(now, 0, Fault::Full(None));
    }
    assert_eq!(pool.state(now, 0), "in");
    assert!(!pool.in_choice(now).contains(0));
    assert!(pool.in_choice(now + ms(500)).contains(0), "a moment");
    pool.failed(now, 1, Fault::Full(Some(3 * S)));
    assert!(!pool.in_choice(now + 2 * S).contains(1), "as long as it says");
    assert!(pool.in_choice(now + 3 * S).contains(1));
    assert_eq!(pool.next_wake(now + S), Some(now + 3 * S));
    assert!(pool.take_fallen().is_empty());
}

#[test]
fn an_unwell_one_is_out_and_then_down() {
    let (mut pool, now) = pool(4);
    pool.tell(now, 0, Sight::Unwell);
    assert_eq!(pool.state(now, 0), "suspect");
    pool.tell(now + ms(250), 0, Sight::Unwell);
    pool.tell(now + 2 * S, 0, Sight::Unwell);
    assert_eq!(pool.state(now + 2 * S, 0), "down");
    assert_eq!(pool.take_fallen(), Places::one(0));
}

#[test]
fn what_it_had_cached_ended_with_it() {
    let (mut pool, now) = pool(4);
    let same = wants(&[1, 2]);
    let mut call = pool.sent(now, 2, Some(&same), work(4_000)).unwrap();
    pool.first_token(now, &mut call);
    pool.ended(now, call);
    assert!(pool.seats(now, Some(&same), work(4_000), Places::one(2))[0].cached > 3_000);
    pool.tell(now, 2, Sight::Gone);
    assert_eq!(pool.seats(now, Some(&same), work(4_000), Places::one(2))[0].cached, 0);
}
