//! Who leads an adaptive limit, and what is divided, in virtual time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_share::{
    Broker, CallEvent, CallStep, Ended, FIRST_TOKENS, LeaseUpdate, LimitEvents, LimitRole, MemberId,
    Predecessor, Report, ToBroker, ToMember,
};

/// A broker, and what its members were told last.
struct Share {
    now: Instant,
    broker: Broker,
    told: BTreeMap<MemberId, LeaseUpdate>,
    /// The events that were forwarded, with its receiver and its sender.
    limit_events: Vec<(MemberId, u64, LimitEvents)>,
}

impl Share {
    fn new(predecessor: Predecessor) -> Self {
        let now = Instant::now();
        let broker = Broker::new(now, predecessor);
        Self { now, broker, told: BTreeMap::new(), limit_events: Vec::new() }
    }

    fn on_messages(&mut self, messages: Vec<(MemberId, ToMember)>) {
        for (to, message) in messages {
            match message {
                ToMember::Lease { update, .. } => drop(self.told.insert(to, update)),
                ToMember::LimitEvents { member, limit_events, .. } => {
                    self.limit_events.push((to, member, limit_events))
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, from: u64, message: &ToBroker) {
        let messages = self.broker.on_message(self.now, MemberId(from), message);
        self.on_messages(messages);
    }

    /// Reports what the adaptive limit of a member has found.
    fn report(&mut self, from: u64, adaptive: Option<usize>, role: LimitRole) {
        let report = Report {
            cap: 64,
            weight: 1.0,
            want: 0,
            returned: 0,
            claim: 0,
            known_survivors: 0,
            known_total: 0,
            adaptive,
            role: (!role.is_follower()).then_some(role),
        };
        self.send(from, &ToBroker::Report { resource: "llm".into(), report, heartbeat: None });
    }

    fn join(&mut self, members: u64) {
        (1..=members).for_each(|member| self.report(member, Some(10 + member as usize), LimitRole::Follower));
    }

    /// Lets time pass in which only some members send heartbeats.
    fn pass(&mut self, time: Duration, heard: &[u64]) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(500);
            heard.iter().for_each(|member| self.send(*member, &ToBroker::Heartbeat { number: 1 }));
        }
    }

    fn tell(&mut self, from: u64) {
        let events = vec![CallEvent { call: 1, age_us: 0, what: CallStep::Ended(Ended::Cancelled) }];
        let limit_events = LimitEvents { events, ..LimitEvents::default() };
        self.send(from, &ToBroker::LimitEvents { resource: "llm".into(), limit_events });
    }

    fn role(&self, member: u64) -> LimitRole {
        self.told[&MemberId(member)].appointment.unwrap().role
    }

    fn roles<const N: usize>(&self) -> [LimitRole; N] {
        std::array::from_fn(|nth| self.role(nth as u64 + 1))
    }

    fn cap(&self) -> usize {
        self.told.values().next_back().unwrap().cap
    }
}

const SECONDS: Duration = Duration::from_secs(4);

#[test]
fn leader_bounds_the_cap_and_observers_get_the_events() {
    let mut share = Share::new(Predecessor::None);
    share.join(4);
    assert_eq!(
        share.roles(),
        [LimitRole::Leader, LimitRole::Deputy, LimitRole::Follower, LimitRole::Follower]
    );
    assert_eq!(share.cap(), 11);
    share.report(2, Some(40), LimitRole::Follower);
    assert_eq!(share.cap(), 11, "only the leader decides");
    share.report(1, Some(40), LimitRole::Follower);
    assert_eq!(share.cap(), 40);
    share.report(1, Some(400), LimitRole::Follower);
    assert_eq!(share.cap(), 64, "the configured cap holds");
    share.tell(3);
    let receivers: Vec<_> = share.limit_events.drain(..).map(|(to, from, _)| (to.0, from)).collect();
    assert_eq!(receivers, [(1, 3), (2, 3)]);
    share.tell(1);
    assert_eq!(share.limit_events.len(), 1, "the deputy gets those of the leader");
}

#[test]
fn calls_of_a_member_that_leaves_or_gets_a_fixed_limit_are_forgotten() {
    let mut share = Share::new(Predecessor::None);
    share.join(4);
    let messages = share.broker.on_disconnect(share.now, MemberId(4));
    share.on_messages(messages);
    share.report(3, None, LimitRole::Follower);
    for (nth, from) in [(0, 4), (1, 4), (3, 3), (4, 3)] {
        let (_, member, limit_events) = &share.limit_events[nth];
        assert_eq!((*member, limit_events.restarts, limit_events.events.len()), (from, true, 0), "{nth}");
    }
}

#[test]
fn stopped_leader_is_replaced_and_stays_so() {
    let mut share = Share::new(Predecessor::None);
    share.join(3);
    share.pass(SECONDS, &[2, 3]);
    assert_eq!(share.roles(), [LimitRole::Follower, LimitRole::Leader, LimitRole::Deputy]);
    assert_eq!(share.cap(), 11, "the limit of the former leader is kept");
    share.pass(SECONDS, &[1, 2, 3]);
    assert_eq!(share.roles(), [LimitRole::Follower, LimitRole::Leader, LimitRole::Deputy]);
}

/// The calls of the stopped member have got their first tokens, and the other one reports nothing
/// while it waits.
#[test]
fn first_tokens_of_a_stopped_member_are_granted_to_one_that_waits() {
    let mut share = Share::new(Predecessor::None);
    for member in [1, 2] {
        let report = Report {
            cap: 1,
            weight: 1.0,
            want: 1,
            returned: 0,
            claim: 0,
            known_survivors: 0,
            known_total: 0,
            adaptive: None,
            role: None,
        };
        let resource = format!("{FIRST_TOKENS}llm").into();
        share.send(member, &ToBroker::Report { resource, report, heartbeat: None });
    }
    assert_eq!(share.told[&MemberId(2)].granted, 0);
    share.pass(SECONDS, &[2]);
    assert_eq!(share.told[&MemberId(2)].granted, 1);
}

#[test]
fn limit_stays_when_all_were_stopped() {
    let mut share = Share::new(Predecessor::None);
    share.join(3);
    share.now += SECONDS;
    let messages = share.broker.on_tick(share.now);
    share.on_messages(messages);
    assert_eq!((share.cap(), share.role(1)), (11, LimitRole::Leader));
    share.pass(SECONDS, &[3, 2, 1]);
    assert_eq!(share.cap(), 11);
    let leaders = share.roles::<3>().into_iter().filter(|role| *role == LimitRole::Leader);
    assert_eq!(leaders.count(), 1);
}

#[test]
fn who_observed_the_calls_before_leads_at_a_new_broker() {
    let mut share = Share::new(Predecessor::Died);
    share.report(1, Some(20), LimitRole::Follower);
    assert_eq!((share.role(1), share.cap()), (LimitRole::Leader, 20));
    share.report(2, Some(24), LimitRole::Deputy);
    assert_eq!(share.roles(), [LimitRole::Deputy, LimitRole::Leader]);
    share.report(2, Some(24), LimitRole::Follower);
    assert_eq!(share.cap(), 24);
    share.report(3, Some(26), LimitRole::Leader);
    assert_eq!(share.roles(), [LimitRole::Follower, LimitRole::Deputy, LimitRole::Leader]);
    share.pass(SECONDS, &[1, 2, 3]);
    share.report(4, Some(30), LimitRole::Leader);
    assert_eq!(share.role(4), LimitRole::Follower, "it was away for long");
}
