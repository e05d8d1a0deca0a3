//! The script on a real server: it divides a cap as the broker in Rust does, with any clock and any loss.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redis::{Connection, Script};

use super::exchange::{Message, Situation, script_with};
use tidegate_share::{Broker, LeaseUpdate, LimitRole, MemberId, Predecessor, Report, ToBroker, ToMember};
use tidegate_test_servers::RedisServer;

/// A heartbeat of a member that has returned nothing, and does not know of its grants.
const HEARTBEAT: Message = Message::Heartbeat { granted: 0, returned: 0 };

/// What a member does.
#[derive(Clone, Debug)]
enum Action {
    Join { cap: usize, weight: f64, claim: usize, want: usize },
    Report { returned: usize, want: usize, cap: usize, weight: f64 },
    Heartbeat,
    Leave,
}

/// What the broker in Rust has told a member.
#[derive(Clone, Copy, Default)]
struct Told {
    granted: usize,
    returned: usize,
    update: LeaseUpdate,
}

/// A script on a server, with a clock that the test sets.
pub(super) struct Store {
    connection: Connection,
    script: Script,
    pub(super) key: String,
}

/// The clock of a [`Store`].
pub(super) const WALL: &str = "local wall = tonumber(redis.call('GET', 'wall'))";

impl Store {
    pub(super) fn new(server: &RedisServer, script: Script) -> Self {
        let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { connection, script, key: "test:{0}".to_owned() }
    }

    /// Runs `check` with a state of its own for each of random sequences of actions.
    pub(super) fn check<A: std::fmt::Debug>(
        self,
        cases: u32,
        actions: &impl Strategy<Value = A>,
        check: impl Fn(&mut Self, &A) -> Result<(), TestCaseError>,
    ) {
        let store = std::cell::RefCell::new((self, 0));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
        let run = |actions| {
            let (store, run) = &mut *store.borrow_mut();
            *run += 1;
            store.key = format!("test:{{{run}}}");
            check(store, &actions)
        };
        runner.run(actions, run).unwrap();
    }

    pub(super) fn exchange(&mut self, at: Duration, member: &str, message: &Message) -> Option<String> {
        let key = &self.key;
        let mut invocation = self.script.prepare_invoke();
        invocation.key(key).key(format!("{key}:heard")).key(format!("{key}:cools"));
        invocation.arg(message.arguments(member));
        redis::cmd("SET").arg("wall").arg(at.as_secs_f64()).exec(&mut self.connection).unwrap();
        invocation.invoke(&mut self.connection).unwrap()
    }

    fn situation(&mut self, at: Duration, member: &str, message: &Message) -> Situation {
        Situation::parse(&self.exchange(at, member, message).expect("the member is known")).unwrap()
    }
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(2.0), 0.1..10.0]
}

fn action() -> impl Strategy<Value = Action> {
    // Small caps are contended.
    let cap = || prop_oneof![1..4usize, 3..40usize];
    let join = (cap(), weight(), 0..4usize, 0..20usize).prop_map(|(cap, weight, claim, want)| Action::Join {
        cap,
        weight,
        claim: claim.min(cap),
        want,
    });
    let report = (0..4usize, prop_oneof![0..3usize, 0..20usize], cap(), weight())
        .prop_map(|(returned, want, cap, weight)| Action::Report { returned, want, cap, weight });
    prop_oneof![2 => join, 12 => report, 1 => Just(Action::Heartbeat), 1 => Just(Action::Leave)]
}

/// Runs the actions on both brokers, and compares what each member holds and is told.
fn compare(store: &mut Store, actions: &[(usize, Action, u64)]) -> Result<(), TestCaseError> {
    let resource: Arc<str> = "target:model".into();
    let start = crate::clock::now();
    let mut broker = Broker::new(start, Predecessor::None);
    let mut members: BTreeMap<u64, Told> = BTreeMap::new();
    // Each member is named by the number of its turn, so that both brokers order members alike.
    let mut names: BTreeMap<usize, u64> = BTreeMap::new();
    let mut at = Duration::ZERO;
    for (turn, (who, action, millis)) in actions.iter().enumerate() {
        at += Duration::from_millis(*millis);
        let known = names.get(who).copied();
        let (message, to_broker) = match (action, known) {
            (Action::Join { cap, weight, claim, want }, None) => {
                let (cap, weight, claim, want) = (*cap, *weight, *claim, *want);
                let report = Report {
                    cap,
                    weight,
                    want,
                    returned: 0,
                    claim,
                    known_survivors: 0,
                    adaptive: None,
                    role: LimitRole::Follower,
                };
                names.insert(*who, turn as u64);
                members.insert(turn as u64, Told { granted: claim, ..Told::default() });
                let message = Message::Join { report, replaces: Vec::new() };
                (message, ToBroker::Report { resource: resource.clone(), report })
            }
            (Action::Report { returned, want, cap, weight }, Some(id)) => {
                let Some(told) = members.get_mut(&id) else { continue };
                let returned = (*returned).min(told.granted - told.returned);
                told.returned += returned;
                let (cap, weight, want) = (*cap, *weight, *want);
                let report = Report {
                    cap,
                    weight,
                    want,
                    returned,
                    claim: 0,
                    known_survivors: 0,
                    adaptive: None,
                    role: LimitRole::Follower,
                };
                let message = Message::Report { report, granted: told.granted, returned: told.returned };
                (message, ToBroker::Report { resource: resource.clone(), report })
            }
            (Action::Leave, Some(id)) => {
                names.remove(who);
                members.remove(&id);
                let name = format!("{id:08}");
                let answer = store.exchange(at, &name, &Message::Leave);
                prop_assert_eq!(answer.as_deref(), Some(""));
                let messages = broker.on_disconnect(start + at, MemberId(id));
                apply(&mut members, messages);
                continue;
            }
            _ => continue,
        };
        let id = names[who];
        apply(&mut members, broker.on_message(start + at, MemberId(id), &to_broker));
        store.situation(at, &format!("{id:08}"), &message);
        for (id, told) in &members {
            // The broker tells the total late, if nothing else is new.
            let messages = broker.on_message(start + at, MemberId(*id), &ToBroker::Heartbeat { number: 1 });
            let total = messages.iter().find_map(|(_, message)| match message {
                ToMember::Lease { update, .. } => Some(update.total),
                _ => None,
            });
            let heartbeat = Message::Heartbeat { granted: told.granted, returned: told.returned };
            let situation = store.situation(at, &format!("{id:08}"), &heartbeat);
            prop_assert_eq!(situation.granted, told.granted, "member {} after turn {}", id, turn);
            let LeaseUpdate { others_short, fair, cap, members, .. } = told.update;
            let update = situation.update;
            prop_assert_eq!(
                (update.others_short, update.fair, update.cap, update.members),
                (others_short, fair, cap, members),
                "member {} after turn {}",
                id,
                turn
            );
            prop_assert!(total.is_none_or(|total| total == update.total));
        }
    }
    Ok(())
}

/// Applies what the broker in Rust tells the members.
fn apply(members: &mut BTreeMap<u64, Told>, messages: Vec<(MemberId, ToMember)>) {
    for (MemberId(id), message) in messages {
        if let (Some(told), ToMember::Lease { update, .. }) = (members.get_mut(&id), message) {
            told.granted += update.granted;
            told.update = update;
        }
    }
}

fn store(server: &RedisServer) -> Store {
    Store::new(server, script_with(WALL, Duration::ZERO))
}

fn join(cap: usize, want: usize) -> Message {
    let report = Report {
        cap,
        weight: 1.0,
        want,
        returned: 0,
        claim: 0,
        known_survivors: 0,
        adaptive: None,
        role: LimitRole::Follower,
    };
    Message::Join { report, replaces: Vec::new() }
}

#[test]
fn leases_end_by_silence_and_not_by_the_clock_of_the_server() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = store(&server);
    let secs = Duration::from_secs;
    let holds = |store: &mut Store, at| store.exchange(at, "holder", &HEARTBEAT).is_some();
    let mut at = secs(1_000_000);
    assert_eq!(store.situation(at, "holder", &join(4, 4)).granted, 4);
    assert_eq!(store.situation(at, "other", &join(4, 4)).granted, 0);
    // The clock is set forward by a day, back by two days, and forward again.
    for next in [at + secs(86_400), at - secs(86_400), at] {
        assert_eq!(store.situation(next, "other", &HEARTBEAT).granted, 0);
        assert_eq!(store.situation(next + secs(2), "other", &HEARTBEAT).granted, 0);
        assert!(holds(&mut store, next + secs(2)));
        at = next + secs(2);
    }
    // The holder is silent, and the other one reports.
    for _ in 0..4 {
        assert_eq!(store.situation(at, "other", &HEARTBEAT).granted, 0);
        at += secs(2);
    }
    assert_eq!(store.situation(at, "other", &HEARTBEAT).granted, 4);
    assert!(!holds(&mut store, at));
}

#[test]
fn repeated_and_lost_messages_change_nothing() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = store(&server);
    let at = Duration::from_secs(1);
    assert_eq!(store.situation(at, "a", &join(8, 8)).granted, 8);
    let report = Report {
        cap: 8,
        weight: 1.0,
        want: 0,
        returned: 0,
        claim: 0,
        known_survivors: 0,
        adaptive: None,
        role: LimitRole::Follower,
    };
    for _ in 0..3 {
        let message = Message::Report { report, granted: 8, returned: 3 };
        assert_eq!(store.situation(at, "a", &message).update.total, 5);
    }
    // A member that has not heard of its grants wants them still, and gets no others.
    assert_eq!(store.situation(at, "b", &join(8, 2)).granted, 2);
    let report = Report { want: 2, ..report };
    let message = Message::Report { report, granted: 0, returned: 0 };
    assert_eq!(store.situation(at, "b", &message).granted, 2);
    // A replica that became the primary knows of fewer grants than the member.
    let report = Report { want: 0, ..report };
    let message = Message::Report { report, granted: 3, returned: 0 };
    assert_eq!(store.situation(at, "b", &message).update.total, 8);
    assert_eq!(store.exchange(at, "unknown", &HEARTBEAT), None);
}

#[test]
fn malformed_answers_are_rejected() {
    let valid = "8 1 4 8 2 8 5000000000 250 0";
    let situation = Situation::parse(valid).unwrap();
    assert_eq!((situation.granted, situation.update.fair, situation.cools.as_millis()), (8, 4, 250));
    for text in [
        "",
        "8",
        "8 1 4 8 2 8 1 250",
        "8 1 4 8 2 8 1 250 0 0",
        "-8 1 4 8 2 8 1 250 0",
        "8 1 4 0 2 8 1 0 0",
        "nan 1 4 8 2 8 1 0 0",
        "5000000000 1 4 8 2 8 1 0 0",
    ] {
        assert!(Situation::parse(text).is_err(), "{text}");
    }
}

#[test]
fn script_divides_caps_as_the_broker_does() {
    let server = RedisServer::start(&[]).unwrap();
    let actions = prop::collection::vec((0..8usize, action(), 0..400u64), 1..120);
    store(&server).check(150, &actions, |store, actions| compare(store, actions));
}
