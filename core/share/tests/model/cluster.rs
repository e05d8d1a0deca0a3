//! A model of processes that share one resource, in virtual time: members, a broker, an upstream
//! that counts calls, and messages that take time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_share::{
    Broker, LOCAL_HEARTBEAT, Lease, LeaseTimes, MemberId, Predecessor, Report, SlotUse, ToBroker, ToMember,
};

pub(crate) const RESOURCE: &str = "target:model";
/// Time that a message takes.
const LATENCY: Duration = Duration::from_micros(200);

/// What happens in the model.
#[derive(Clone, Debug)]
enum Event {
    /// A call arrives at a process.
    Arrival {
        process: usize,
    },
    /// A call ends at the upstream. `is_noticed`: the process was stopped then, and notices it now.
    End {
        process: usize,
        life: u32,
        is_noticed: bool,
    },
    ToBroker {
        from: MemberId,
        message: ToBroker,
        broker: u32,
    },
    ToMember {
        process: usize,
        connection: MemberId,
        message: ToMember,
    },
    Heartbeat {
        process: usize,
        life: u32,
    },
    BrokerTick {
        broker: u32,
    },
    /// The end of a connection reaches the broker.
    Closed {
        connection: MemberId,
        broker: u32,
    },
    /// A process connects to the broker.
    Connect {
        process: usize,
        life: u32,
    },
}

/// One process.
pub(crate) struct Process {
    pub(crate) lease: Lease,
    pub(crate) in_flight: usize,
    /// When each waiting call arrived.
    pub(crate) waiting: VecDeque<Instant>,
    pub(crate) weight: f64,
    connection: Option<MemberId>,
    pub(crate) is_alive: bool,
    /// Whether the process is stopped. Its events wait.
    stopped: Option<Vec<Event>>,
    life: u32,
    pub(crate) served: u64,
    pub(crate) longest_wait: Duration,
    pub(crate) reports: u64,
    /// When each heartbeat was sent that was not answered yet.
    heartbeats: BTreeMap<u64, Instant>,
    /// Time between arrivals of calls, or `None` for a closed loop of the waiting calls.
    interarrival: Option<Duration>,
}

/// The processes, their broker and the upstream.
pub(crate) struct Cluster {
    pub(crate) now: Instant,
    pub(crate) processes: Vec<Process>,
    cap: usize,
    broker: Option<Broker>,
    /// The number of the broker. Messages to another one are lost.
    generation: u32,
    /// The process of the broker.
    pub(crate) leader: usize,
    connections: BTreeMap<MemberId, usize>,
    next_connection: u64,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    payloads: BTreeMap<u64, Event>,
    next_event: u64,
    pub(crate) rng: Rng,
    duration: Duration,
    /// Calls that run at the upstream.
    pub(crate) upstream: usize,
    pub(crate) peak_upstream: usize,
    /// Slot-seconds in which slots were unused while calls waited, and those that were usable.
    pub(crate) gap: f64,
    pub(crate) slot_seconds: f64,
}

impl Cluster {
    /// Creates `weights.len()` processes with calls of about `duration`, and starts the broker in
    /// the first one.
    pub(crate) fn new(seed: u64, cap: usize, weights: &[f64], duration: Duration) -> Self {
        let now = Instant::now();
        let mut cluster = Self {
            now,
            processes: Vec::new(),
            cap,
            broker: None,
            generation: 0,
            leader: 0,
            connections: BTreeMap::new(),
            next_connection: 0,
            events: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            next_event: 0,
            rng: Rng::with_seed(seed),
            duration,
            upstream: 0,
            peak_upstream: 0,
            gap: 0.0,
            slot_seconds: 0.0,
        };
        weights.iter().for_each(|&weight| cluster.add(weight));
        cluster.start_broker(0, Predecessor::None);
        cluster
    }

    /// Adds a process without calls, which connects to the broker.
    pub(crate) fn add(&mut self, weight: f64) {
        let process = self.processes.len();
        self.processes.push(Process {
            lease: Lease::new(self.cap, false, LeaseTimes::LOCAL),
            in_flight: 0,
            waiting: VecDeque::new(),
            weight,
            connection: None,
            is_alive: true,
            stopped: None,
            life: 0,
            served: 0,
            longest_wait: Duration::ZERO,
            reports: 0,
            heartbeats: BTreeMap::new(),
            interarrival: None,
        });
        if self.broker.is_some() {
            self.schedule(Duration::ZERO, Event::Connect { process, life: 0 });
        }
        self.schedule(LOCAL_HEARTBEAT, Event::Heartbeat { process, life: 0 });
    }

    /// Starts a broker in a process. All processes connect to it.
    pub(crate) fn start_broker(&mut self, leader: usize, predecessor: Predecessor) {
        self.broker = Some(Broker::new(self.now, predecessor));
        self.generation += 1;
        self.leader = leader;
        for process in 0..self.processes.len() {
            let life = self.processes[process].life;
            let delay = Duration::from_micros(self.rng.u64(500..20_000));
            self.schedule(delay, Event::Connect { process, life });
        }
        self.schedule(tidegate_share::REJOIN_TIME, Event::BrokerTick { broker: self.generation });
    }

    /// Lets the processes always have `waiting` calls.
    pub(crate) fn saturate(&mut self, process: usize, waiting: usize) {
        for _ in 0..waiting {
            self.schedule(Duration::ZERO, Event::Arrival { process });
        }
    }

    /// Lets calls arrive at a process at random.
    pub(crate) fn offer(&mut self, process: usize, per_second: f64) {
        self.processes[process].interarrival = Some(Duration::from_secs_f64(1.0 / per_second));
        self.schedule(Duration::ZERO, Event::Arrival { process });
    }

    /// Kills a process. Its connections close at once, and its calls end at the upstream.
    pub(crate) fn kill(&mut self, process: usize) {
        let is_leader = self.leader == process && self.broker.is_some();
        let victim = &mut self.processes[process];
        victim.is_alive = false;
        victim.life += 1;
        self.upstream -= victim.in_flight;
        victim.in_flight = 0;
        victim.waiting.clear();
        victim.interarrival = None;
        if let Some(connection) = victim.connection.take() {
            self.connections.remove(&connection);
            let broker = self.generation;
            self.schedule(Duration::from_micros(100), Event::Closed { connection, broker });
        }
        if is_leader {
            self.broker = None;
            self.connections.clear();
            let now = self.now;
            for process in self.processes.iter_mut().filter(|process| process.is_alive) {
                process.connection = None;
                process.lease.on_lost(now);
            }
            let alive: Vec<_> = (0..self.processes.len()).filter(|&at| self.processes[at].is_alive).collect();
            let leader = alive[self.rng.usize(..alive.len())];
            self.start_broker(leader, Predecessor::Died);
        }
    }

    /// Stops a process, like SIGSTOP. Its calls at the upstream go on, and their ends are noticed
    /// when the process continues.
    pub(crate) fn stop(&mut self, process: usize) {
        self.processes[process].stopped.get_or_insert_default();
    }

    /// Continues a stopped process.
    pub(crate) fn resume(&mut self, process: usize) {
        for event in self.processes[process].stopped.take().unwrap_or_default() {
            self.schedule(Duration::ZERO, event);
        }
    }

    fn schedule(&mut self, delay: Duration, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((self.now + delay, self.next_event)));
        self.payloads.insert(self.next_event, event);
    }

    /// Runs the model for a time, and checks the cap after each event.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(&Reverse((at, id))) = self.events.peek()
            && at <= end
        {
            self.pass(at);
            self.events.pop();
            let event = self.payloads.remove(&id).expect("each event has a payload");
            self.on(event);
            self.peak_upstream = self.peak_upstream.max(self.upstream);
        }
        self.pass(end);
    }

    /// Lets time pass, and measures the unused slots.
    fn pass(&mut self, to: Instant) {
        let time = (to - self.now).as_secs_f64();
        let waiting: usize = self.processes.iter().map(|process| process.waiting.len()).sum();
        let unused = self.cap.saturating_sub(self.upstream).min(waiting);
        self.gap += unused as f64 * time;
        self.slot_seconds += (self.upstream + unused) as f64 * time;
        self.now = to;
    }

    fn on(&mut self, event: Event) {
        if let Some(process) = self.process_of(&event)
            && let Some(held) = &mut self.processes[process].stopped
        {
            let event = match event {
                Event::End { process, life, .. } => {
                    self.upstream -= 1;
                    Event::End { process, life, is_noticed: true }
                }
                event => event,
            };
            held.push(event);
            return;
        }
        match event {
            Event::Arrival { process } => self.on_arrival(process),
            Event::End { process, life, is_noticed } => {
                if self.processes[process].life == life {
                    self.upstream -= usize::from(!is_noticed);
                    self.on_end(process);
                }
            }
            Event::ToBroker { from, message, broker } => {
                self.at_broker(broker, |broker, now| broker.on_message(now, from, &message))
            }
            Event::ToMember { process, connection, message } => {
                self.on_message(process, connection, &message)
            }
            Event::Heartbeat { process, life } => self.on_heartbeat(process, life),
            Event::BrokerTick { broker } => self.at_broker(broker, |broker, now| broker.on_tick(now)),
            Event::Closed { connection, broker } => {
                self.at_broker(broker, |broker, now| broker.on_disconnect(now, connection));
            }
            Event::Connect { process, life } => self.on_connect(process, life),
        }
    }

    fn process_of(&self, event: &Event) -> Option<usize> {
        match event {
            Event::ToBroker { .. } | Event::BrokerTick { .. } | Event::Closed { .. } => Some(self.leader),
            Event::Arrival { process }
            | Event::End { process, .. }
            | Event::ToMember { process, .. }
            | Event::Heartbeat { process, .. }
            | Event::Connect { process, .. } => Some(*process),
        }
    }

    fn on_arrival(&mut self, process: usize) {
        let now = self.now;
        if let Some(mean) = self.processes[process].interarrival {
            let delay = mean.mul_f64(-(1.0 - self.rng.f64()).ln());
            self.schedule(delay, Event::Arrival { process });
        }
        if self.processes[process].is_alive {
            self.processes[process].waiting.push_back(now);
            self.settle(process);
        }
    }

    fn on_end(&mut self, process: usize) {
        let now = self.now;
        let ended = &mut self.processes[process];
        ended.in_flight -= 1;
        ended.served += 1;
        ended.lease.tick(now);
        ended.lease.on_release(now, ended.in_flight);
        if ended.interarrival.is_none() {
            ended.waiting.push_back(now);
        }
        self.settle(process);
    }

    /// Admits the calls for which the lease has slots, and sends the report that is due.
    fn settle(&mut self, process: usize) {
        let now = self.now;
        self.processes[process].lease.tick(now);
        while self.processes[process].in_flight < self.processes[process].lease.in_force()
            && let Some(since) = self.processes[process].waiting.pop_front()
        {
            let admitted = &mut self.processes[process];
            admitted.in_flight += 1;
            admitted.longest_wait = admitted.longest_wait.max(now - since);
            let life = admitted.life;
            self.upstream += 1;
            let time = self.duration.mul_f64(0.5 + self.rng.f64());
            self.schedule(time, Event::End { process, life, is_noticed: false });
        }
        let usage = self.usage(process);
        let report = self.processes[process].lease.report(now, &usage);
        self.send(process, report);
    }

    fn usage(&self, process: usize) -> SlotUse {
        let Process { in_flight, waiting, weight, .. } = &self.processes[process];
        SlotUse { in_flight: *in_flight, waiting: waiting.len(), weight: *weight }
    }

    fn send(&mut self, process: usize, report: Option<Report>) {
        let Some((report, from)) = report.zip(self.processes[process].connection) else { return };
        self.processes[process].reports += 1;
        self.send_to_broker(from, ToBroker::Report { resource: RESOURCE.into(), report, heartbeat: None });
    }

    fn send_to_broker(&mut self, from: MemberId, message: ToBroker) {
        // The same for all, so that the messages of one connection keep their order.
        let broker = self.generation;
        self.schedule(LATENCY, Event::ToBroker { from, message, broker });
    }

    fn at_broker<F>(&mut self, generation: u32, apply: F)
    where
        F: FnOnce(&mut Broker, Instant) -> Vec<(MemberId, ToMember)>,
    {
        let now = self.now;
        let Some(broker) = self.broker.as_mut().filter(|_| generation == self.generation) else { return };
        for (connection, message) in apply(broker, now) {
            if let Some(&process) = self.connections.get(&connection) {
                let message = Event::ToMember { process, connection, message };
                self.schedule(LATENCY, message);
            }
        }
    }

    fn on_message(&mut self, process: usize, connection: MemberId, message: &ToMember) {
        let now = self.now;
        if self.processes[process].connection != Some(connection) {
            return;
        }
        match message {
            ToMember::Lease { update, .. } => self.processes[process].lease.on_update(now, *update),
            ToMember::Alive { number } => {
                let process = &mut self.processes[process];
                if let Some(sent_at) = process.heartbeats.remove(number) {
                    process.lease.on_alive(now, sent_at);
                }
            }
            ToMember::CoolDown { .. }
            | ToMember::Advance { .. }
            | ToMember::LimitEvents { .. }
            | ToMember::Placements { .. } => {}
        }
        self.settle(process);
    }

    fn on_heartbeat(&mut self, process: usize, life: u32) {
        let now = self.now;
        if self.processes[process].life != life || !self.processes[process].is_alive {
            return;
        }
        let usage = self.usage(process);
        let report = self.processes[process].lease.heartbeat(now, &usage);
        self.send(process, report);
        if let Some(from) = self.processes[process].connection {
            self.next_event += 1;
            let number = self.next_event;
            self.processes[process].heartbeats.insert(number, now);
            self.send_to_broker(from, ToBroker::Heartbeat { number });
        }
        self.settle(process);
        self.schedule(LOCAL_HEARTBEAT, Event::Heartbeat { process, life });
    }

    fn on_connect(&mut self, process: usize, life: u32) {
        let now = self.now;
        let connecting = &self.processes[process];
        if connecting.life != life || !connecting.is_alive || connecting.connection.is_some() {
            return;
        }
        self.next_connection += 1;
        let connection = MemberId(self.next_connection);
        self.connections.insert(connection, process);
        self.processes[process].connection = Some(connection);
        if process == self.leader
            && let Some(broker) = &mut self.broker
        {
            broker.add_own(connection);
        }
        let usage = self.usage(process);
        let report = self.processes[process].lease.join(now, &usage);
        self.send(process, Some(report));
        self.settle(process);
    }
}
