//! The local broker: serves the members of all processes of the user on this machine.
//!
//! The broker runs in the thread of one member. It accepts only processes of the same user. A
//! message that it cannot read ends the connection.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, sleep_until};

use super::broker_directory::{BrokerDirectory, BrokerLock};
use super::frames::{self, Lines};
use crate::clock::now;
use tidegate_share::{
    Broker, LeaseUpdate, MemberId, Placements, Predecessor, REJOIN_TIME, RENEWAL_TIME, ToBroker, ToMember,
};

/// Time between two looks at the number of the current generation.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of messages with events of calls that are kept for one member. If it does not
/// read them, more are dropped, and another member replaces it.
const MAX_QUEUED_EVENTS: usize = 500;

/// The broker, shared by the tasks of its connections.
struct LocalBroker {
    directory: BrokerDirectory,
    lock: BrokerLock,
    broker: RefCell<Broker>,
    /// The messages that were not written yet, by connection.
    outboxes: RefCell<BTreeMap<MemberId, Rc<Outbox>>>,
    /// The number of connections from other processes.
    others: Cell<usize>,
    /// The stopped process of the predecessor, while its slots are withheld.
    stopped: Cell<Option<Pid>>,
    /// Until when members of the predecessor may rejoin. `None` if there was none, or once that
    /// time has passed.
    awaits_until: Cell<Option<Instant>>,
    /// When the number of the current generation was last read.
    checked_at: Cell<Instant>,
    /// Set when another broker has taken over.
    is_superseded: Cell<bool>,
    superseded: Notify,
    /// Notified after each message, because time may change something earlier then.
    changed: Notify,
}

/// The messages to one member. Updates of one resource are merged, so that a member that does not
/// read takes little memory.
#[derive(Default)]
struct Outbox {
    leases: RefCell<BTreeMap<Arc<str>, LeaseUpdate>>,
    others: RefCell<BTreeMap<Option<Arc<str>>, ToMember>>,
    /// Each answers a draw. A member has at most a few that were not answered.
    advances: RefCell<VecDeque<ToMember>>,
    limit_events: RefCell<VecDeque<ToMember>>,
    placements: RefCell<VecDeque<ToMember>>,
    filled: Notify,
}

/// Starts the broker of the generation of `lock` on this thread. The members can connect when this
/// function returns. The broker ends when another one takes over, or with the thread. `stopped` is
/// the process of a predecessor that has stopped, if it is known.
///
/// # Errors
/// The socket cannot be created.
pub(super) fn start(
    directory: &BrokerDirectory,
    lock: BrokerLock,
    predecessor: Predecessor,
    stopped: Option<Pid>,
) -> io::Result<()> {
    let path = directory.socket(lock.generation);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    let broker = Rc::new(LocalBroker {
        directory: directory.clone(),
        lock,
        broker: RefCell::new(Broker::new(now(), predecessor)),
        outboxes: RefCell::default(),
        others: Cell::new(0),
        stopped: Cell::new(stopped),
        awaits_until: Cell::new((predecessor != Predecessor::None).then(|| now() + REJOIN_TIME)),
        checked_at: Cell::new(now()),
        is_superseded: Cell::new(false),
        superseded: Notify::new(),
        changed: Notify::new(),
    });
    spawn_local(broker.run(listener));
    Ok(())
}

impl LocalBroker {
    async fn run(self: Rc<Self>, listener: UnixListener) {
        let mut connections = JoinSet::new();
        let mut stopped_ends = pin!(async {
            process_ends(self.stopped.get(), RENEWAL_TIME).await;
            self.release_withheld();
            pending::<()>().await;
        });
        if self.stopped.get().is_none() {
            self.release_withheld();
        }
        for number in 0.. {
            let accepted = loop {
                tokio::select! {
                    accepted = listener.accept() => break accepted,
                    () = self.superseded.notified() => return,
                    () = sleep(CHECK_INTERVAL) => self.check(),
                    () = self.next_wake() => {
                        self.check_after_pause();
                        if self.is_superseded.get() {
                            return;
                        }
                        let messages = self.broker.borrow_mut().on_tick(now());
                        self.deliver(messages);
                    }
                    () = self.changed.notified() => {}
                    () = &mut stopped_ends => {}
                    Some(_) = connections.join_next() => {}
                }
            };
            if self.is_superseded.get() {
                return;
            }
            match accepted {
                Ok((stream, _)) if is_own_user(&stream) => {
                    connections.spawn_local(self.clone().serve(MemberId(number), stream));
                }
                Ok(_) => {}
                // Too many open files, for example: the caller tries again.
                Err(_) => sleep(CHECK_INTERVAL).await,
            }
        }
    }

    /// Serves one connection until it ends.
    async fn serve(self: Rc<Self>, member: MemberId, stream: UnixStream) {
        let process = process_of(&stream);
        let is_own = process == Some(getpid());
        if is_own {
            self.broker.borrow_mut().add_own(member);
        }
        let outbox = Rc::<Outbox>::default();
        self.outboxes.borrow_mut().insert(member, outbox.clone());
        self.count_others(usize::from(!is_own), 0);
        let (reader, mut writer) = stream.into_split();
        let mut lines = Lines::new(BufReader::new(reader));
        let mut buffer = Vec::new();
        // A forked child that has inherited the connection keeps it open after the member has died.
        let mut has_died = pin!(process_ends(process, RENEWAL_TIME));
        loop {
            tokio::select! {
                message = lines.next::<ToBroker>() => {
                    let Ok(Some(message)) = message else { break };
                    self.check_after_pause();
                    if self.is_superseded.get() {
                        break;
                    }
                    let messages = self.broker.borrow_mut().on_message(now(), member, &message);
                    self.deliver(messages);
                    // The first heartbeat comes after what joins.
                    let is_heartbeat = matches!(message, ToBroker::Heartbeat { .. });
                    if is_heartbeat && self.stopped.get().is_some_and(|stopped| process == Some(stopped)) {
                        self.release_withheld();
                    }
                    self.changed.notify_one();
                }
                () = outbox.filled.notified() => {
                    buffer.clear();
                    outbox.take(&mut buffer);
                    // The connection of a member that does not read blocks nobody else.
                    tokio::select! {
                        written = writer.write_all(&buffer) => if written.is_err() { break },
                        () = &mut has_died => break,
                    }
                }
                () = &mut has_died => break,
            }
        }
        self.outboxes.borrow_mut().remove(&member);
        self.count_others(0, usize::from(!is_own));
        let messages = self.broker.borrow_mut().on_disconnect(now(), member);
        self.deliver(messages);
        self.changed.notify_one();
    }

    /// Waits until time alone changes something at the broker.
    async fn next_wake(&self) {
        let wake = self.broker.borrow_mut().next_wake(now());
        match wake {
            Some(wake) => sleep_until(wake.into()).await,
            None => pending().await,
        }
    }

    fn deliver(&self, messages: Vec<(MemberId, ToMember)>) {
        let mut unread = Vec::new();
        for (member, message) in messages {
            if let Some(outbox) = self.outboxes.borrow().get(&member)
                && !outbox.put(message)
            {
                unread.push(member);
            }
        }
        for member in unread {
            let messages = self.broker.borrow_mut().on_unread(now(), member);
            self.deliver(messages);
        }
    }

    /// Grants the slots that were withheld for the stopped process of the predecessor, if there is
    /// one.
    fn release_withheld(&self) {
        self.stopped.set(None);
        let messages = self.broker.borrow_mut().release_withheld(now());
        self.deliver(messages);
    }

    /// Counts the members of other processes, and records in the directory whether there are any,
    /// unless it belongs to another broker.
    fn count_others(&self, more: usize, fewer: usize) {
        let before = self.others.get();
        self.others.set(before + more - fewer);
        if (before == 0) != (self.others.get() == 0) && !self.is_superseded.get() {
            self.directory.set_has_members(before == 0);
        }
    }

    /// Resigns if this process did not run for long, and another broker has taken over meanwhile.
    fn check_after_pause(&self) {
        if now() >= self.checked_at.get() + 2 * CHECK_INTERVAL {
            self.check();
        }
    }

    /// Resigns if another broker has taken over, or can because the lock file is gone or the
    /// directory of brokers is another one now.
    fn check(&self) {
        self.checked_at.set(now());
        let is_superseded = self.directory.generation() > self.lock.generation
            || !self.lock.is_in_place()
            || self.directory.has_moved();
        if is_superseded {
            self.is_superseded.set(true);
            self.superseded.notify_one();
        } else if self.awaits_until.get().is_some_and(|until| until <= now()) {
            self.awaits_until.set(None);
            if self.others.get() == 0 {
                // No member of the predecessor is left.
                self.directory.set_has_members(false);
            }
        }
    }
}

impl Drop for LocalBroker {
    fn drop(&mut self) {
        if self.others.get() == 0 && !self.is_superseded.get() && self.awaits_until.get().is_none() {
            self.directory.remove_files(&self.lock);
        }
    }
}

impl Outbox {
    /// Adds a message. Returns `false` if it was dropped.
    fn put(&self, message: ToMember) -> bool {
        match message {
            ToMember::Lease { resource, update } => {
                let mut leases = self.leases.borrow_mut();
                let known = leases.get(&resource).map_or(0, |known| known.granted);
                leases.insert(resource, LeaseUpdate { granted: known + update.granted, ..update });
            }
            ToMember::Advance { .. } => self.advances.borrow_mut().push_back(message),
            ToMember::LimitEvents { .. } => {
                let mut limit_events = self.limit_events.borrow_mut();
                if limit_events.len() >= MAX_QUEUED_EVENTS {
                    return false;
                }
                limit_events.push_back(message);
            }
            ToMember::Placements { .. } => self.put_placements(message),
            ToMember::CoolDown { ref resource, .. } => {
                self.others.borrow_mut().insert(Some(resource.clone()), message);
            }
            ToMember::Alive { .. } => {
                self.others.borrow_mut().insert(None, message);
            }
        }
        self.filled.notify_one();
        true
    }

    /// Adds a message about calls of a pool. If the member does not read, replaces all by messages
    /// that its knowledge is lost.
    fn put_placements(&self, message: ToMember) {
        let mut placements = self.placements.borrow_mut();
        if placements.len() < MAX_QUEUED_EVENTS {
            return placements.push_back(message);
        }
        let pool = |message: ToMember| match message {
            ToMember::Placements { resource, others, .. } => Some((resource, others)),
            _ => None,
        };
        let pools: BTreeMap<_, _> = placements.drain(..).chain([message]).filter_map(pool).collect();
        placements.extend(pools.into_iter().map(|(resource, others)| {
            let placements = Placements::restart();
            ToMember::Placements { resource, member: None, others, placements }
        }));
    }

    /// Moves the messages to `buffer`, as lines.
    fn take(&self, buffer: &mut Vec<u8>) {
        for (resource, update) in std::mem::take(&mut *self.leases.borrow_mut()) {
            frames::write(buffer, &ToMember::Lease { resource, update });
        }
        for message in std::mem::take(&mut *self.advances.borrow_mut()) {
            frames::write(buffer, &message);
        }
        for message in std::mem::take(&mut *self.placements.borrow_mut()) {
            frames::write(buffer, &message);
        }
        // After the leases, which say whether the member observes the calls of all.
        for message in std::mem::take(&mut *self.limit_events.borrow_mut()) {
            frames::write(buffer, &message);
        }
        for message in std::mem::take(&mut *self.others.borrow_mut()).into_values() {
            frames::write(buffer, &message);
        }
    }
}

/// Returns the process at the other end of a connection, which is that of the broker for a
/// connection to it. `None` if it is not known.
pub(super) fn process_of(stream: &UnixStream) -> Option<Pid> {
    stream.peer_cred().ok().and_then(|peer| Pid::from_raw(peer.pid()?))
}

/// Returns `true` if a process has not ended. A process that may not be signalled, because its real
/// user differs from its effective one or because of a security policy, is running.
pub(super) fn is_running(process: Pid) -> bool {
    test_kill_process(process) != Err(Errno::SRCH)
}

/// Waits until a process has ended, at most for the time `interval` longer. Waits for ever if the
/// process is not known.
pub(super) async fn process_ends(process: Option<Pid>, interval: Duration) {
    let Some(process) = process else { return pending().await };
    while is_running(process) {
        sleep(interval).await;
    }
}

/// Returns `true` if the process at the other end of a connection runs as the same user.
pub(super) fn is_own_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;

    use super::*;

    /// Only root can take the user of another process, so nothing is tested for other users.
    #[test]
    fn process_of_another_user_is_running() {
        let thread = std::thread::spawn(|| {
            if geteuid().is_root() {
                let other = Uid::from_raw(54_321);
                set_thread_res_uid(other, other, other).unwrap();
                assert_eq!(test_kill_process(Pid::INIT), Err(Errno::PERM));
            }
            assert!(is_running(Pid::INIT));
        });
        thread.join().unwrap();
        assert!(!is_running(Pid::from_raw(i32::MAX).unwrap()));
    }
}
