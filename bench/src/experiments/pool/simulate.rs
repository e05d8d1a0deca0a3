//! Simulates one run in virtual time: calls arrive, clients choose replicas, and engines answer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use fastrand::Rng;
use tidegate::policy::placement::ReplicaSet;
use tidegate_sim::engine::{EngineConfig, EngineEvent, EventKind, SequenceId};

use super::choosers::{Ask, Chooser};
use super::figures::{Answered, Run};
use super::replicas::{REPLICAS, Replicas, Work};
use super::workload::Call;

/// The share of the calls at the start that are not measured, because caches are still filling.
const COLD: f64 = 0.15;

/// A fault of a replica or of the metrics. It begins after a third of the run, if not stated
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// One replica takes three times as long for each step.
    Slow,
    /// One replica is killed. It comes back after a sixth of the run with an empty cache.
    Killed,
    /// No replica reports metrics, from the start of the run on.
    Stale,
    /// Each replica keeps reporting the metrics that it has when the fault begins.
    Frozen,
}

impl Fault {
    /// Returns the text that the fault adds to the name of a setting. Empty without a fault.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Slow => ", one replica three times slower",
            Self::Killed => ", one replica killed and back",
            Self::Stale => ", all metrics stale",
            Self::Frozen => ", all metrics frozen from a third on",
        }
    }
}

/// The index of the replica that becomes slow or is killed.
const FAULTY_REPLICA: usize = 3;

/// The number of clients, and how calls are assigned to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) count: usize,
    /// Whether all calls of a session belong to the same client. If `false`, each call belongs to a
    /// random client.
    pub(crate) sticky: bool,
}

/// The inputs of a run: the engines' configuration, calls, clients, and a fault.
pub(crate) struct RunSetting<'a> {
    pub(crate) engine: &'a EngineConfig,
    pub(crate) calls: &'a [Call],
    pub(crate) clients: Clients,
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
}

/// A call in flight.
struct Open {
    client: usize,
    at: usize,
    /// Whether the replica has sent the first token.
    begun: bool,
}

/// Simulates a run until all calls have ended, and returns its records. `make` creates the choosers
/// of the clients from a seed for each.
pub(crate) fn play(setting: &RunSetting, make: impl Fn(&[u64]) -> Vec<Box<dyn Chooser>>) -> Run {
    let mut rng = Rng::with_seed(setting.seed ^ 0x7001);
    let of = |call: &Call, rng: &mut Rng| match setting.clients.sticky {
        true => call.session as usize % setting.clients.count,
        false => rng.usize(0..setting.clients.count),
    };
    let clients: Vec<usize> = setting.calls.iter().map(|call| of(call, &mut rng)).collect();
    let seeds: Vec<u64> = (0..setting.clients.count).map(|_| rng.u64(..)).collect();
    let choosers = make(&seeds);
    let mut play = Play {
        setting,
        replicas: Replicas::new(setting.engine),
        choosers,
        looks: BinaryHeap::new(),
        due: vec![None; setting.clients.count],
        open: HashMap::new(),
        run: Run::default(),
        cold: Vec::new(),
    };
    play.replicas.mute = setting.fault == Fault::Stale;
    play.all(&clients);
    play.finish()
}

struct Play<'a> {
    setting: &'a RunSetting<'a>,
    replicas: Replicas,
    choosers: Vec<Box<dyn Chooser>>,
    /// The scheduled polls: time and client index. An entry whose time differs from the client's
    /// time in `due` is outdated, and is skipped.
    looks: BinaryHeap<Reverse<(Duration, usize)>>,
    due: Vec<Option<Duration>>,
    open: HashMap<SequenceId, Open>,
    run: Run,
    /// The prompt tokens that each engine has handled before the start of the measurement.
    cold: Vec<Work>,
}

impl Play<'_> {
    fn all(&mut self, clients: &[usize]) {
        let calls = self.setting.calls;
        let warm = (calls.len() as f64 * COLD) as usize;
        let length = calls.last().map_or(Duration::ZERO, |call| call.at);
        let mut faults = self.faults(length).into_iter().peekable();
        for client in 0..self.choosers.len() {
            self.schedule(client);
        }
        for (place, (call, client)) in calls.iter().zip(clients).enumerate() {
            while let Some((at, turn)) = faults.next_if(|(at, _)| *at <= call.at) {
                self.until(Some(at));
                self.turn(at, turn);
            }
            self.until(Some(call.at));
            if place == warm {
                self.cold = (0..REPLICAS).map(|at| self.replicas.work(at)).collect();
            }
            if place >= warm {
                let counts = self.replicas.engines.iter().map(|engine| engine.running() + engine.waiting());
                self.run.seen(counts);
            }
            self.run.calls.push(Answered { measured: place >= warm, ..Answered::of(call) });
            self.send(call.at, place, *client, ReplicaSet::NONE);
        }
        self.until(None);
    }

    fn faults(&self, length: Duration) -> Vec<(Duration, Turn)> {
        let (third, half) = (length / 3, length / 2);
        match self.setting.fault {
            Fault::None | Fault::Stale => Vec::new(),
            Fault::Slow => vec![(third, Turn::Slow)],
            Fault::Frozen => vec![(third, Turn::Freeze)],
            Fault::Killed => vec![(third, Turn::Kill), (half, Turn::Back)],
        }
    }

    fn turn(&mut self, now: Duration, turn: Turn) {
        match turn {
            Turn::Slow => self.replicas.slow(FAULTY_REPLICA, 3.0),
            Turn::Freeze => self.replicas.freeze(),
            Turn::Back => self.replicas.bring_back(FAULTY_REPLICA),
            Turn::Kill => {
                self.replicas.kill(FAULTY_REPLICA);
                let mut lost: Vec<SequenceId> = self
                    .open
                    .iter()
                    .filter(|(_, open)| open.at == FAULTY_REPLICA)
                    .map(|(id, _)| *id)
                    .collect();
                lost.sort_unstable();
                for id in lost {
                    let Some(open) = self.open.remove(&id) else { continue };
                    let Some(chooser) = self.choosers.get_mut(open.client) else { continue };
                    chooser.failed(now, id.0, open.at);
                    chooser.ended(now, id.0, open.at);
                    if open.begun {
                        self.run.truncated += 1;
                    } else {
                        self.send(now, id.0 as usize, open.client, ReplicaSet::one(FAULTY_REPLICA));
                    }
                    self.schedule(open.client);
                }
            }
        }
    }

    /// Sends the call with the index `place`. If the chosen replica is down, the client chooses
    /// again among the others.
    fn send(&mut self, now: Duration, place: usize, client: usize, mut tried: ReplicaSet) {
        let (Some(call), Some(chooser)) = (self.setting.calls.get(place), self.choosers.get_mut(client))
        else {
            return;
        };
        let id = place as u64;
        while tried.len() < REPLICAS {
            let at = chooser.choose(&Ask { now, id, call, tried, replicas: &self.replicas });
            if self.replicas.send(now, at, SequenceId(id), call) {
                self.open.insert(SequenceId(id), Open { client, at, begun: false });
                break;
            }
            chooser.failed(now, id, at);
            chooser.ended(now, id, at);
            tried.insert(at);
        }
        self.schedule(client);
    }

    /// Simulates all events up to the time `to`. With `None`, continues until all calls have ended.
    fn until(&mut self, to: Option<Duration>) {
        let mut events = Vec::new();
        while to.is_some() || !self.open.is_empty() {
            let poll = self.looks.peek().map(|Reverse((at, _))| *at);
            let next = self.replicas.next_event().into_iter().chain(poll).min();
            let Some(now) = next.filter(|at| to.is_none_or(|to| *at <= to)) else { break };
            self.replicas.advance(now, &mut events);
            for event in events.drain(..) {
                self.record_figures(event);
            }
            while let Some(Reverse((at, client))) =
                self.looks.peek().copied().filter(|Reverse((at, _))| *at <= now)
            {
                self.looks.pop();
                if self.due.get(client) != Some(&Some(at)) {
                    continue;
                }
                if let Some(chooser) = self.choosers.get_mut(client) {
                    chooser.poll(now, &self.replicas);
                }
                if let Some(due) = self.due.get_mut(client) {
                    *due = None;
                }
                self.schedule(client);
            }
        }
    }

    fn record_figures(&mut self, EngineEvent { at, id, kind }: EngineEvent) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let Some(chooser) = self.choosers.get_mut(open.client) else { return };
        self.run.last = self.run.last.max(at);
        match kind {
            EventKind::Token { index: 0 } => {
                open.begun = true;
                chooser.first_token(at, id.0, open.at);
                let prompt = self.setting.calls.get(id.0 as usize).map_or(0, |call| call.input);
                self.replicas.answers(open.at, prompt);
                if let Some(answered) = self.run.calls.get_mut(id.0 as usize) {
                    answered.first_token = Some(at);
                }
            }
            EventKind::Finished => {
                chooser.ended(at, id.0, open.at);
                self.open.remove(&id);
            }
            EventKind::Token { .. } | EventKind::Admitted | EventKind::Preempted => {}
        }
    }

    /// Schedules the next poll of a client.
    fn schedule(&mut self, client: usize) {
        let (Some(chooser), Some(due)) = (self.choosers.get(client), self.due.get_mut(client)) else {
            return;
        };
        let next = chooser.next_poll();
        if let Some(at) = next.filter(|at| due.is_none_or(|due| *at < due)) {
            *due = Some(at);
            self.looks.push(Reverse((at, client)));
        }
    }

    fn finish(mut self) -> Run {
        let work: Vec<Work> = (0..REPLICAS).map(|at| self.replicas.work(at)).collect();
        self.run.did(&self.cold, &work);
        self.run
    }
}

/// A change of the faulty replica or of the metrics at one moment of a run.
#[derive(Clone, Copy)]
enum Turn {
    Slow,
    Freeze,
    Kill,
    Back,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::pool::chooser_list::{Role, entries};
    use crate::experiments::pool::replicas::engine;
    use crate::experiments::pool::workload::Workload;

    const FAULTS: [Fault; 5] = [Fault::None, Fault::Slow, Fault::Killed, Fault::Stale, Fault::Frozen];

    #[test]
    fn every_chooser_answers_all_calls_and_runs_repeat() {
        let mut calls = Workload::Sessions.draw(1, 2.0).unwrap();
        calls.truncate(200);
        let engine = engine(Workload::Sessions);
        for entry in entries(4) {
            for fault in FAULTS {
                let count = if entry.role == Role::Oracle { 1 } else { 4 };
                let clients = Clients { count, sticky: false };
                let setting = RunSetting { engine: &engine, calls: &calls, clients, fault, seed: 1 };
                let (run, again) = (play(&setting, &entry.make), play(&setting, &entry.make));
                let first = |run: &Run| run.calls.iter().map(|call| call.first_token).collect::<Vec<_>>();
                assert_eq!(run.calls.len(), calls.len());
                assert!(first(&run).iter().all(Option::is_some), "{} with {fault:?}", entry.name);
                assert_eq!((first(&run), run.truncated), (first(&again), again.truncated), "{}", entry.name);
                assert!(fault == Fault::Killed || run.truncated == 0);
            }
        }
    }

    #[test]
    fn slow_replica_costs_more_without_polls() {
        let calls = Workload::Sessions.draw(2, 1.0).unwrap();
        let engine = engine(Workload::Sessions);
        let random = entries(1).into_iter().find(|entry| entry.short == "random").unwrap();
        let p99 = |fault| {
            let clients = Clients { count: 1, sticky: false };
            let setting = RunSetting { engine: &engine, calls: &calls, clients, fault, seed: 1 };
            play(&setting, &random.make).figures().p99_s
        };
        assert!(p99(Fault::Slow) > 1.5 * p99(Fault::None));
    }
}
