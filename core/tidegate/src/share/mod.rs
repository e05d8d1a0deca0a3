//! Limits that several processes share. See [`tidegate_share`] for how slots are divided.
//!
//! Each gate with a shared limit is a member of a local broker. The member has a thread of its own,
//! which starts with the first call: it connects to the broker over a Unix domain socket, joins the
//! targets and tools, and passes messages between the broker and the schedulers. A call that finds a
//! slot in the lease of its process sends no message.
//!
//! - `place`: the directory, the files of the broker, and its election.
//! - `member`: the thread, and the connection to the broker.
//! - `local_broker`: the broker, which runs in the thread of the member that was elected.
//! - `frames`: messages as lines of JSON.

#[cfg(unix)]
mod frames;
#[cfg(unix)]
mod local_broker;
#[cfg(unix)]
mod member;
#[cfg(not(unix))]
#[path = "member_disabled.rs"]
mod member;
#[cfg(unix)]
mod place;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::clock::now;
use crate::config::{Config, LimitConfig, OnFull, ShareConfig, ShareStore};
use crate::error::Error;
use member::{Command, Member};
use tidegate_share::{Lease, Report};

/// The shared limits of a gate.
#[derive(Debug)]
pub(crate) struct Share {
    config: ShareConfig,
    /// Where the member gets its commands. `None` before its thread was started.
    commands: Mutex<Option<mpsc::UnboundedSender<Command>>>,
}

impl Share {
    /// Creates the shared limits of a gate. Returns `None` if the configuration shares none.
    ///
    /// # Errors
    /// `Config` if a target with a shared cap refuses calls instead of queueing them, because each
    /// process gets its slots on demand, which takes a moment. Also on systems without Unix domain
    /// sockets.
    pub(crate) fn new(config: &Config) -> Result<Option<Arc<Self>>, Error> {
        if config.share.store == ShareStore::Off {
            return Ok(None);
        }
        if cfg!(not(unix)) {
            let problem = "share: `store = \"local\"` needs a Unix system; remove it, and divide the caps among the processes";
            return Err(Error::config(problem));
        }
        for target in &config.targets {
            if target.limit == LimitConfig::Fixed && target.on_full == OnFull::Refuse {
                let problem = "a shared cap cannot be combined with `on_full = \"refuse\"`, because a process asks for its slots while a call waits: set `wait = \"100ms\"` instead";
                return Err(Error::config(problem).at(&target.name));
            }
        }
        Ok(Some(Arc::new(Self { config: config.share.clone(), commands: Mutex::default() })))
    }

    /// Shares the cap of a target or tool. `resource` is its name among all processes.
    pub(crate) fn add(self: &Arc<Self>, resource: String, cap: usize, admission: &Arc<Admission>) {
        let link = ShareLink {
            share: self.clone(),
            resource: resource.into(),
            admission: Arc::downgrade(admission),
            has_joined: AtomicBool::new(false),
        };
        admission.share(Lease::new(cap, self.config.strict, now()), link);
    }

    /// Sends a command to the member, and starts its thread at the first one.
    fn send(&self, command: Command) {
        let mut commands = self.commands.lock();
        let sender = commands.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            Member::start(&self.config.name, receiver);
            sender
        });
        // Without a thread, the commands are dropped, and the lease ends.
        let _ = sender.send(command);
    }
}

/// The connection of one target or tool to the member. Dropping it returns all slots.
#[derive(Debug)]
pub(crate) struct ShareLink {
    share: Arc<Share>,
    resource: Arc<str>,
    admission: Weak<Admission>,
    has_joined: AtomicBool,
}

impl ShareLink {
    /// Joins the broker if this is the first call. Costs one atomic load otherwise.
    pub(crate) fn join(&self) {
        if !self.has_joined.load(Ordering::Relaxed) && !self.has_joined.swap(true, Ordering::Relaxed) {
            self.share.send(Command::Join(self.resource.clone(), self.admission.clone()));
        }
    }

    /// Sends a report to the broker.
    pub(crate) fn report(&self, report: Report) {
        self.share.send(Command::Report(self.resource.clone(), report));
    }

    /// Tells the other processes that the provider asked callers to wait.
    pub(crate) fn cool_down(&self, until: std::time::Instant) {
        self.share.send(Command::CoolDown(self.resource.clone(), until));
    }
}

impl Drop for ShareLink {
    fn drop(&mut self) {
        if *self.has_joined.get_mut() {
            self.share.send(Command::Leave(self.resource.clone()));
        }
    }
}
