//! The script for rates on a real server: it gives the advances that the broker in Rust gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::resource::SharedResource;
use super::REMOTE_HEARTBEAT;
use super::account::Account;
use super::script_messages::{Message, RatesReply, draw_script_with};
use super::tests::{Store, WALL};
use crate::admission::{BudgetSet, ShareEvent, ShareLink};
use crate::clock::now;
use crate::config::RateConfig;
use proptest::prelude::*;
use tidegate_share::rates::{Advance, Correction, Draw, RateLimit};
use tidegate_share::{Broker, LEASE_TIME, LeaseTimes, MemberId, Predecessor, ToBroker, ToMember};
use tidegate_test_servers::RedisServer;
use tidegate_tokens::Demand;

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

/// Returns a draw that wants nothing, with a larger number than all before.
fn no_draw(limits: Vec<RateLimit>, corrections: Vec<Correction>) -> Draw {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    Draw {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        limits,
        weight: 1.0,
        want: Vec::new(),
        least: Vec::new(),
        corrections,
        pending: Vec::new(),
        unknown_ms: 0,
    }
}

fn join(draw: Draw, epoch: &str) -> Message {
    Message::JoinRates { draw, epoch: epoch.to_owned(), replaces: Vec::new() }
}

/// Returns what a member is told.
fn reply(store: &mut Store, at: Duration, member: &str, message: &Message) -> RatesReply {
    RatesReply::parse(&store.exchange(at, member, message).expect("the member is known")).unwrap()
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
    // A member of the broker in Rust cannot take back what it was not given.
    let corrections = corrections.iter().filter(|(_, amounts)| amounts.iter().all(|it| *it >= 0));
    let withdrawn = no_draw(limits(*per_window), corrections.map(correction).collect());
    Some(Draw { weight: *weight, want: want.to_vec(), least: least.to_vec(), ..withdrawn })
}

/// The broker in Rust and the script, with the same members.
struct Comparison<'a> {
    store: &'a mut Store,
    broker: Broker,
    /// When the broker in Rust was started.
    start: std::time::Instant,
    /// The time since then, which is the clock of the store.
    at: Duration,
    /// The members. They are named by the number of their turn, so that both brokers order them
    /// alike.
    members: BTreeMap<u64, Told>,
}

/// What a member was told.
#[derive(Default)]
struct Told {
    /// The number of advances.
    advances: u64,
    /// The amounts of the last advance, and what all members had charged then.
    last: [Vec<u64>; 2],
    /// When the store has last answered it.
    answered_at: Duration,
}

impl Comparison<'_> {
    /// Sends a message to the store. Returns its answer.
    fn exchange(&mut self, id: u64, message: &Message) -> Option<String> {
        let told = self.members.entry(id).or_insert_with(|| Told { answered_at: self.at, ..Told::default() });
        self.store.silence = self.at - std::mem::replace(&mut told.answered_at, self.at);
        self.store.exchange(self.at, &format!("{id:08}"), message)
    }

    /// Sends a draw to both brokers.
    fn draw(&mut self, id: u64, draw: Draw) {
        let is_known = self.members.contains_key(&id);
        let message = if is_known { Message::Draw(draw.clone()) } else { join(draw.clone(), "") };
        assert!(self.exchange(id, &message).is_some(), "the member is known");
        let message = ToBroker::Draw { resource: "rates:model".into(), draw };
        let messages = self.broker.on_message(self.start + self.at, MemberId(id), &message);
        self.apply(messages);
    }

    /// Removes a member of the broker in Rust.
    fn remove(&mut self, id: u64) {
        self.members.remove(&id);
        let messages = self.broker.on_disconnect(self.start + self.at, MemberId(id));
        self.apply(messages);
    }

    /// Lets time pass in which nobody sends, because nobody wants anything. The store forgets all
    /// members, except the next one that sends.
    fn be_silent(&mut self, time: Duration, next: Option<u64>) {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for id in &ids {
            self.draw(*id, no_draw(limits(90_000), Vec::new()));
        }
        self.at += time;
        ids.into_iter().filter(|id| Some(*id) != next).for_each(|id| self.remove(id));
    }

    /// Applies what the broker in Rust tells the members.
    fn apply(&mut self, messages: Vec<(MemberId, ToMember)>) {
        for (MemberId(id), message) in messages {
            if let (Some(told), ToMember::Advance { advance, .. }) = (self.members.get_mut(&id), message) {
                told.advances += 1;
                told.last = [advance.amounts, advance.charged];
            }
        }
    }

    /// Compares what each member was given.
    fn check(&mut self, turn: usize) -> Result<(), TestCaseError> {
        let messages = self.broker.on_tick(self.start + self.at);
        self.apply(messages);
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            let answer = self.exchange(id, &Message::RatesHeartbeat).expect("the member is known");
            let reply = RatesReply::parse(&answer).unwrap();
            let Advance { amounts, charged, .. } = reply.advance;
            let told = &self.members[&id];
            prop_assert_eq!(
                (reply.advances, &[amounts, charged]),
                (told.advances, &told.last),
                "member {} after turn {}",
                id,
                turn
            );
            prop_assert_eq!(reply.advance.members, self.members.len());
        }
        Ok(())
    }
}

/// Runs the actions on both brokers, and compares the advances.
fn compare(store: &mut Store, actions: &[(usize, Action, u64)]) -> Result<(), TestCaseError> {
    let start = now();
    let broker = Broker::new(start, Predecessor::None);
    let mut both = Comparison { store, broker, start, at: Duration::ZERO, members: BTreeMap::new() };
    let mut names: BTreeMap<usize, u64> = BTreeMap::new();
    for (turn, (who, action, millis)) in actions.iter().enumerate() {
        // Not at the edge of a bin, where the clocks of both are rounded differently.
        let passed = Duration::from_millis(*millis) + Duration::from_micros(37);
        if passed > LEASE_TIME {
            both.be_silent(passed, names.get(who).copied());
            names.retain(|_, id| both.members.contains_key(id));
        } else {
            both.at += passed;
        }
        match (names.get(who).copied(), draw(action)) {
            (known, Some(draw)) => {
                let id = known.unwrap_or(turn as u64);
                names.insert(*who, id);
                both.draw(id, draw);
            }
            (Some(id), None) if matches!(action, Action::Leave) => {
                names.remove(who);
                let answer = both.exchange(id, &Message::LeaveRates);
                prop_assert_eq!(answer.as_deref(), Some(""));
                both.remove(id);
            }
            _ => {}
        }
        both.check(turn)?;
    }
    Ok(())
}

#[test]
fn script_gives_advances_as_the_broker_does() {
    let server = RedisServer::start(&[]).unwrap();
    let millis = prop_oneof![12 => 0..1_500u64, 1 => 9_000..100_000u64];
    let actions = prop::collection::vec((0..6usize, action(), millis), 1..100);
    store(&server).check(100, &actions, |store, actions| compare(store, actions));
}

#[test]
fn charges_remain_when_members_leave_and_are_told_to_new_store() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let want = |want: u64, corrections| Draw {
        want: vec![1, want],
        least: vec![1, want],
        unknown_ms: 2_000,
        ..no_draw(limits(90_000), corrections)
    };
    let at = Duration::from_secs(5_000);
    let first = reply(store, at, "a", &join(want(89_000, Vec::new()), ""));
    assert_eq!((first.advances, first.advance.amounts), (1, vec![1, 89_000]));
    assert_eq!(store.exchange(at, "a", &Message::LeaveRates).as_deref(), Some(""));
    // The charge remains for the window of two minutes.
    let waits = reply(store, at, "b", &join(want(2_000, Vec::new()), ""));
    assert_eq!(waits.advances, 0);
    assert!(waits.again > Duration::from_secs(1), "{:?}", waits.again);
    let mut later = at;
    while later < at + Duration::from_secs(121) {
        assert_eq!(reply(store, later, "b", &Message::RatesHeartbeat).advances, 0);
        later += Duration::from_secs(2);
    }
    later += Duration::from_secs(2);
    assert_eq!(reply(store, later, "b", &Message::RatesHeartbeat).advances, 1);
    // This store knows what was charged before it was lost, and another one does not.
    let past = |age_ms| vec![Correction { age_ms, amounts: vec![0, 89_000] }];
    let known = reply(store, later, "c", &join(want(2_000, past(10_000)), &first.epoch));
    assert_eq!(known.advances, 1);
    assert_eq!(reply(store, later, "d", &join(want(2_000, past(1_000)), &first.epoch)).advances, 0);
    store.key = "test:{new}".to_owned();
    assert_eq!(reply(store, later, "e", &join(want(2_000, past(10_000)), &first.epoch)).advances, 0);
}

#[test]
fn clock_follows_silence_of_member_and_not_jumps_of_the_server() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let draw =
        || Draw { want: vec![1, 89_000], least: vec![1, 89_000], ..no_draw(limits(90_000), Vec::new()) };
    let secs = Duration::from_secs;
    assert_eq!(reply(store, secs(5_000), "a", &join(draw(), "")).advances, 1);
    // The clock of the server is set forward by a day.
    store.silence = secs(1);
    let tomorrow = secs(5_000 + 86_400);
    assert_eq!(reply(store, tomorrow, "a", &Message::Draw(draw())).advances, 1);
    let withdrawn = Message::Draw(no_draw(limits(90_000), Vec::new()));
    assert_eq!(reply(store, tomorrow, "a", &withdrawn).advances, 1);
    // The member sends nothing for longer than the window.
    store.silence = secs(125);
    assert_eq!(reply(store, tomorrow + secs(125), "a", &Message::Draw(draw())).advances, 2);
    // The time of silence counts, too, if the member leaves at its end.
    let later = tomorrow + secs(250);
    assert_eq!(store.exchange(later, "a", &Message::LeaveRates).as_deref(), Some(""));
    assert_eq!(reply(store, later, "b", &join(draw(), "")).advances, 1);
}

#[test]
fn first_call_of_new_store_needs_no_wait() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut Store::new(&server, draw_script_with(WALL, LeaseTimes::REMOTE.advance, 0.25));
    let six_per_minute = RateLimit { window_ms: 60_000, per_window: 6, per_second: 0.1, burst_ms: 6_000 };
    let draw = || Draw { want: vec![1], least: vec![1], ..no_draw(vec![six_per_minute], Vec::new()) };
    let at = Duration::from_secs(1);
    let wants_nothing = |corrections| no_draw(vec![six_per_minute], corrections);
    assert_eq!(reply(store, at, "a", &join(wants_nothing(Vec::new()), "")).advances, 0);
    assert_eq!(reply(store, at, "a", &Message::Draw(draw())).advances, 1);
    assert_eq!(reply(store, at, "b", &join(draw(), "")).advances, 0);
    // A store that has lost its data may be told of earlier calls.
    store.key = "test:{new}".to_owned();
    let past = vec![Correction { age_ms: 1_000, amounts: vec![1] }];
    assert_eq!(reply(store, at, "c", &join(wants_nothing(past), "")).advances, 0);
    assert_eq!(reply(store, at, "c", &Message::Draw(draw())).advances, 0);
}

#[test]
fn store_of_same_epoch_is_told_pending_corrections_and_another_one_all_charges() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let at = Duration::from_secs(100);
    let draw = || Draw { want: vec![1, 500], least: vec![1, 500], ..no_draw(limits(90_000), Vec::new()) };
    let first = reply(store, at, "a", &join(draw(), ""));
    assert_eq!(first.advance.charged, [1, 500]);
    let list = |requests, tokens| vec![Correction { age_ms: 14_000, amounts: vec![requests, tokens] }];
    let again = || Draw { corrections: list(1, 3_500), pending: list(0, 3_000), ..draw() };
    let at = at + Duration::from_secs(14);
    let known = reply(store, at, "b", &join(again(), &first.epoch));
    assert_eq!(known.advance.charged, [2, 4_000]);
    // A store that was lost applies only the charges that are younger than the loss.
    let lost = Draw { unknown_ms: 15_000, ..again() };
    let known = reply(store, at, "c", &join(lost, &first.epoch));
    assert_eq!(known.advance.charged, [4, 8_000]);
    store.key = "test:{new}".to_owned();
    let unknown = reply(store, at, "d", &join(again(), &first.epoch));
    assert_eq!(unknown.advance.charged, [2, 4_000]);
}

/// A server was started again with an older file, or a replica without the last changes became the
/// primary.
#[test]
fn store_that_has_lost_changes_is_told_all_charges() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let at = Duration::from_secs;
    let draw = |tokens, past| Draw {
        want: vec![1, tokens],
        least: vec![1, tokens],
        ..no_draw(limits(90_000), past)
    };
    let past = |requests, tokens| vec![Correction { age_ms: 1_000, amounts: vec![requests, tokens] }];
    let first = reply(store, at(100), "a", &join(draw(500, Vec::new()), ""));
    reply(store, at(100), "b", &join(no_draw(limits(90_000), Vec::new()), ""));
    let key = store.key.clone();
    let before: Vec<u8> = redis::cmd("DUMP").arg(&key).query(&mut store.connection).unwrap();
    let known = reply(store, at(101), "a", &Message::Draw(draw(3_000, Vec::new())));
    assert_eq!(known.advance.charged, [2, 3_500]);
    let restore = redis::cmd("RESTORE").arg(&key).arg(0).arg(before).arg("REPLACE").to_owned();
    restore.exec(&mut store.connection).unwrap();
    // A member that knows of a later change joins again, and so does one that knows of none.
    store.division = known.division;
    for message in [Message::RatesHeartbeat, Message::RatesAlive] {
        assert_eq!(store.exchange(at(102), "a", &message), None);
    }
    let told = reply(store, at(102), "c", &join(draw(100, past(2, 3_500)), &known.epoch));
    assert_ne!(told.epoch, first.epoch);
    // What the store knows still is counted twice.
    assert_eq!(told.advance.charged, [4, 4_100]);
    store.division = 0;
    assert_eq!(store.exchange(at(102), "b", &Message::RatesHeartbeat), None);
    let told = reply(store, at(102), "d", &join(draw(10, past(3, 50)), &first.epoch));
    assert_eq!(told.advance.charged, [8, 4_160]);
}

#[test]
fn member_that_wants_nothing_is_known_while_it_is_alive() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let (at, rates) = (Duration::from_secs, || no_draw(limits(90_000), Vec::new()));
    let alive = |store: &mut Store, seconds| store.exchange(at(seconds), "a", &Message::RatesAlive);
    assert_eq!(alive(store, 100), None);
    for member in ["a", "b"] {
        reply(store, at(100), member, &join(rates(), ""));
    }
    for seconds in [104, 108, 112] {
        assert_eq!(alive(store, seconds).as_deref(), Some("2"));
    }
    // The clock of the resource is that of the server.
    let next = reply(store, at(112), "c", &join(rates(), ""));
    assert_eq!(next.advance.members, 2, "b is forgotten");
    assert_eq!(alive(store, 116).as_deref(), Some("2"));
    redis::cmd("FLUSHALL").exec(&mut store.connection).unwrap();
    assert_eq!(alive(store, 118), None);
}

#[test]
fn silent_members_are_forgotten_although_the_server_has_evicted_when_they_were_heard() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let at = Duration::from_secs;
    for member in ["a", "b"] {
        reply(store, at(100), member, &join(no_draw(limits(90_000), Vec::new()), ""));
    }
    redis::cmd("DEL").arg(format!("{}:heard", store.key)).exec(&mut store.connection).unwrap();
    for seconds in [101, 105, 108] {
        assert_eq!(reply(store, at(seconds), "a", &Message::RatesHeartbeat).advance.members, 2);
    }
    assert_eq!(reply(store, at(113), "a", &Message::RatesHeartbeat).advance.members, 1);
}

/// The client of a cluster sends a message again if its connection ends before the answer.
#[test]
fn repeated_messages_change_no_charges() {
    let server = RedisServer::start(&[]).unwrap();
    let store = &mut store(&server);
    let at = Duration::from_secs(100);
    let wants =
        |corrections| Draw { want: vec![1, 50], least: vec![1, 50], ..no_draw(limits(90_000), corrections) };
    let correction = |tokens| vec![Correction { age_ms: 1_000, amounts: vec![0, tokens] }];
    let joins = join(wants(correction(200)), "");
    let refunds = Message::Draw(wants(correction(-30)));
    for (message, advances, charged) in [(joins, 1, [1, 250]), (refunds, 2, [2, 270])] {
        for _ in 0..3 {
            let known = reply(store, at, "a", &message);
            assert_eq!((known.advances, known.advance.charged), (advances, charged.to_vec()));
        }
    }
}

/// Returns an account of rates, and the rates.
fn account() -> (Arc<BudgetSet>, Account) {
    let rates = RateConfig { tpm: Some(90_000), ..RateConfig::default() };
    let budgets = BudgetSet::new(&rates, now());
    budgets.share(false, LeaseTimes::REMOTE, |_, _| ShareLink::new(|_| {}));
    let set = budgets.rates.lock().shared_sets().next().unwrap();
    let limit = SharedResource::Rates(Arc::downgrade(&budgets), set);
    (budgets, Account::new("share", 0, "rates:llm", limit))
}

/// Lets the store answer the last message.
fn answer(account: &mut Account, reply: &str) {
    let answer = format!("{} {reply}", account.id);
    account.on_answer(&answer, now()).unwrap();
}

#[test]
fn member_that_may_have_lost_its_channel_subscribes_again() {
    let (_budgets, account) = &mut account();
    let subscribes = |account: &mut Account| -> Option<bool> {
        let outgoing = account.next_outgoing()?;
        answer(account, "0 0 0 - - 1 1.5 0 0");
        Some(outgoing.subscribes)
    };
    assert_eq!(subscribes(account), Some(true));
    account.on_heartbeat();
    assert_eq!(subscribes(account), None, "nothing is due");
    account.on_unsubscribed();
    assert_eq!(subscribes(account), Some(true));
    // The connection on which it has done so may have been replaced.
    for expected in [Some(true), Some(true), None] {
        account.on_heartbeat();
        assert_eq!(subscribes(account), expected);
    }
}

/// If the store has lost its state, a member that needs nothing must tell what it has charged.
#[tokio::test(start_paused = true)]
async fn silent_member_sends_heartbeats_while_it_has_charges() {
    let (budgets, account) = &mut account();
    assert!(account.next_message().is_some());
    answer(account, "0 0 0 - - 1 1.5 0 0");
    let mut next = async |passed| {
        tokio::time::advance(passed).await;
        account.on_heartbeat();
        let message = account.next_message();
        message.iter().for_each(|_| answer(account, "3"));
        message
    };
    assert_eq!(next(REMOTE_HEARTBEAT).await, None);
    let demand = Demand { input: 100, exact: true, ..Demand::default() };
    budgets.rates.lock().charge(now(), &demand);
    assert_eq!(next(REMOTE_HEARTBEAT).await, Some(Message::RatesAlive));
    assert_eq!(next(Duration::ZERO).await, None, "the store was heard just now");
    assert_eq!(next(Duration::from_secs(50)).await, Some(Message::RatesAlive));
    assert_eq!(next(Duration::from_secs(20)).await, None, "the charge has left the window");
}

/// All databases of a server have the same channels.
#[test]
fn members_of_other_databases_publish_to_other_channels() {
    let pool =
        |database| Account::new("share", database, "pool", SharedResource::Replicas(std::sync::Weak::new()));
    assert_eq!(pool(1).channel(), pool(1).channel());
    assert_ne!(pool(0).channel(), pool(1).channel());
}

#[test]
fn answer_to_another_message_is_rejected() {
    let (_budgets, account) = &mut account();
    assert!(account.next_message().is_some());
    let answer = format!("{:032x} 0 0 0 - - 1 1.5 0 0", 1);
    assert!(account.on_answer(&answer, now()).is_err());
}

#[tokio::test(start_paused = true)]
async fn member_that_was_forgotten_because_it_was_silent_joins_at_once() {
    let (_budgets, account) = &mut account();
    for (silence, joins_at_once) in [(Duration::from_secs(1), false), (LEASE_TIME, true)] {
        account.again_at = None;
        assert!(account.next_message().is_some());
        answer(account, "0 0 0 - - 1000 1.5 0 0");
        tokio::time::advance(silence).await;
        account.on_forgotten();
        assert_eq!(account.again_at.is_none(), joins_at_once, "silent for {silence:?}");
        // What is charged before the member joins is not known to the store.
        account.again_at = None;
        let Some(Message::JoinRates { draw, .. }) = account.next_message() else { panic!("does not join") };
        assert_eq!(draw.unknown_ms == 0, joins_at_once);
        account.on_lost();
    }
}

#[test]
fn corrections_are_told_again_until_store_has_applied_them() {
    let (_budgets, account) = &mut account();
    let answer = |account: &mut Account| answer(account, "0 0 0 - - 1 1.5 0 0");
    let changes = |amounts: &[i64]| {
        let correction = |amount: &i64| Correction { age_ms: 14_000, amounts: vec![*amount] };
        no_draw(Vec::new(), amounts.iter().map(correction).collect())
    };
    let amounts = |corrections: &[Correction]| -> Vec<i64> {
        corrections.iter().flat_map(|correction| correction.amounts.clone()).collect()
    };
    let joined = |account: &mut Account| match account.next_message() {
        Some(Message::JoinRates { draw, epoch, .. }) => (amounts(&draw.pending), draw.unknown_ms, epoch),
        other => panic!("{other:?}"),
    };
    assert_eq!(joined(account).0, [0; 0]);
    answer(account);
    account.on_event(ShareEvent::Drawn(changes(&[20_000, -500])));
    match account.next_message() {
        Some(Message::Draw(draw)) => assert_eq!(amounts(&draw.corrections), [20_000, -500]),
        other => panic!("{other:?}"),
    }
    // The store has ignored the draw.
    account.on_event(ShareEvent::Drawn(changes(&[3])));
    account.on_forgotten();
    assert_eq!(joined(account), (vec![3, 20_000, -500], 0, "1.5".to_owned()));
    // The store may have applied them, but certainly not the last one.
    account.on_lost();
    account.on_event(ShareEvent::Drawn(changes(&[-7])));
    let (pending, unknown_ms, _) = joined(account);
    assert_eq!(pending, [3, 20_000, -7]);
    assert!(unknown_ms >= 1_000, "{unknown_ms}");
    answer(account);
    account.on_lost();
    assert_eq!(joined(account).0, [0; 0]);
}

#[test]
fn malformed_answers_are_rejected() {
    let reply = RatesReply::parse("3 250 7 1,90000 5,95000 2 1.5 9 40").unwrap();
    let advance = Advance { number: 7, amounts: vec![1, 90_000], members: 2, charged: vec![5, 95_000] };
    assert_eq!((reply.advances, reply.division, reply.advance), (3, 9, advance));
    assert_eq!(RatesReply::parse("0 0 0 - - 1 1.5 0 0").unwrap().advance.amounts, Vec::<u64>::new());
    for text in [
        "",
        "3",
        "3 250 7 1,-9 2,9 2 1.5 9 40",
        "3 250 7 1,9 2,-9 2 1.5 9 40",
        "3 250 7 1,9 2,9 2 1.5 9",
        "3 250 7 1,9 2,9 2 1.5 -9 40",
        "x 250 7 1 1 2 1.5 9 40",
        "3 250 7 1,,9 2,9 2 1.5 9 40",
    ] {
        assert!(RatesReply::parse(text).is_err(), "{text}");
    }
}
