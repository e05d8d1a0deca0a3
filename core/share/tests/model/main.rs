//! Several processes share a cap, in virtual time.
#![allow(clippy::disallowed_methods, clippy::expect_used)]

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use proptest::prelude::*;
use tidegate_share::{
    Broker, Lease, LeaseTimes, LeaseUpdate, LimitRole, MemberId, Predecessor, Report, SlotUse, ToBroker,
    ToMember,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The share of the usable slot time that was not used.
fn gap(cluster: &Cluster) -> f64 {
    cluster.gap / cluster.slot_seconds
}

#[test]
fn saturated_processes_use_the_whole_cap_and_never_exceed_it() {
    for (seed, processes) in [(1, 1), (2, 4), (3, 16), (4, 64)] {
        let mut cluster = Cluster::new(seed, 64, &vec![1.0; processes], secs(1));
        (0..processes).for_each(|process| cluster.saturate(process, 70));
        cluster.run(secs(60));
        assert_eq!(cluster.peak_upstream, 64, "{processes} processes");
        assert!(gap(&cluster) <= 0.005, "{processes} processes: {}", gap(&cluster));
    }
}

#[test]
fn slots_move_to_where_calls_arrive() {
    for (seed, processes) in [(5, 4), (6, 16), (7, 64)] {
        let mut cluster = Cluster::new(seed, 64, &vec![1.0; processes], secs(1));
        // Overload at some of the processes only, and little at the others.
        for process in 0..processes {
            let rate = if process % 4 == 0 { 400.0 / processes as f64 } else { 20.0 / processes as f64 };
            cluster.offer(process, rate);
        }
        cluster.run(secs(60));
        assert!(cluster.peak_upstream <= 64);
        assert!(gap(&cluster) <= 0.01, "{processes} processes: {}", gap(&cluster));
    }
}

#[test]
fn shares_follow_weights() {
    for (seed, cap, weights) in [
        (8, 10, vec![3.0, 1.0]),
        (9, 64, vec![1.0, 2.0, 4.0, 1.0]),
        (10, 5, vec![1.0; 16]),
        (11, 3, vec![1.0; 2]),
        (18, 13, vec![1.0, 1.0, 2.0, 4.0]),
    ] {
        let mut cluster = Cluster::new(seed, cap, &weights, ms(500));
        (0..weights.len()).for_each(|process| cluster.saturate(process, 100));
        cluster.run(secs(600));
        let served: u64 = cluster.processes.iter().map(|process| process.served).sum();
        let sum: f64 = weights.iter().sum();
        for (process, weight) in cluster.processes.iter().zip(&weights) {
            let share = process.served as f64 / served as f64;
            let error = share / (weight / sum) - 1.0;
            assert!(error.abs() <= 0.05, "cap {cap}, weight {weight} of {sum}: share {share}");
        }
    }
}

#[test]
fn newcomer_is_served_within_one_call() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, 8, &[1.0; 4], secs(2));
        (0..4).for_each(|process| cluster.saturate(process, 20));
        cluster.run(secs(20));
        cluster.add(1.0);
        cluster.saturate(4, 1);
        cluster.run(secs(20));
        let newcomer = &cluster.processes[4];
        assert!(newcomer.served > 0);
        // A call takes at most 3 s.
        assert!(newcomer.longest_wait <= ms(3_100), "{:?}", newcomer.longest_wait);
    }
}

#[test]
fn idle_process_holds_no_slots() {
    let mut cluster = Cluster::new(12, 16, &[1.0; 2], ms(500));
    cluster.offer(0, 20.0);
    cluster.run(secs(10));
    cluster.saturate(1, 100);
    cluster.run(secs(10));
    assert!(gap(&cluster) <= 0.01, "{}", gap(&cluster));
}

#[test]
fn killed_processes_return_their_slots_and_the_next_leader_keeps_the_cap() {
    for seed in 0..30 {
        let processes = 8;
        let mut cluster = Cluster::new(seed, 32, &vec![1.0; processes], secs(1));
        (0..processes).for_each(|process| cluster.saturate(process, 40));
        cluster.run(secs(5));
        for _ in 0..5 {
            let alive: Vec<_> = (0..processes).filter(|&at| cluster.processes[at].is_alive).collect();
            let victim = alive[cluster.rng.usize(..alive.len())];
            cluster.kill(victim);
            cluster.run(secs(3));
        }
        assert!(cluster.peak_upstream <= 32, "seed {seed}: {}", cluster.peak_upstream);
        (cluster.gap, cluster.slot_seconds) = (0.0, 0.0);
        cluster.run(secs(20));
        assert!(gap(&cluster) <= 0.005, "seed {seed}: {}", gap(&cluster));
    }
}

/// The second broker must wait for the members that the first one still expected.
#[test]
fn broker_that_is_killed_before_all_have_rejoined_lets_nobody_exceed_the_cap() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed, 10, &[1.0; 4], secs(1));
        (0..4).for_each(|process| cluster.saturate(process, 20));
        cluster.run(secs(5));
        cluster.kill(cluster.leader);
        cluster.run(ms(3));
        cluster.kill(cluster.leader);
        cluster.run(secs(5));
        assert!(cluster.peak_upstream <= 10, "seed {seed}: {}", cluster.peak_upstream);
    }
}

#[test]
fn stopped_process_keeps_its_slots_and_continues_with_them() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed, 16, &[1.0; 4], secs(1));
        (0..4).for_each(|process| cluster.saturate(process, 20));
        cluster.run(secs(5));
        // Not the leader.
        cluster.stop(2);
        cluster.run(secs(20));
        cluster.resume(2);
        cluster.run(secs(10));
        assert!(cluster.peak_upstream <= 16, "seed {seed}: {}", cluster.peak_upstream);
        let before = cluster.processes[2].served;
        cluster.run(secs(20));
        assert!(cluster.processes[2].served > before + 40, "seed {seed}");
    }
}

#[test]
fn stopped_process_is_granted_no_slots_for_its_waiting_calls() {
    let mut cluster = Cluster::new(19, 4, &[1.0; 2], secs(10));
    cluster.saturate(0, 8);
    cluster.run(secs(1));
    cluster.saturate(1, 8);
    cluster.run(ms(100));
    cluster.stop(1);
    cluster.run(secs(60));
    assert_eq!((cluster.upstream, cluster.processes[0].in_flight), (4, 4));
    cluster.resume(1);
    cluster.run(secs(30));
    assert_eq!((cluster.peak_upstream, cluster.processes[1].in_flight), (4, 2));
}

#[test]
fn slots_of_stopped_broker_are_withheld_until_its_process_ends_or_continues() {
    let start = std::time::Instant::now();
    let report = |want, claim, known_total| {
        let (cap, weight, returned, known_survivors) = (4, 1.0, 0, 1);
        let (adaptive, role) = (None, None);
        let report =
            Report { cap, weight, want, returned, claim, known_survivors, known_total, adaptive, role };
        ToBroker::Report { resource: "shared".into(), report, heartbeat: None }
    };
    let granted = |messages: &[(MemberId, ToMember)]| -> usize {
        let granted = messages.iter().map(|(_, message)| match message {
            ToMember::Lease { update, .. } => update.granted,
            _ => 0,
        });
        granted.sum()
    };
    for (continues, at_once, later) in [(false, 0, 3), (true, 0, 2)] {
        let mut broker = Broker::new(start, Predecessor::Stopped);
        // The stopped process holds the three other slots.
        let mut messages = broker.on_message(start, MemberId(1), &report(3, 1, 4));
        let now = start + tidegate_share::REJOIN_TIME;
        messages.extend(broker.on_tick(now));
        if continues {
            messages.extend(broker.on_message(now, MemberId(2), &report(0, 1, 4)));
        }
        assert_eq!(granted(&messages), at_once);
        assert_eq!(granted(&broker.release_withheld(now)), later);
    }
}

#[test]
fn saturated_processes_send_few_reports() {
    let mut cluster = Cluster::new(13, 64, &[1.0; 16], secs(1));
    (0..16).for_each(|process| cluster.saturate(process, 20));
    cluster.run(secs(60));
    for process in &cluster.processes {
        assert!(process.reports <= 3 * 60, "{} reports in 60 s", process.reports);
    }
}

/// All members are entitled to one slot and a part of another. Who held all of them does not keep
/// the rest.
#[test]
fn process_that_held_all_slots_returns_them_within_a_few_calls() {
    let mut cluster = Cluster::new(17, 64, &[1.0; 33], secs(1));
    cluster.saturate(0, 70);
    cluster.run(secs(10));
    assert_eq!(cluster.processes[0].in_flight, 64);
    (1..33).for_each(|process| cluster.saturate(process, 4));
    cluster.run(secs(4));
    let held = cluster.processes[0].in_flight;
    assert!(held <= 4, "{held} slots");
}

/// Calls of light processes need a message each for the slot and for its return. The others must
/// not add to that by passing contended slots on with each call.
#[test]
fn processes_with_uneven_load_send_few_reports() {
    for (seed, call, light) in [(14, ms(1_000), 0.5), (15, ms(500), 1.0), (16, ms(50), 1.0)] {
        let mut cluster = Cluster::new(seed, 64, &[1.0; 16], call);
        (0..4).for_each(|process| cluster.saturate(process, 36));
        (4..16).for_each(|process| cluster.offer(process, light));
        cluster.run(secs(60));
        assert!(gap(&cluster) <= 0.01, "calls of {call:?}: {}", gap(&cluster));
        let heavy: u64 = cluster.processes[..4].iter().map(|process| process.reports).sum();
        let rate = heavy as f64 / 4.0 / 60.0;
        let needed = 12.0 * light / 4.0;
        assert!(rate <= needed + 2.0, "calls of {call:?}: {rate} reports per second");
    }
}

#[test]
fn first_call_waits_for_the_broker_however_late_it_is_made() {
    let start = std::time::Instant::now();
    let mut lease = Lease::new(8, false, LeaseTimes::LOCAL);
    lease.tick(start + secs(10));
    assert_eq!(lease.in_force(), 0);
    let usage = SlotUse { in_flight: 0, waiting: 1, weight: 1.0 };
    assert_eq!(lease.report(start + secs(10), &usage), None);
    lease.tick(start + ms(10_900));
    assert_eq!(lease.in_force(), 0);
    // No broker was found.
    lease.tick(start + ms(11_000));
    assert_eq!(lease.in_force(), 1);
}

/// The others may still share what a member knows of, so it must not take the whole cap.
#[test]
fn member_that_knows_others_does_not_use_the_whole_cap_if_there_can_be_no_broker() {
    let start = std::time::Instant::now();
    let usage = SlotUse { in_flight: 0, waiting: 9, weight: 1.0 };
    for (strict, known, at_once, at_the_end) in
        [(false, true, 3, 2), (true, true, 3, 0), (false, false, 8, 8), (true, false, 0, 0)]
    {
        let mut lease = Lease::new(8, strict, LeaseTimes::LOCAL);
        if known {
            lease.join(start, &usage);
            lease.on_update(start, LeaseUpdate { granted: 3, cap: 8, members: 4, ..LeaseUpdate::default() });
            lease.on_lost(start);
        }
        lease.on_alone(start);
        assert_eq!(lease.in_force(), at_once, "strict {strict}, known {known}");
        lease.tick(start + secs(20));
        assert_eq!(lease.in_force(), at_the_end, "strict {strict}, known {known}");
    }
}

#[test]
fn member_that_was_stopped_returns_the_slots_of_its_calls_when_it_joins_the_next_broker() {
    let start = std::time::Instant::now();
    let mut lease = Lease::new(4, false, LeaseTimes::LOCAL);
    let usage = |in_flight| SlotUse { in_flight, waiting: 5, weight: 1.0 };
    lease.join(start, &usage(0));
    lease.on_update(start, LeaseUpdate { granted: 2, cap: 4, members: 2, ..LeaseUpdate::default() });
    // Another broker has granted both slots to others meanwhile.
    let now = start + secs(4);
    lease.on_lost(now);
    assert_eq!(lease.join(now, &usage(2)).claim, 2);
    lease.on_alive(now, now);
    for in_flight in [1, 0] {
        lease.on_release(now, in_flight);
        assert_eq!(lease.in_force(), in_flight);
        assert_eq!(lease.report(now, &usage(in_flight)).map(|report| report.returned), Some(1));
    }
}

#[test]
fn broker_that_accepts_members_but_does_not_answer_prolongs_no_lease() {
    for times in [LeaseTimes::LOCAL, LeaseTimes::REMOTE] {
        let start = std::time::Instant::now();
        let mut lease = Lease::new(8, false, times);
        let usage = SlotUse { in_flight: 1, waiting: 9, weight: 1.0 };
        lease.join(start, &usage);
        lease.on_update(start, LeaseUpdate { granted: 6, cap: 8, members: 4, ..LeaseUpdate::default() });
        let mut now = start;
        lease.on_lost(now);
        assert_eq!(lease.in_force(), 7);
        while now < start + ms(9_000) {
            now += ms(500);
            lease.join(now, &usage);
            lease.on_lost(now + ms(100));
        }
        lease.tick(now + ms(2_000));
        assert_eq!(lease.in_force(), 2, "{times:?}");
    }
}

#[test]
fn member_uses_its_part_while_store_answers_each_join_with_an_error() {
    for times in [LeaseTimes::LOCAL, LeaseTimes::REMOTE] {
        let start = std::time::Instant::now();
        let mut lease = Lease::new(8, false, times);
        let usage = SlotUse { in_flight: 0, waiting: 1, weight: 1.0 };
        assert_eq!(lease.report(start, &usage), None);
        for attempt in 0..10 {
            let now = start + ms(500 * attempt);
            lease.join(now, &usage);
            assert_eq!(lease.in_force(), usize::from(attempt > 1), "attempt {attempt}, {times:?}");
            lease.on_lost(now + ms(1));
        }
        assert_eq!(lease.in_force(), 1, "{times:?}");
    }
}

/// Any message, most of them with numbers that no member sends.
fn any_message() -> impl Strategy<Value = ToBroker> {
    let number = || prop_oneof![0..10usize, Just(usize::MAX), Just(usize::MAX / 2), any::<usize>()];
    let weight = prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), any::<f64>()];
    let role = prop_oneof![Just(None), Just(Some(LimitRole::Deputy)), Just(Some(LimitRole::Leader))];
    let adaptive = (prop::option::of(number()), role);
    let known = (number(), number());
    let report = (number(), weight, number(), number(), number(), known, adaptive).prop_map(
        |(cap, weight, want, returned, claim, (known_survivors, known_total), (adaptive, role))| Report {
            cap,
            weight,
            want,
            returned,
            claim,
            known_survivors,
            known_total,
            adaptive,
            role,
        },
    );
    let resource = prop_oneof![Just(Arc::<str>::from("shared")), Just("other".into()), Just("".into())];
    prop_oneof![
        6 => (resource.clone(), report, prop::option::of(any::<u64>()))
            .prop_map(|(resource, report, heartbeat)| ToBroker::Report { resource, report, heartbeat }),
        1 => resource.clone().prop_map(|resource| ToBroker::Leave { resource }),
        1 => (resource, any::<u64>()).prop_map(|(resource, for_ms)| ToBroker::CoolDown { resource, for_ms }),
        1 => any::<u64>().prop_map(|number| ToBroker::Heartbeat { number }),
    ]
}

proptest! {
    #[test]
    fn hostile_members_let_nobody_exceed_the_cap(
        messages in prop::collection::vec((0..2u64, any_message(), 0..3usize, 0..6usize), 1..60),
    ) {
        const CAP: usize = 8;
        let start = std::time::Instant::now();
        let mut broker = Broker::new(start, Predecessor::None);
        let honest = [MemberId(10), MemberId(11), MemberId(12)];
        let mut held = [0usize; 3];
        for (turn, (hostile, message, who, want)) in messages.into_iter().enumerate() {
            let now = start + ms(10 * turn as u64);
            let mut answers = broker.on_message(now, MemberId(hostile), &message);
            let returned = held[who] / 2;
            held[who] -= returned;
            let report = Report { cap: CAP, weight: 1.0, want, returned, claim: 0, known_survivors: 0, known_total: 0, adaptive: None, role: None };
            let report = ToBroker::Report { resource: "shared".into(), report, heartbeat: None };
            answers.extend(broker.on_message(now, honest[who], &report));
            for (to, answer) in answers {
                if let (Some(at), ToMember::Lease { resource, update }) =
                    (honest.iter().position(|id| *id == to), answer)
                {
                    prop_assert_eq!(&*resource, "shared");
                    held[at] += update.granted;
                }
            }
            prop_assert!(held.iter().sum::<usize>() <= CAP, "{held:?}");
        }
    }
}
