//! The script for rates on a real server: it gives the advances that the broker in Rust gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Message, RatesSituation, draw_script_with};
use super::tests::{Store, WALL};
use proptest::prelude::*;
use tidegate_share::rates::{Advance, Correction, Draw, RateLimit};
use tidegate_share::{Broker, LeaseTimes, MemberId, Predecessor, ToBroker, ToMember};
use tidegate_test_servers::RedisServer;

/// What a member does.
#[derive(Clone, Debug)]
enum Action {
    Draw { want: [u64; 2], least: [u64; 2], weight: f64, corrections: Vec<(u64, [i64; 2])>, per_window: u64 },
    Nothing,
    Leave,
}

fn store(server: &RedisServer) -> Store {
    Store::new(server, draw_script_with(WALL, LeaseTimes::LOCAL.advance, 1.0))
}

/// Returns what a member is told.
fn situation(store: &mut Store, at: Duration, member: &str, message: &Message) -> RatesSituation {
    RatesSituation::parse(&store.exchange(at, member, message).expect("the member is known")).unwrap()
}

fn limits(per_window: u64) -> Vec<RateLimit> {
    // Rates whose fractions do not end, so that nothing depends on the last digit.
    let limit = |window_ms, per_window: u64| RateLimit {
        window_ms,
        per_window,
        per_second: 0.985 * per_window as f64 / (window_ms as f64 / 1_000.7),
        burst_ms: 6_000,
    };
    vec![limit(60_000, per_window / 400), limit(120_000, per_window)]
}

fn action() -> impl Strategy<Value = Action> {
    let correction = (0..90_000u64, [-2..3i64, -2_000..2_000i64]);
    let draw = (
        [1..4u64, 1..9_000u64],
        0.0..1.0f64,
        prop_oneof![Just(1.0), 0.1..10.0],
        prop::collection::vec(correction, 0..3),
        prop_oneof![4 => Just(90_000u64), 1 => 40_000..200_000u64],
    );
    let draw = draw.prop_map(|(want, part, weight, corrections, per_window)| {
        let least = want.map(|want| (want as f64 * part) as u64);
        Action::Draw { want, least, weight, corrections, per_window }
    });
    prop_oneof![10 => draw, 3 => Just(Action::Nothing), 1 => Just(Action::Leave)]
}

fn draw(action: &Action) -> Option<Draw> {
    let Action::Draw { want, least, weight, corrections, per_window } = action else { return None };
    let correction =
        |(age_ms, amounts): &(u64, [i64; 2])| Correction { age_ms: *age_ms, amounts: amounts.to_vec() };
    Some(Draw {
        number: 7,
        limits: limits(*per_window),
        weight: *weight,
        want: want.to_vec(),
        least: least.to_vec(),
        // A member of the broker in Rust cannot take back what it was not given.
        corrections: corrections
            .iter()
            .filter(|(_, amounts)| amounts.iter().all(|it| *it >= 0))
            .map(correction)
            .collect(),
        unknown_ms: 0,
    })
}

/// Runs the actions on both brokers, and compares the advances.
fn compare(store: &mut Store, actions: &[(usize, Action, u64)]) -> Result<(), TestCaseError> {
    let resource: Arc<str> = "rates:model".into();
    let start = crate::clock::now();
    let mut broker = Broker::new(start, Predecessor::None);
    // The number of advances of each member, and the last one. Members are named by the number of their turn, so
    // that both brokers order them alike.
    let mut members: BTreeMap<u64, (u64, [Vec<u64>; 2])> = BTreeMap::new();
    let mut names: BTreeMap<usize, u64> = BTreeMap::new();
    let mut at = Duration::ZERO;
    for (turn, (who, action, millis)) in actions.iter().enumerate() {
        // Not at the edge of a bin, where the clocks of both are rounded differently.
        at += Duration::from_millis(*millis) + Duration::from_micros(37);
        let mut messages = Vec::new();
        match (names.get(who).copied(), draw(action)) {
            (None, Some(draw)) => {
                let id = turn as u64;
                names.insert(*who, id);
                members.insert(id, (0, Default::default()));
                let message =
                    Message::JoinRates { draw: draw.clone(), epoch: String::new(), replaces: Vec::new() };
                situation(store, at, &format!("{id:08}"), &message);
                let message = ToBroker::Draw { resource: resource.clone(), draw };
                messages = broker.on_message(start + at, MemberId(id), &message);
            }
            (Some(id), Some(draw)) => {
                situation(store, at, &format!("{id:08}"), &Message::Draw(draw.clone()));
                let message = ToBroker::Draw { resource: resource.clone(), draw };
                messages = broker.on_message(start + at, MemberId(id), &message);
            }
            (Some(id), None) if matches!(action, Action::Leave) => {
                names.remove(who);
                members.remove(&id);
                let answer = store.exchange(at, &format!("{id:08}"), &Message::LeaveRates);
                prop_assert_eq!(answer.as_deref(), Some(""));
                messages = broker.on_disconnect(start + at, MemberId(id));
            }
            _ => {}
        }
        messages.extend(broker.on_tick(start + at));
        for (MemberId(id), message) in messages {
            if let (Some(told), ToMember::Advance { advance, .. }) = (members.get_mut(&id), message) {
                *told = (told.0 + 1, [advance.amounts, advance.charged]);
            }
        }
        for (id, told) in &members {
            let situation = situation(store, at, &format!("{id:08}"), &Message::RatesHeartbeat);
            let Advance { amounts, charged, .. } = situation.advance;
            let given = (situation.advances, [amounts, charged]);
            prop_assert_eq!(&given, told, "member {} after turn {}", id, turn);
            prop_assert_eq!(situation.advance.members, members.len());
        }
    }
    Ok(())
}

#[test]
fn script_gives_advances_as_the_broker_does() {
    let server = RedisServer::start(&[]).unwrap();
    let actions = prop::collection::vec((0..6usize, action(), 0..1_500u64), 1..100);
    store(&server).check(100, &actions, |store, actions| compare(store, actions));
}

#[test]
fn charges_remain_when_members_leave_and_are_told_to_new_store() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let want = |want: u64, corrections| Draw {
        number: 1,
        limits: limits(90_000),
        weight: 1.0,
        want: vec![1, want],
        least: vec![1, want],
        corrections,
        unknown_ms: 2_000,
    };
    let join = |draw, epoch: &str| Message::JoinRates { draw, epoch: epoch.to_owned(), replaces: Vec::new() };
    let at = Duration::from_secs(5_000);
    let first = situation(store, at, "a", &join(want(89_000, Vec::new()), ""));
    assert_eq!((first.advances, first.advance.amounts), (1, vec![1, 89_000]));
    assert_eq!(store.exchange(at, "a", &Message::LeaveRates).as_deref(), Some(""));
    // The charge remains for the window of two minutes.
    let waits = situation(store, at, "b", &join(want(2_000, Vec::new()), ""));
    assert_eq!(waits.advances, 0);
    assert!(waits.again > Duration::from_secs(1), "{:?}", waits.again);
    let mut later = at;
    while later < at + Duration::from_secs(121) {
        assert_eq!(situation(store, later, "b", &Message::RatesHeartbeat).advances, 0);
        later += Duration::from_secs(2);
    }
    later += Duration::from_secs(2);
    assert_eq!(situation(store, later, "b", &Message::RatesHeartbeat).advances, 1);
    // This store knows what was charged before it was lost, and another one does not.
    let past = |age_ms| vec![Correction { age_ms, amounts: vec![0, 89_000] }];
    let known = situation(store, later, "c", &join(want(2_000, past(10_000)), &first.epoch));
    assert_eq!(known.advances, 1);
    assert_eq!(situation(store, later, "d", &join(want(2_000, past(1_000)), &first.epoch)).advances, 0);
    store.key = "test:{new}".to_owned();
    assert_eq!(situation(store, later, "e", &join(want(2_000, past(10_000)), &first.epoch)).advances, 0);
}

#[test]
fn malformed_answers_are_rejected() {
    let situation = RatesSituation::parse("3 250 7 1,90000 5,95000 2 1.5 40").unwrap();
    let advance = Advance { number: 7, amounts: vec![1, 90_000], members: 2, charged: vec![5, 95_000] };
    assert_eq!((situation.advances, situation.advance), (3, advance));
    assert_eq!(RatesSituation::parse("0 0 0 - - 1 1.5 0").unwrap().advance.amounts, Vec::<u64>::new());
    for text in [
        "",
        "3",
        "3 250 7 1,-9 2,9 2 1.5 40",
        "3 250 7 1,9 2,-9 2 1.5 40",
        "3 250 7 1,9 2,9 2 1.5",
        "x 250 7 1 1 2 1.5 40",
        "3 250 7 1,,9 2,9 2 1.5 40",
    ] {
        assert!(RatesSituation::parse(text).is_err(), "{text}");
    }
}
