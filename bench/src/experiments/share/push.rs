//! What pushes of the local broker are good for, in virtual time: how much of a cap is used if a
//! process hears of free slots at once, and if it hears of them only when it sends something
//! itself, as it does every half second.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_share::{
    Broker, LOCAL_HEARTBEAT, Lease, LeaseTimes, MemberId, Predecessor, SlotUse, ToBroker, ToMember,
};

use super::gap::{CAP, Demand, Load};
use crate::experiments::hot_path::std_now;

const STEP: Duration = Duration::from_millis(1);
/// Time in which the leases settle, and time that is measured.
const SETTLE: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(60);

/// A process with a lease.
struct Process {
    lease: Lease,
    /// When the calls in flight end.
    ends: BinaryHeap<Reverse<Instant>>,
    waiting: usize,
    /// The number of further calls per second.
    rate: f64,
    /// The messages of the broker that the process has not heard.
    mailbox: Vec<ToMember>,
    heartbeat_at: Instant,
}

impl Process {
    fn usage(&self) -> SlotUse {
        SlotUse { in_flight: self.ends.len(), waiting: self.waiting, weight: 1.0 }
    }

    fn hear(&mut self, now: Instant) {
        self.lease.on_alive(now, now);
        for message in self.mailbox.drain(..) {
            if let ToMember::Lease { update, .. } = message {
                self.lease.on_update(now, update);
            }
        }
    }

    /// Ends and begins calls. `service` is their mean duration in seconds.
    fn advance(&mut self, now: Instant, service: f64, rng: &mut Rng) {
        self.lease.tick(now);
        while self.ends.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.ends.pop();
            self.lease.on_release(now, self.ends.len());
            // A caller makes one call after the other.
            self.waiting += usize::from(self.rate == 0.0);
        }
        self.waiting += usize::from(rng.f64() < self.rate * STEP.as_secs_f64());
        while self.waiting > 0 && self.ends.len() < self.lease.in_force() {
            self.waiting -= 1;
            self.ends.push(Reverse(now + Duration::from_secs_f64(service * (0.5 + rng.f64()))));
        }
    }
}

/// Returns the mean part of the cap that is used. `pushes`: the broker's messages arrive at once.
pub(super) fn used(processes: usize, load: Load, service: f64, pushes: bool) -> f64 {
    let resource: Arc<str> = "resource".into();
    let (start, mut rng) = (std_now(), Rng::with_seed(1));
    let demand = Demand::new(processes, load, service);
    let mut broker = Broker::new(start, Predecessor::None);
    let mut members: BTreeMap<_, _> = (0..processes)
        .map(|nth| {
            let process = Process {
                lease: Lease::new(CAP, false, LeaseTimes::LOCAL),
                ends: BinaryHeap::new(),
                waiting: demand.callers(nth),
                rate: demand.rate(nth),
                mailbox: Vec::new(),
                heartbeat_at: start + LOCAL_HEARTBEAT * nth as u32 / processes as u32,
            };
            (MemberId(nth as u64), process)
        })
        .collect();
    let join = |process: &mut Process| process.lease.join(start, &process.usage());
    let mut sent: Vec<_> = members.iter_mut().map(|(id, process)| (*id, Some(join(process)))).collect();
    let (mut now, mut sum, mut slots) = (start, 0, 0);
    while now < start + SETTLE + MEASURED {
        for (id, report) in sent.drain(..) {
            let resource = resource.clone();
            let message = match report {
                Some(report) => ToBroker::Report { resource, report, heartbeat: None },
                None => ToBroker::Heartbeat { number: 0 },
            };
            for (to, message) in broker.on_message(now, id, &message) {
                members.get_mut(&to).into_iter().for_each(|process| process.mailbox.push(message.clone()));
            }
            members.get_mut(&id).into_iter().for_each(|process| process.hear(now));
        }
        now += STEP;
        for (id, process) in &mut members {
            if pushes {
                process.hear(now);
            }
            process.advance(now, service, &mut rng);
            let usage = process.usage();
            if process.heartbeat_at <= now {
                process.heartbeat_at += LOCAL_HEARTBEAT;
                let report = process.lease.heartbeat(now, &usage);
                sent.extend(report.map(|report| (*id, Some(report))));
                sent.push((*id, None));
            }
            sent.extend(process.lease.report(now, &usage).map(|report| (*id, Some(report))));
        }
        if now >= start + SETTLE {
            sum += members.values().map(|process| process.ends.len()).sum::<usize>();
            slots += CAP;
        }
    }
    sum as f64 / slots as f64
}
