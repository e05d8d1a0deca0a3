//! Several processes share an adaptive limit through a broker, in virtual time: what they serve
//! together, and what happens when the leader ends.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::adaptive::{Ended, LimitSettings};
use crate::testing::epoch;
use tidegate_config::AdaptiveConfig;
use tidegate_share::{
    Broker, LOCAL_HEARTBEAT, Lease, LeaseTimes, LimitRole, MemberId, Predecessor, Report, ToBroker, ToMember,
};

/// Time that a message takes.
const LATENCY: Duration = Duration::from_millis(1);
/// Time for which events of calls are collected.
const EVIDENCE_DELAY: Duration = Duration::from_millis(20);
/// Duration of a step of the engine.
const STEP: Duration = Duration::from_millis(40);
/// Number of calls that wait in each process.
const BACKLOG: usize = 6;
const RESOURCE: &str = "target:model";
const FIRST_TOKENS: &str = "first-tokens:target:model";

/// Processes that share the limit of one engine.
struct Cluster {
    start: Instant,
    now: Instant,
    broker: Broker,
    processes: BTreeMap<u64, Process>,
    stopped: Vec<(u64, Process)>,
    /// Messages on their way, with the process and the time of arrival.
    to_broker: VecDeque<(Instant, u64, ToBroker)>,
    to_process: VecDeque<(Instant, u64, ToMember)>,
    engine: Engine,
    rng: fastrand::Rng,
}

struct Process {
    scheduler: Scheduler<()>,
    /// When the events of calls are sent. `None` if there are none.
    tells_at: Option<Instant>,
    next_heartbeat: Instant,
    sent_heartbeats: Vec<Instant>,
    served: usize,
}

/// An engine that runs up to `places` calls at once. Each running call gets a token in each step.
#[derive(Default)]
struct Engine {
    places: usize,
    waiting: VecDeque<Call>,
    running: Vec<Call>,
}

struct Call {
    process: u64,
    grant: Box<Grant>,
    /// Output tokens that were not produced yet.
    left: u64,
    has_token: bool,
}

impl Cluster {
    /// Creates processes with one limit, in front of an engine that runs `places` calls at once.
    fn new(processes: u64, places: usize, objective: Option<Duration>) -> Self {
        let now = epoch();
        let mut cluster = Self {
            start: now,
            now,
            broker: Broker::new(now, Predecessor::None),
            processes: BTreeMap::new(),
            stopped: Vec::new(),
            to_broker: VecDeque::new(),
            to_process: VecDeque::new(),
            engine: Engine { places, ..Engine::default() },
            rng: fastrand::Rng::with_seed(7),
        };
        let adaptive = AdaptiveConfig::default();
        let limit = LimitSettings { max: 64, objective, latency: None, tpot: None, adaptive };
        let settings = SchedulerSettings { adaptive: Some(limit), ..settings(64) };
        for id in 0..processes {
            let mut scheduler = Scheduler::new(&settings, now);
            let lease = || Lease::new(64, false, LeaseTimes::LOCAL);
            scheduler.share(lease(), lease());
            let process = Process {
                scheduler,
                tells_at: None,
                next_heartbeat: now,
                sent_heartbeats: Vec::new(),
                served: 0,
            };
            cluster.processes.insert(id, process);
            cluster.fill(id);
            cluster.join(id);
        }
        cluster
    }

    /// Queues calls in a process, sends those that may be sent, and sends what is due to the
    /// broker.
    fn fill(&mut self, id: u64) {
        let Self { now, ref mut processes, ref mut engine, ref mut to_broker, ref mut rng, .. } = *self;
        let Some(process) = processes.get_mut(&id) else { return };
        loop {
            while process.scheduler.view(now).waiting < BACKLOG {
                let ticket = Ticket { streams: true, ..ticket("a", Lane::Interactive, now) };
                let _ = process.scheduler.enqueue(now, ticket, ());
            }
            let Some(((), mut grant)) = process.scheduler.next(now) else { break };
            grant.sent = true;
            let left = rng.u64(20..80);
            engine.waiting.push_back(Call { process: id, grant, left, has_token: false });
        }
        for kind in LeaseKind::ALL {
            let report = process.scheduler.share_report(now, kind);
            to_broker.extend(report.map(|report| (now + LATENCY, id, report_of(kind, report))));
        }
        if process.scheduler.take_limit_events_announcement() {
            process.tells_at = Some(now + EVIDENCE_DELAY);
        }
    }

    /// Lets a millisecond pass.
    fn tick(&mut self) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        if (now - self.start).as_millis().is_multiple_of(STEP.as_millis()) {
            self.step();
        }
        while let Some((id, message)) = arrived(&mut self.to_broker, now) {
            let messages = self.broker.on_message(now, MemberId(id), &message);
            self.to_process.extend(messages.into_iter().map(|(to, message)| (now + LATENCY, to.0, message)));
        }
        while let Some((id, message)) = arrived(&mut self.to_process, now) {
            self.deliver(id, message);
        }
        let ids: Vec<_> = self.processes.keys().copied().collect();
        for id in ids {
            self.fill(id);
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if process.tells_at.take_if(|at| *at <= now).is_some() {
                while let Some(limit_events) = process.scheduler.take_limit_events(now) {
                    let message = ToBroker::LimitEvents { resource: RESOURCE.into(), limit_events };
                    self.to_broker.push_back((now + LATENCY, id, message));
                }
            }
            if process.next_heartbeat <= now {
                process.next_heartbeat = now + LOCAL_HEARTBEAT;
                let number = process.sent_heartbeats.len() as u64;
                process.sent_heartbeats.push(now);
                let reports = LeaseKind::ALL.into_iter().filter_map(|kind| {
                    let heartbeat = |lease: &mut Lease, usage: &_| lease.heartbeat(now, usage);
                    Some(report_of(kind, process.scheduler.with_lease(now, kind, heartbeat)??))
                });
                let messages = reports.chain([ToBroker::Heartbeat { number }]);
                self.to_broker.extend(messages.map(|message| (now + LATENCY, id, message)));
            }
        }
    }

    fn deliver(&mut self, id: u64, message: ToMember) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&id) else { return };
        match message {
            ToMember::Lease { resource, update } => {
                let kind = LeaseKind::ALL[usize::from(&*resource == FIRST_TOKENS)];
                process.scheduler.with_lease(now, kind, |lease, _| lease.on_update(now, update));
            }
            ToMember::Alive { number } => {
                let sent_at = process.sent_heartbeats[number as usize];
                for kind in LeaseKind::ALL {
                    process.scheduler.with_lease(now, kind, |lease, _| lease.on_alive(now, sent_at));
                }
            }
            ToMember::LimitEvents { member, limit_events, .. } => {
                process.scheduler.on_limit_events(now, member, &limit_events);
            }
            ToMember::Advance { .. } | ToMember::CoolDown { .. } | ToMember::Placements { .. } => {}
        }
    }

    /// Makes one step of the engine.
    fn step(&mut self) {
        let now = self.now;
        let Engine { places, waiting, running } = &mut self.engine;
        while running.len() < *places
            && let Some(call) = waiting.pop_front()
        {
            running.push(call);
        }
        for mut call in std::mem::take(running) {
            let Some(process) = self.processes.get_mut(&call.process) else { continue };
            if !std::mem::replace(&mut call.has_token, true) {
                process.scheduler.on_first_token(now, &mut call.grant);
            }
            call.left -= 1;
            if call.left > 0 {
                running.push(call);
            } else {
                call.grant.outcome = Ended::Completed { output: 50 };
                process.served += 1;
                process.scheduler.release(now, call.grant);
            }
        }
    }

    /// Ends a process, and the calls that it has at the engine.
    fn kill(&mut self, id: u64) {
        self.processes.remove(&id);
        self.engine.waiting.retain(|call| call.process != id);
        let messages = self.broker.on_disconnect(self.now, MemberId(id));
        self.to_process.extend(messages.into_iter().map(|(to, message)| (self.now + LATENCY, to.0, message)));
    }

    /// Stops a process. Its calls stay at the engine.
    fn stop(&mut self, id: u64) {
        self.stopped.extend(self.processes.remove_entry(&id));
    }

    /// Lets a process join the broker again.
    fn join(&mut self, id: u64) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(&id) else { return };
        for kind in LeaseKind::ALL {
            process.scheduler.with_lease(now, kind, |lease, _| lease.on_lost(now));
            let join = |lease: &mut Lease, usage: &_| lease.join(now, usage);
            let report = process.scheduler.with_lease(now, kind, join).unwrap();
            self.to_broker.push_back((now + LATENCY, id, report_of(kind, report)));
        }
    }

    /// Checks that after some seconds, `leader` leads, and nearly all `slots` are used.
    fn check_led_by(&mut self, leader: u64, slots: usize) {
        self.run(secs(5));
        assert_eq!(self.leaders(), [leader]);
        let (ran, waited) = self.run(secs(20));
        assert!(ran >= 0.95 * slots as f64, "{ran} run");
        assert!(waited <= 5.0, "{waited} wait");
    }

    /// Lets time pass. Returns the mean numbers of calls that run and that wait in the engine.
    fn run(&mut self, time: Duration) -> (f64, f64) {
        let (end, mut ran, mut waited, mut ticks) = (self.now + time, 0, 0, 0);
        while self.now < end {
            self.tick();
            ran += self.engine.running.len();
            waited += self.engine.waiting.len();
            ticks += 1;
        }
        (ran as f64 / ticks as f64, waited as f64 / ticks as f64)
    }

    /// Returns the processes that lead the limit, as they know it.
    fn leaders(&mut self) -> Vec<u64> {
        let now = self.now;
        let role = |process: &mut Process| {
            process.scheduler.with_lease(now, LeaseKind::Slots, |lease, _| lease.appointment())
        };
        let leads = |(id, process): (&u64, &mut Process)| {
            role(process)
                .flatten()
                .is_some_and(|appointed| appointed.role == LimitRole::Leader)
                .then_some(*id)
        };
        self.processes.iter_mut().filter_map(leads).collect()
    }
}

/// Removes the next message if it has arrived.
fn arrived<M>(messages: &mut VecDeque<(Instant, u64, M)>, now: Instant) -> Option<(u64, M)> {
    let has_arrived = messages.front().is_some_and(|(at, ..)| *at <= now);
    let (_, id, message) = if has_arrived { messages.pop_front()? } else { return None };
    Some((id, message))
}

fn report_of(kind: LeaseKind, report: Report) -> ToBroker {
    let resource = if kind == LeaseKind::Slots { RESOURCE } else { FIRST_TOKENS };
    ToBroker::Report { resource: resource.into(), report, heartbeat: None }
}

const OBJECTIVES: [Option<Duration>; 2] = [None, Some(Duration::from_secs(1))];

#[test]
fn processes_serve_as_much_together_as_one_alone() {
    for (objective, places) in OBJECTIVES.into_iter().zip([8, 24]) {
        let mut alone = Cluster::new(1, places, objective);
        alone.run(secs(20));
        let (best, queue) = alone.run(secs(30));
        for processes in [2, 8] {
            let mut cluster = Cluster::new(processes, places, objective);
            cluster.run(secs(20));
            let (ran, waited) = cluster.run(secs(30));
            let what = format!("{processes} processes, {objective:?}: {ran:.2} run, {waited:.2} wait");
            assert!(ran >= 0.98 * best, "{what}, and {best:.2} of one process run");
            // By Little's law: a call runs for 50 steps.
            let seconds = waited / ran * 50.0 * STEP.as_secs_f64();
            assert!(seconds <= 0.5, "{what} for {seconds:.2} s, and {queue:.2} of one process");
            assert_eq!(cluster.leaders(), [0]);
        }
    }
}

#[test]
fn each_of_more_processes_than_slots_is_served() {
    for objective in OBJECTIVES {
        let mut cluster = Cluster::new(12, 8, objective);
        let (ran, _) = cluster.run(secs(60));
        assert!(ran >= 7.0, "{ran} run");
        let served: Vec<_> = cluster.processes.values().map(|process| process.served).collect();
        let mean = served.iter().sum::<usize>() / served.len();
        assert!(served.iter().all(|served| (mean / 2..=2 * mean).contains(served)), "{served:?}");
    }
}

#[test]
fn the_deputy_replaces_a_killed_leader() {
    for objective in OBJECTIVES {
        let mut cluster = Cluster::new(5, 16, objective);
        cluster.run(secs(20));
        for killed in 0..3 {
            cluster.kill(killed);
            cluster.check_led_by(killed + 1, 16);
        }
    }
}

#[test]
fn the_deputy_replaces_a_stopped_leader() {
    let mut cluster = Cluster::new(5, 16, None);
    cluster.run(secs(20));
    cluster.stop(0);
    // It keeps at most four slots, which its calls may use.
    cluster.check_led_by(1, 12);
}

#[test]
fn who_has_seen_all_calls_leads_at_a_new_broker() {
    let mut cluster = Cluster::new(5, 16, None);
    cluster.run(secs(20));
    // The leader ends with the broker, and the deputy is the last to connect to the next one.
    cluster.kill(0);
    cluster.broker = Broker::new(cluster.now, Predecessor::Died);
    cluster.to_broker.clear();
    cluster.to_process.clear();
    for id in [4, 3, 2, 1] {
        cluster.join(id);
    }
    cluster.check_led_by(1, 16);
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
