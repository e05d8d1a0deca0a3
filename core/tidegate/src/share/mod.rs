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

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::admission::{Admission, ShareEvent, ShareLink};
use crate::config::{Config, LimitConfig, OnFull, ShareConfig, ShareStore};
use crate::error::Error;
use member::{Command, Member};
use tidegate_share::Lease;

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
        let (share, resource) = (self.clone(), Arc::<str>::from(resource));
        let joining = Arc::downgrade(admission);
        let link = ShareLink::new(move |event| {
            let resource = resource.clone();
            share.send(match event {
                ShareEvent::Joined => Command::Join(resource, joining.clone()),
                ShareEvent::Reported(report) => Command::Report(resource, report),
                ShareEvent::CoolingUntil(until) => Command::CoolDown(resource, until),
                ShareEvent::Left => Command::Leave(resource),
            });
        });
        admission.share(Lease::new(cap, self.config.strict), link);
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
