//! The broker forwards where calls of a pool are sent.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Instant;

use tidegate_share::{
    Broker, MAX_PLACEMENTS, MAX_PREFIXES, MemberId, PlacementEvent, PlacementStep, Placements, Predecessor,
    Report, ToBroker, ToMember,
};

struct Pool {
    now: Instant,
    broker: Broker,
}

impl Pool {
    fn new() -> Self {
        let now = Instant::now();
        Self { now, broker: Broker::new(now, Predecessor::None) }
    }

    /// Sends a message of a member. Returns who was told of whom, and whether earlier calls are
    /// forgotten.
    fn send(&mut self, from: u64, placements: Placements) -> Vec<(u64, Option<u64>, bool)> {
        let message = ToBroker::Placements { resource: "pool".into(), placements };
        told(self.broker.on_message(self.now, MemberId(from), &message))
    }
}

fn told(messages: Vec<(MemberId, ToMember)>) -> Vec<(u64, Option<u64>, bool)> {
    let told = |(to, message): (MemberId, ToMember)| match message {
        ToMember::Placements { member, placements, .. } => Some((to.0, member, placements.restarts)),
        _ => None,
    };
    messages.into_iter().filter_map(told).collect()
}

fn sent(prefixes: usize) -> PlacementEvent {
    let prefixes: Arc<[u64]> = (0..prefixes as u64).collect();
    PlacementEvent {
        call: 1,
        what: PlacementStep::Sent { replica: 5, input: 100, output: 10, session: None, prefixes },
    }
}

#[test]
fn all_other_members_are_told_and_forget_who_leaves() {
    let mut pool = Pool::new();
    for member in 1..=3 {
        let earlier = (1..member).map(|to| (to, Some(member), true));
        let new = (1..member).map(|of| (member, Some(of), true));
        assert_eq!(pool.send(member, Placements::restart()), earlier.chain(new).collect::<Vec<_>>());
    }
    let call = Placements { restarts: false, events: vec![sent(3)] };
    assert_eq!(pool.send(2, call.clone()), [(1, Some(2), false), (3, Some(2), false)]);
    let left = told(pool.broker.on_disconnect(pool.now, MemberId(2)));
    assert_eq!(left, [(1, Some(2), true), (3, Some(2), true)]);
    assert_eq!(told(pool.broker.on_disconnect(pool.now, MemberId(2))), []);
    let leave = ToBroker::Leave { resource: "pool".into() };
    assert_eq!(told(pool.broker.on_message(pool.now, MemberId(3), &leave)), [(1, Some(3), true)]);
    assert_eq!(pool.send(1, call), [], "nobody is left");
}

#[test]
fn pool_with_the_name_of_a_limit_keeps_no_slots() {
    let mut pool = Pool::new();
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
    for member in [1, 2] {
        pool.broker.on_message(
            pool.now,
            MemberId(member),
            &ToBroker::Report { resource: "llm".into(), report, heartbeat: None },
        );
    }
    let placements = Placements::restart();
    pool.broker.on_message(
        pool.now,
        MemberId(3),
        &ToBroker::Placements { resource: "llm".into(), placements },
    );
    let messages = pool.broker.on_disconnect(pool.now, MemberId(1));
    let granted = messages.iter().any(|(to, message)| {
        *to == MemberId(2) && matches!(message, ToMember::Lease { update, .. } if update.granted == 1)
    });
    assert!(granted, "{messages:?}");
}

#[test]
fn messages_that_are_too_large_are_dropped() {
    let mut pool = Pool::new();
    pool.send(1, Placements::restart());
    pool.send(2, Placements::restart());
    let message = |events| Placements { restarts: false, events };
    assert_eq!(pool.send(2, message(vec![sent(MAX_PREFIXES); MAX_PLACEMENTS])).len(), 1);
    assert_eq!(pool.send(2, message(vec![sent(MAX_PREFIXES + 1)])), []);
    assert_eq!(pool.send(2, message(vec![sent(0); MAX_PLACEMENTS + 1])), []);
}

#[test]
fn largest_message_fits_a_line_of_the_local_broker() {
    let event = PlacementEvent {
        call: u64::MAX,
        what: PlacementStep::Sent {
            replica: u64::MAX,
            input: u64::MAX,
            output: u64::MAX,
            session: Some(u64::MAX),
            prefixes: [u64::MAX; MAX_PREFIXES].into(),
        },
    };
    let placements = Placements { restarts: true, events: vec![event; MAX_PLACEMENTS] };
    let resource = "x".repeat(1_024).into();
    let message = ToMember::Placements { resource, member: Some(u64::MAX), others: 1, placements };
    let line = serde_json::to_string(&message).unwrap();
    assert!(line.len() < 60_000, "{}", line.len());
    assert_eq!(serde_json::from_str::<ToMember>(&line).unwrap(), message);
}
