//! The script on a real server: it divides a cap as the broker in Rust does, with any clock and any
//! loss.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redis::{Connection, Script};

use super::script_messages::{Message, SlotsReply, reply_for, script_with};
use tidegate_share::{Broker, LeaseUpdate, LimitRole, MemberId, Predecessor, Report, ToBroker, ToMember};
use tidegate_test_servers::RedisServer;

/// A heartbeat of a member that has returned nothing, and does not know of its grants.
const HEARTBEAT: Message = Message::Heartbeat { granted: 0, returned: 0 };

/// What a member does.
#[derive(Clone, Debug)]
enum Action {
    Join { cap: usize, weight: f64, claim: usize, want: usize, adaptive: Adaptive },
    Report { returned: usize, want: usize, cap: usize, weight: f64, adaptive: Adaptive },
    Leave,
}

/// What a member says about an adaptive limit: what it has found, and its role.
type Adaptive = (Option<usize>, Option<LimitRole>);

/// What the broker in Rust has told a member.
#[derive(Clone, Copy, Default)]
struct Told {
    granted: usize,
    returned: usize,
    update: LeaseUpdate,
}

/// A script on a server, with a clock that the test sets.
pub(super) struct Store {
    pub(super) connection: Connection,
    script: Script,
    pub(super) key: String,
    /// The last division, or change of charges, that members know of.
    pub(super) division: u64,
    /// The time since the store has last answered the member.
    pub(super) silence: Duration,
}

/// The clock of a [`Store`].
pub(super) const WALL: &str = "local wall = tonumber(redis.call('GET', 'wall'))";

impl Store {
    pub(super) fn new(server: &RedisServer, script: Script) -> Self {
        let connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { connection, script, key: "test:{0}".to_owned(), division: 0, silence: Duration::ZERO }
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

    /// Returns the reply to a message.
    pub(super) fn exchange(&mut self, at: Duration, member: &str, message: &Message) -> Option<String> {
        let key = &self.key;
        let mut invocation = self.script.prepare_invoke();
        invocation.key(key).key(format!("{key}:heard")).key(format!("{key}:cools"));
        invocation.arg(message.arguments(member, self.division, self.silence));
        redis::cmd("SET").arg("wall").arg(at.as_secs_f64()).exec(&mut self.connection).unwrap();
        let answer: Option<String> = invocation.invoke(&mut self.connection).unwrap();
        // A member that leaves is told nothing.
        let reply = |answer: String| {
            if answer.is_empty() { answer } else { reply_for(&answer, member).unwrap().to_owned() }
        };
        answer.map(reply)
    }

    fn reply(&mut self, at: Duration, member: &str, message: &Message) -> SlotsReply {
        SlotsReply::parse(&self.exchange(at, member, message).expect("the member is known")).unwrap()
    }
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(2.0), 0.1..10.0]
}

fn action() -> impl Strategy<Value = Action> {
    // Small caps are contended.
    let cap = || prop_oneof![1..4usize, 3..40usize];
    let role = || {
        let roles = [LimitRole::Follower, LimitRole::Deputy, LimitRole::Leader];
        prop_oneof![6 => Just(None), 1 => prop::sample::select(roles.to_vec()).prop_map(Some)]
    };
    let found = || prop_oneof![1 => Just(None), 3 => (1..40usize).prop_map(Some)];
    let adaptive = move || prop_oneof![1 => Just((None, None)), 1 => (found(), role())];
    let join = (cap(), weight(), 0..4usize, 0..20usize, adaptive()).prop_map(
        |(cap, weight, claim, want, adaptive)| {
            let claim = claim.min(cap);
            Action::Join { cap, weight, claim, want, adaptive }
        },
    );
    let report = (0..4usize, prop_oneof![0..3usize, 0..20usize], cap(), weight(), adaptive()).prop_map(
        |(returned, want, cap, weight, adaptive)| Action::Report { returned, want, cap, weight, adaptive },
    );
    prop_oneof![2 => join, 12 => report, 1 => Just(Action::Leave)]
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
        let known = names.get(who).copied();
        if matches!(action, Action::Join { .. }) == known.is_some() {
            // No time passes in a turn without heartbeats: the broker in Rust would replace members
            // that are silent.
            continue;
        }
        at += Duration::from_millis(*millis);
        let message = match (action, known) {
            (Action::Join { cap, weight, claim, want, adaptive: (adaptive, role) }, None) => {
                let (cap, weight, claim, want) = (*cap, *weight, *claim, *want);
                let (adaptive, role) = (*adaptive, *role);
                let report = Report {
                    cap,
                    weight,
                    want,
                    returned: 0,
                    claim,
                    known_survivors: 0,
                    known_total: 0,
                    adaptive,
                    role,
                };
                names.insert(*who, turn as u64);
                members.insert(turn as u64, Told { granted: claim, ..Told::default() });
                let message = Message::Join { report, replaces: Vec::new() };
                Some((message, ToBroker::Report { resource: resource.clone(), report, heartbeat: None }))
            }
            (Action::Report { returned, want, cap, weight, adaptive: (adaptive, role) }, Some(id)) => {
                let Some(told) = members.get_mut(&id) else { continue };
                let returned = (*returned).min(told.granted - told.returned);
                told.returned += returned;
                let (cap, weight, want) = (*cap, *weight, *want);
                let (adaptive, role) = (*adaptive, *role);
                let report = Report {
                    cap,
                    weight,
                    want,
                    returned,
                    claim: 0,
                    known_survivors: 0,
                    known_total: 0,
                    adaptive,
                    role,
                };
                let message = Message::Report { report, granted: told.granted, returned: told.returned };
                Some((message, ToBroker::Report { resource: resource.clone(), report, heartbeat: None }))
            }
            (Action::Leave, Some(id)) => {
                names.remove(who);
                members.remove(&id);
                let name = format!("{id:08}");
                let answer = store.exchange(at, &name, &Message::Leave);
                prop_assert_eq!(answer.as_deref(), Some(""));
                let messages = broker.on_disconnect(start + at, MemberId(id));
                apply(&mut members, messages);
                None
            }
            _ => None,
        };
        if let Some((message, to_broker)) = message {
            let id = names[who];
            apply(&mut members, broker.on_message(start + at, MemberId(id), &to_broker));
            store.reply(at, &format!("{id:08}"), &message);
        }
        for (id, told) in &members {
            // The broker tells the total late, if nothing else is new.
            let messages = broker.on_message(start + at, MemberId(*id), &ToBroker::Heartbeat { number: 1 });
            let total = messages.iter().find_map(|(_, message)| match message {
                ToMember::Lease { update, .. } => Some(update.total),
                _ => None,
            });
            let heartbeat = Message::Heartbeat { granted: told.granted, returned: told.returned };
            let reply = store.reply(at, &format!("{id:08}"), &heartbeat);
            prop_assert_eq!(reply.granted, told.granted, "member {} after turn {}", id, turn);
            let LeaseUpdate { others_short, others_owed, fair, cap, members, .. } = told.update;
            let update = reply.update;
            prop_assert_eq!(
                (update.others_short, update.others_owed, update.fair, update.cap, update.members),
                (others_short, others_owed, fair, cap, members),
                "member {} after turn {}",
                id,
                turn
            );
            prop_assert_eq!(reply.appointment(&format!("{id:08}")), told.update.appointment);
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

fn report(cap: usize, want: usize) -> Report {
    let (returned, claim, known_survivors, known_total) = (0, 0, 0, 0);
    Report {
        cap,
        weight: 1.0,
        want,
        returned,
        claim,
        known_survivors,
        known_total,
        adaptive: None,
        role: None,
    }
}

fn join(cap: usize, want: usize) -> Message {
    let report = report(cap, want);
    Message::Join { report, replaces: Vec::new() }
}

#[test]
fn leases_end_by_silence_and_not_by_the_clock_of_the_server() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = store(&server);
    let secs = Duration::from_secs;
    let holds = |store: &mut Store, at| store.exchange(at, "holder", &HEARTBEAT).is_some();
    let mut at = secs(1_000_000);
    assert_eq!(store.reply(at, "holder", &join(4, 4)).granted, 4);
    assert_eq!(store.reply(at, "other", &join(4, 4)).granted, 0);
    // The clock is set forward by a day, back by two days, and forward again.
    for next in [at + secs(86_400), at - secs(86_400), at] {
        assert_eq!(store.reply(next, "other", &HEARTBEAT).granted, 0);
        assert_eq!(store.reply(next + secs(2), "other", &HEARTBEAT).granted, 0);
        assert!(holds(&mut store, next + secs(2)));
        at = next + secs(2);
    }
    // The holder is silent, and the other one reports.
    for _ in 0..4 {
        assert_eq!(store.reply(at, "other", &HEARTBEAT).granted, 0);
        at += secs(2);
    }
    assert_eq!(store.reply(at, "other", &HEARTBEAT).granted, 4);
    assert!(!holds(&mut store, at));
}

#[test]
fn repeated_and_lost_messages_change_nothing() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = store(&server);
    let at = Duration::from_secs(1);
    assert_eq!(store.reply(at, "a", &join(8, 8)).granted, 8);
    let report = report(8, 0);
    for _ in 0..3 {
        let message = Message::Report { report, granted: 8, returned: 3 };
        assert_eq!(store.reply(at, "a", &message).update.total, 5);
    }
    // A member that has not heard of its grants wants them still, and gets no others.
    assert_eq!(store.reply(at, "b", &join(8, 2)).granted, 2);
    let report = Report { want: 2, ..report };
    let message = Message::Report { report, granted: 0, returned: 0 };
    assert_eq!(store.reply(at, "b", &message).granted, 2);
    // A replica that became the primary knows of fewer grants than the member.
    let report = Report { want: 0, ..report };
    let message = Message::Report { report, granted: 3, returned: 0 };
    assert_eq!(store.reply(at, "b", &message).update.total, 8);
    assert_eq!(store.exchange(at, "unknown", &HEARTBEAT), None);
}

#[test]
fn store_that_has_lost_changes_grants_little_at_first() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = Store::new(&server, script_with(WALL, Duration::from_secs(4)));
    let at = Duration::from_secs;
    store.reply(at(1), "a", &join(8, 0));
    store.reply(at(2), "b", &join(8, 0));
    let key = store.key.clone();
    let before: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut store.connection).unwrap();
    let wants = |want, granted| Message::Report { report: report(8, want), granted, returned: 0 };
    assert_eq!(store.reply(at(6), "b", &wants(6, 0)).granted, 6);
    let known = store.reply(at(6), "a", &HEARTBEAT);
    assert_eq!((known.granted, known.update.total), (0, 6));
    // A replica without the last changes becomes the primary.
    let restore = redis::cmd("RESTORE").arg(&key).arg(0).arg(before).arg("REPLACE").to_owned();
    restore.exec(&mut store.connection).unwrap();
    store.division = known.division;
    assert_eq!(store.reply(at(7), "a", &wants(8, 0)).granted, 2);
    // A member that knows of a later division does not begin another grace time.
    store.division += 100;
    assert_eq!(store.reply(at(7), "b", &wants(0, 6)).granted, 6);
    assert_eq!(store.reply(at(7), "a", &wants(6, 2)).granted, 2);
    // The member is told of a later division, and the grace time was not prolonged.
    let again = store.reply(at(10), "b", &Message::Heartbeat { granted: 6, returned: 0 });
    assert!(again.division > known.division && again.again <= at(1), "{again:?}");
    assert_eq!(store.reply(at(12), "a", &wants(6, 2)).granted, 2);
}

#[test]
fn grace_time_ends_after_the_last_member_has_returned() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = Store::new(&server, script_with(WALL, Duration::from_secs(4)));
    let at = Duration::from_secs;
    let granted = |store: &mut Store, time| {
        let message = Message::Report { report: report(8, 8), granted: 0, returned: 0 };
        store.reply(at(time), "newcomer", &message).granted
    };
    assert_eq!(store.reply(at(1), "newcomer", &join(8, 8)).granted, 2);
    // Members of a store that has lost its data return.
    store.division = 50;
    for time in [3, 6] {
        store.reply(at(time), &format!("returned at {time}"), &join(8, 0));
        assert_eq!(granted(&mut store, time), 2);
    }
    assert_eq!(granted(&mut store, 9), 2);
    assert_eq!(granted(&mut store, 10), 8);
    // Members that return again and again do not prolong it for ever.
    store.key = "test:{new}".to_owned();
    store.division = 0;
    assert_eq!(store.reply(at(20), "newcomer", &join(8, 8)).granted, 2);
    for time in 21..32 {
        store.division = 50;
        store.reply(at(time), &format!("returned at {time}"), &join(8, 0));
        assert_eq!(granted(&mut store, time), 2);
    }
    assert_eq!(granted(&mut store, 32), 8);
}

/// A message that joins with an adaptive limit, in place of other members.
fn join_adaptive(found: usize, role: Option<LimitRole>, replaces: &[&str]) -> Message {
    let report = Report { adaptive: Some(found), role, ..report(64, 0) };
    Message::Join { report, replaces: replaces.iter().map(|name| Arc::from(*name)).collect() }
}

#[test]
fn who_has_seen_most_calls_leads() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = Store::new(&server, script_with(WALL, Duration::from_secs(4)));
    let at = Duration::from_secs;
    let observers =
        |reply: SlotsReply| -> Vec<String> { reply.observers.iter().map(ToString::to_string).collect() };
    // The store has lost its data, and the observers join after the others.
    let first = store.reply(at(1), "follower", &join_adaptive(10, None, &[]));
    assert_eq!(observers(first), ["follower"]);
    store.reply(at(2), "deputy", &join_adaptive(20, Some(LimitRole::Deputy), &[]));
    let all = store.reply(at(2), "leader", &join_adaptive(30, Some(LimitRole::Leader), &[]));
    assert_eq!(all.update.cap, 10, "what the leader finds is not known yet");
    assert_eq!(observers(all), ["leader", "deputy"]);
    // The leader connects again. It has missed less than the others, except the deputy.
    store.reply(at(6), "deputy", &HEARTBEAT);
    let again = join_adaptive(30, Some(LimitRole::Leader), &["leader"]);
    assert_eq!(observers(store.reply(at(6), "again", &again)), ["deputy", "again"]);
    // Whoever was forgotten meanwhile has missed more.
    let late = join_adaptive(30, Some(LimitRole::Leader), &["unknown"]);
    store.reply(at(7), "late", &late);
    store.exchange(at(7), "deputy", &Message::Leave);
    store.exchange(at(7), "again", &Message::Leave);
    let rest = store.reply(at(7), "late", &HEARTBEAT);
    assert_eq!(observers(rest), ["follower", "late"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_are_told_who_has_ended_and_whoever_holds_all_of_a_higher_cap() {
    let server = RedisServer::start(&[]).unwrap();
    let mut store = store(&server);
    let at = Duration::from_secs(1);
    let listener = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
    let (pushed, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(pushed);
    let mut connection = listener.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    for member in ["leader", "follower"] {
        let channel = format!("{}:{member}", store.key);
        redis::cmd("SSUBSCRIBE").arg(channel).exec_async(&mut connection).await.unwrap();
    }
    let mut received = async || -> Vec<(String, String)> {
        // Its answer comes after what was pushed.
        redis::cmd("PING").exec_async(&mut connection).await.unwrap();
        let text = |value: &redis::Value| redis::from_redis_value_ref::<String>(value).ok();
        let message = |push: redis::PushInfo| {
            let [channel, pushed] = &push.data[..] else { return None };
            let channel = text(channel)?.rsplit(':').next()?.to_owned();
            (push.kind == redis::PushKind::SMessage).then_some((channel, text(pushed)?))
        };
        std::iter::from_fn(|| pushes.try_recv().ok()).filter_map(message).collect()
    };
    let adaptive = |found, want| Report { adaptive: Some(found), ..report(64, want) };
    let report = |found| Message::Report { report: adaptive(found, 0), granted: 0, returned: 0 };
    store.reply(at, "leader", &join_adaptive(4, None, &[]));
    let joins = Message::Join { report: adaptive(9, 4), replaces: Vec::new() };
    assert_eq!(store.reply(at, "follower", &joins).granted, 4);
    received().await;
    store.reply(at, "leader", &report(6));
    let told = received().await;
    assert!(told.len() == 1 && told[0].0 == "follower" && told[0].1.starts_with("4 0 "), "{told:?}");
    // It hears of a lower cap by its heartbeat, and then of a higher one.
    store.reply(at, "leader", &report(4));
    let known = Message::Heartbeat { granted: 4, returned: 0 };
    assert_eq!(store.reply(at, "follower", &known).update.cap, 4);
    received().await;
    store.reply(at, "leader", &report(5));
    assert_eq!(received().await.len(), 1);
    store.reply(at, "other", &join_adaptive(9, None, &[]));
    received().await;
    store.exchange(at, "other", &Message::Leave);
    let gone = |to: &str| (to.to_owned(), "gone other".to_owned());
    assert_eq!(received().await, [gone("leader"), gone("follower")]);
}

#[test]
fn malformed_answers_are_rejected() {
    let valid = "8 1 4 8 2 8 5000000000 3 a b 250 0";
    let reply = SlotsReply::parse(valid).unwrap();
    assert_eq!((reply.granted, reply.update.fair, reply.cools.as_millis()), (8, 4, 250));
    let roles = ["a", "b", "c"].map(|member| reply.appointment(member).map(|it| (it.role, it.term)));
    let expected = [LimitRole::Leader, LimitRole::Deputy, LimitRole::Follower].map(|role| Some((role, 3)));
    assert_eq!(roles, expected);
    assert_eq!(SlotsReply::parse("8 1 4 8 2 8 1 0 - - 0 0").unwrap().appointment("a"), None);
    for text in [
        "",
        "8",
        "8 1 4 8 2 8 1 0 - - 250",
        "8 1 4 8 2 8 1 0 - - 250 0 0",
        "-8 1 4 8 2 8 1 0 - - 250 0",
        "8 1 4 0 2 8 1 0 - - 0 0",
        "nan 1 4 8 2 8 1 0 - - 0 0",
        "8 1 4 8 2 8 1 a b - 0 0",
        "5000000000 1 4 8 2 8 1 0 - - 0 0",
        "8 3 4 8 2 8 1 0 - - 0 0",
    ] {
        assert!(SlotsReply::parse(text).is_err(), "{text}");
    }
}

#[test]
fn script_divides_caps_as_the_broker_does() {
    let server = RedisServer::start(&[]).unwrap();
    let actions = prop::collection::vec((0..8usize, action(), 0..400u64), 1..120);
    store(&server).check(150, &actions, |store, actions| compare(store, actions));
}

/// No time passes between two messages at the same time, so that nobody is charged for it.
#[test]
fn script_breaks_ties_as_the_broker_does() {
    let server = RedisServer::start(&[]).unwrap();
    let adaptive = (None, None);
    let join = Action::Join { cap: 1, weight: 1.0, claim: 0, want: 1, adaptive };
    let report = Action::Report { returned: 1, want: 1, cap: 1, weight: 1.0, adaptive };
    compare(&mut store(&server), &[(4, join.clone(), 274), (0, join, 8), (4, report, 0)]).unwrap();
}
