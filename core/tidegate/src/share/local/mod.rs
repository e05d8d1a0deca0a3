//! The member of a local broker: connects the schedulers of a gate to the broker of the machine.
//!
//! - `broker_directory`: the directory, the files of the broker, and its election.
//! - `broker`: the broker, which runs in the thread of the member that was elected.
//! - `frames`: messages as lines of JSON.

mod broker;
mod broker_directory;
mod frames;

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::resource::{CallEvents, EVENTS_DELAY, JoinMessage, SharedResource};
use super::{Command, start_thread};
use crate::admission::ShareEvent;
use crate::clock::now;
use broker::{is_own_user, is_running, process_ends, process_of};
use broker_directory::{BrokerDirectory, NamedDirectories};
use frames::Lines;
use tidegate_share::{LOCAL_HEARTBEAT, Predecessor, ToBroker, ToMember, cool_down_ms};

/// Delay before another attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);
/// Delay before another attempt if there can be no broker.
const ALONE_DELAY: Duration = Duration::from_secs(5);
/// Time after a heartbeat from which the next one is sent with a report.
const ATTACHED_AFTER: Duration = Duration::from_millis(100);
/// The number of heartbeats without an answer after which a broker counts as stopped: 2 s.
const MAX_UNANSWERED: u64 = 4;
/// Time without a connection after which a broker counts as stopped although it holds the lock.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two looks whether the process of the broker has ended. A forked child that has
/// inherited its sockets keeps them open.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time within which the broker must read what is sent. It may wait for this member to read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The member of one gate. It runs in a thread of its own.
pub(super) struct Member {
    name: Arc<str>,
    directories: NamedDirectories,
    commands: UnboundedReceiver<Command>,
    /// The limits that have joined.
    resources: HashMap<Arc<str>, SharedResource>,
    /// Whether the member was connected to a broker. Then other gates of this process may have been
    /// connected, too. The files of the broker name only other processes.
    was_connected: bool,
    /// Whether the log says that this process works alone.
    has_warned: bool,
    /// Dropped after the files of a broker in this thread were removed. `None` while the process
    /// does not exit.
    exiting: Option<std::sync::mpsc::Sender<()>>,
}

/// A broker that does not answer.
#[derive(Clone, Copy)]
struct StoppedBroker {
    generation: u64,
    /// `None` if it is not known.
    process: Option<Pid>,
}

/// The heartbeats of a connection.
#[derive(Default)]
struct Heartbeat {
    /// The number of the last one, from 1.
    number: u64,
    /// When the last one was sent. `None` before the first.
    sent_at: Option<Instant>,
    /// The number of the last one that was answered.
    answered: u64,
}

impl Heartbeat {
    /// Waits until the next one must be sent.
    async fn wait(&self) {
        if let Some(sent_at) = self.sent_at {
            sleep_until((sent_at + LOCAL_HEARTBEAT).into()).await;
        }
    }

    /// Returns the number of the next one, which is sent now.
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.sent_at = Some(now());
        self.number
    }

    /// Returns the number of the next one if it is sent with a report, which saves a message. None
    /// is sent with most of many reports, and none before the last one was answered, so that the
    /// lease is renewed.
    fn next_with_report(&mut self) -> Option<u64> {
        let is_answered = self.answered == self.number;
        let is_early = self.sent_at.is_none_or(|sent_at| now() < sent_at + ATTACHED_AFTER);
        (is_answered && !is_early).then(|| self.next())
    }
}

/// The adaptive limits and pools of which events of calls wait to be sent.
#[derive(Default)]
struct DueEvents {
    resources: BTreeSet<Arc<str>>,
    /// When the events are sent. `None` if there are none.
    send_at: Option<Instant>,
}

impl DueEvents {
    fn add(&mut self, resource: Arc<str>) {
        self.resources.insert(resource);
        self.send_at.get_or_insert_with(|| now() + EVENTS_DELAY);
    }

    /// Waits until events must be sent.
    async fn wait(&self) {
        match self.send_at {
            Some(at) => sleep_until(at.into()).await,
            None => pending().await,
        }
    }

    fn take(&mut self) -> BTreeSet<Arc<str>> {
        self.send_at = None;
        std::mem::take(&mut self.resources)
    }
}

/// Why a connection was given up.
enum End {
    /// The connection has ended.
    Lost,
    /// The broker does not answer.
    Unanswered,
    /// The gate was dropped, or the process exits.
    Dropped,
}

impl Member {
    /// Starts the thread of a member, which ends when the sender of `commands` is dropped.
    pub(super) fn start(name: &Arc<str>, commands: UnboundedReceiver<Command>) {
        let member = Self {
            name: name.clone(),
            directories: NamedDirectories::from_env(),
            commands,
            resources: HashMap::new(),
            was_connected: false,
            has_warned: false,
            exiting: None,
        };
        start_thread(move || member.run());
    }

    /// Runs until the gate is dropped or the process exits. Returns what must be dropped after the
    /// broker.
    async fn run(mut self) -> Option<std::sync::mpsc::Sender<()>> {
        let mut stopped = None;
        loop {
            let connected = match BrokerDirectory::new(&self.directories, &self.name) {
                Ok(directory) => self.connect(&directory, stopped.take()).await,
                Err(error) => Err(error),
            };
            let end = match connected {
                Ok((generation, stream)) => {
                    if std::mem::take(&mut self.has_warned) {
                        tracing::info!(share = &*self.name, "limits are shared again");
                    }
                    let process = process_of(&stream);
                    let end = self.serve(stream, process).await;
                    if let End::Unanswered = end {
                        stopped = Some(StoppedBroker { generation, process });
                    }
                    end
                }
                Err(error) => self.work_alone(&error).await,
            };
            self.each(SharedResource::on_lost);
            if let End::Dropped = end {
                return self.exiting;
            }
            self.drop_outdated_reports();
            if self.exiting.is_some() {
                return self.exiting;
            }
        }
    }

    /// Drops the reports that were made for the lost broker. The claim of the next one includes
    /// them.
    fn drop_outdated_reports(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.on_offline_command(command);
        }
    }

    /// Applies a command while there is no broker.
    fn on_offline_command(&mut self, command: Command) {
        match command {
            Command::Event(resource, limit, ShareEvent::Joined) => {
                self.resources.insert(resource, limit);
            }
            Command::Event(resource, limit, ShareEvent::Left) => drop(self.remove(&resource, &limit)),
            Command::Event(..) => {}
            Command::Exit(exiting) => self.exiting = Some(exiting),
        }
    }

    /// Connects to the broker. Becomes the broker if there is none, or if `stopped` is the current
    /// one. Returns the connection and the generation of the broker.
    ///
    /// # Errors
    /// The files of the broker cannot be written.
    async fn connect(
        &mut self,
        directory: &BrokerDirectory,
        mut stopped: Option<StoppedBroker>,
    ) -> io::Result<(u64, UnixStream)> {
        let began = now();
        loop {
            let generation = directory.generation();
            if let Some(stopped) = stopped.filter(|stopped| stopped.generation == generation) {
                // Only one member gets the lock. The others connect to its broker.
                if let Some(lock) = directory.try_lock(generation + 1)? {
                    // First, so that no broker runs that others cannot find.
                    directory.set_generation(generation + 1)?;
                    broker::start(directory, lock, Predecessor::Stopped, stopped.process)?;
                }
            } else if let Ok(stream) = UnixStream::connect(directory.socket(generation)).await
                && is_own_user(&stream)
                && process_of(&stream).is_none_or(is_running)
            {
                self.was_connected = true;
                return Ok((generation, stream));
            } else if let Some(lock) = directory.try_lock(generation)? {
                let had_members = self.was_connected || directory.had_members();
                let predecessor = if had_members { Predecessor::Died } else { Predecessor::None };
                broker::start(directory, lock, predecessor, None)?;
                continue;
            } else if now() >= began + CONNECT_TIMEOUT {
                // Its socket was removed, or it was stopped before it had one.
                stopped = Some(StoppedBroker { generation, process: None });
                continue;
            }
            sleep(RECONNECT_DELAY).await;
        }
    }

    /// Tells the limits that there can be no broker. A process that never had one then uses its
    /// whole caps, unless it is strict.
    async fn work_alone(&mut self, error: &io::Error) -> End {
        if !std::mem::replace(&mut self.has_warned, true) {
            self.warn(error);
        }
        self.each(SharedResource::on_alone);
        let joins = async {
            while self.exiting.is_none()
                && let Some(command) = self.commands.recv().await
            {
                if let Command::Event(_, limit, ShareEvent::Joined) = &command {
                    limit.on_alone();
                }
                self.on_offline_command(command);
            }
        };
        match timeout(ALONE_DELAY, joins).await {
            Ok(()) => End::Dropped,
            Err(_) => End::Lost,
        }
    }

    fn warn(&self, error: &io::Error) {
        let share = &*self.name;
        tracing::warn!(share, %error, "limits are not shared: this process works alone");
    }

    /// Passes messages between the broker, which runs in `process`, and the schedulers.
    async fn serve(&mut self, stream: UnixStream, process: Option<Pid>) -> End {
        let (reader, mut writer) = stream.into_split();
        let mut lines = Lines::new(BufReader::new(reader));
        let mut session = Session::default();
        let mut reviews = reviews();
        let other = process.filter(|process| *process != getpid());
        let mut has_died = pin!(process_ends(other, CHECK_INTERVAL));
        self.resources.iter().for_each(|(name, limit)| join(&mut session.out, name.clone(), limit));
        loop {
            if self.exiting.is_some() {
                return End::Dropped;
            }
            if !session.out.is_empty() {
                let Ok(Ok(())) = timeout(WRITE_TIMEOUT, writer.write_all(&session.out)).await else {
                    return End::Lost;
                };
                session.out.clear();
            }
            tokio::select! {
                biased;
                // Before the heartbeat, which is sent with a report if one is due.
                _ = reviews.tick() => {
                    self.each(SharedResource::on_heartbeat);
                    self.on_commands(&mut session);
                }
                // Early, so that many messages do not let the lease end.
                () = session.heartbeat.wait() => {
                    if session.heartbeat.number - session.heartbeat.answered >= MAX_UNANSWERED {
                        return End::Unanswered;
                    }
                    let number = session.heartbeat.next();
                    session.send(&ToBroker::Heartbeat { number });
                }
                message = lines.next::<ToMember>() => match message {
                    Ok(Some(message)) => {
                        self.on_message(&message, &mut session.heartbeat);
                    }
                    Ok(None) | Err(_) => return End::Lost,
                },
                command = self.commands.recv() => {
                    let Some(command) = command else { return End::Dropped };
                    self.on_command(&mut session, command);
                    self.on_commands(&mut session);
                }
                () = &mut has_died => return End::Lost,
                () = session.events_due.wait() => self.send_events(&mut session),
            }
        }
    }

    fn on_message(&mut self, message: &ToMember, heartbeat: &mut Heartbeat) {
        let limit = |resource| self.resources.get(resource);
        match message {
            ToMember::Lease { resource, update } => {
                limit(resource).iter().for_each(|limit| limit.on_lease_update(*update));
            }
            ToMember::Advance { resource, advance } => {
                limit(resource).iter().for_each(|limit| limit.on_advance(advance, Duration::ZERO));
            }
            ToMember::LimitEvents { resource, member, limit_events } => {
                limit(resource).iter().for_each(|limit| limit.on_limit_events(*member, limit_events));
            }
            ToMember::Placements { resource, member, others, placements } => {
                limit(resource).iter().for_each(|limit| limit.on_placements(*member, *others, placements));
            }
            ToMember::CoolDown { resource, for_ms } => {
                let until = now() + Duration::from_millis(*for_ms);
                limit(resource).iter().for_each(|limit| limit.on_cool_down(until));
            }
            ToMember::Alive { number } => {
                heartbeat.answered = heartbeat.answered.max(*number).min(heartbeat.number);
                // The time of an older one is not known any more.
                if let Some(sent_at) = heartbeat.sent_at.filter(|_| *number == heartbeat.number) {
                    self.each(|limit| limit.on_alive(sent_at));
                }
            }
        }
    }

    /// Applies all commands that were given, and adds their messages to the session.
    fn on_commands(&mut self, session: &mut Session) {
        while let Ok(command) = self.commands.try_recv() {
            self.on_command(session, command);
        }
    }

    /// Applies a command, and adds its message to the session.
    fn on_command(&mut self, session: &mut Session, command: Command) {
        let (resource, limit, event) = match command {
            Command::Event(resource, limit, event) => (resource, limit, event),
            // The broker notices that the connection ends.
            Command::Exit(exiting) => {
                self.exiting = Some(exiting);
                return;
            }
        };
        match event {
            ShareEvent::Joined => {
                join(&mut session.out, resource.clone(), &limit);
                self.resources.insert(resource, limit);
            }
            ShareEvent::Drawn(draw) => session.send(&ToBroker::Draw { resource, draw }),
            ShareEvent::Reported(report) => {
                let heartbeat = session.heartbeat.next_with_report();
                session.send(&ToBroker::Report { resource, report, heartbeat });
            }
            ShareEvent::CoolingUntil(until) => {
                let for_ms = cool_down_ms(until.saturating_duration_since(now()));
                session.send(&ToBroker::CoolDown { resource, for_ms });
            }
            ShareEvent::Observed => session.events_due.add(resource),
            ShareEvent::Left => {
                if self.remove(&resource, &limit).is_some() {
                    session.send(&ToBroker::Leave { resource });
                }
            }
        }
    }

    /// Adds the events of calls that are due to the session.
    fn send_events(&self, session: &mut Session) {
        for resource in session.events_due.take() {
            let Some(limit) = self.resources.get(&resource) else { continue };
            let (messages, may_have_more) = limit.take_events();
            for events in messages {
                let resource = resource.clone();
                let message = match events {
                    CallEvents::LimitEvents(limit_events) => ToBroker::LimitEvents { resource, limit_events },
                    CallEvents::Placements(placements) => ToBroker::Placements { resource, placements },
                };
                session.send(&message);
            }
            if may_have_more {
                session.events_due.add(resource);
            }
        }
    }

    /// Removes a limit, unless another one of this name has joined in the meantime.
    fn remove(&mut self, resource: &Arc<str>, limit: &SharedResource) -> Option<SharedResource> {
        let is_same = self.resources.get(resource).is_some_and(|joined| joined.is_same(limit));
        if is_same { self.resources.remove(resource) } else { None }
    }

    fn each(&self, event: impl Fn(&SharedResource)) {
        self.resources.values().for_each(event);
    }
}

/// What a member has to send over its connection to a broker.
#[derive(Default)]
struct Session {
    /// The messages that were not written yet.
    out: Vec<u8>,
    events_due: DueEvents,
    heartbeat: Heartbeat,
}

impl Session {
    /// Adds a message to those that are written next.
    fn send(&mut self, message: &ToBroker) {
        frames::write(&mut self.out, message);
    }
}

/// Adds the message that joins a resource to `out`.
fn join(out: &mut Vec<u8>, resource: Arc<str>, limit: &SharedResource) {
    match limit.join() {
        Some(JoinMessage::Calls(report)) => {
            frames::write(out, &ToBroker::Report { resource, report, heartbeat: None });
        }
        Some(JoinMessage::Rates(draw)) => frames::write(out, &ToBroker::Draw { resource, draw }),
        Some(JoinMessage::Placements(placements)) => {
            frames::write(out, &ToBroker::Placements { resource, placements });
        }
        None => {}
    }
}

/// Returns the times at which the limits report what was not used since the last one.
fn reviews() -> Interval {
    let mut reviews = interval(LOCAL_HEARTBEAT);
    reviews.set_missed_tick_behavior(MissedTickBehavior::Delay);
    reviews
}
