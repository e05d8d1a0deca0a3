//! Limits that several processes share. See [`tidegate_share`] for how slots and rates are divided.
//!
//! Each gate with a shared limit is a member of a broker: of a local one, or of a Redis or Valkey
//! server. The member has a thread of its own, which starts with the first call: it joins the
//! targets and tools, and passes messages between the broker and the schedulers. A call that finds
//! a slot in the lease of its process sends no message, unless the limit is adaptive or the target
//! a pool.
//!
//! - `limit`: what is shared: calls in flight, calls that await their first token, rates, or the
//!   load of replicas.
//! - `local`: the member of a local broker, and the broker.
//! - `redis`: the member of a Redis or Valkey server.
//! - `unshared`: notices that another process has the same caps without sharing them.

#[cfg(unix)]
mod local;
#[cfg(not(unix))]
#[path = "local_disabled.rs"]
mod local;
#[cfg(feature = "redis")]
mod redis;
mod resource;
#[cfg(target_os = "linux")]
mod unshared;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
#[cfg(any(unix, feature = "redis"))]
use tokio::task::LocalSet;

use crate::admission::{Admission, BudgetSet, ShareEvent, ShareLink};
use crate::config::{Config, ShareStore};
use crate::error::Error;
use crate::schedule::LeaseKind;
use resource::SharedResource;
use tidegate_share::{FIRST_TOKENS, Lease, LeaseTimes};

/// What the schedulers tell the member.
#[derive(Debug)]
#[cfg_attr(not(any(unix, feature = "redis")), allow(dead_code, reason = "nobody receives them"))]
enum Command {
    /// An event of the limit of this name.
    Event(Arc<str>, SharedResource, ShareEvent),
    /// The process exits. The sender is dropped when all slots were returned.
    Exit(std::sync::mpsc::Sender<()>),
}

/// The members of this process, with the process that started them. A forked child has none of its
/// parent's threads.
static MEMBERS: Mutex<Vec<(u32, mpsc::WeakUnboundedSender<Command>)>> = Mutex::new(Vec::new());
/// Maximum time to wait for [`MEMBERS`], which another thread may have locked when the process was
/// forked.
const LOCKED_WITHIN: Duration = Duration::from_millis(100);
/// Maximum time to return the slots when the process exits.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the slots of all shared limits of this process to their stores, and waits for at most
/// 0.5 s until this is done.
///
/// Call this function when a program ends that shares limits over Redis. Otherwise its slots are
/// free only after 8 s. Do not make calls afterwards. The Python and Node packages and the command
/// line call it. A local broker notices by itself that a process has ended; if it runs in this
/// process, it removes its files.
///
/// Blocks the thread.
pub fn return_shared_slots() {
    let (exiting, done) = std::sync::mpsc::channel();
    let members = MEMBERS.try_lock_for(LOCKED_WITHIN).map(|mut members| std::mem::take(&mut *members));
    for (process, member) in members.unwrap_or_default() {
        if process == std::process::id()
            && let Some(commands) = member.upgrade()
        {
            let _ = commands.send(Command::Exit(exiting.clone()));
        }
    }
    drop(exiting);
    // Ends with an error when all senders are dropped.
    let _ = done.recv_timeout(EXIT_TIMEOUT);
}

/// The shared limits of a gate.
pub(crate) struct Share {
    /// Whether a process that has lost the store makes no calls.
    strict: bool,
    times: LeaseTimes,
    /// Where the member gets its commands.
    commands: mpsc::UnboundedSender<Command>,
    /// Starts the thread of the member. `None` after it was started.
    start: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Share {
    /// Creates the shared limits of a gate. Returns `None` if the configuration shares none.
    ///
    /// # Errors
    /// `Config` if a target or tool with a shared cap refuses calls instead of queueing them,
    /// because each process gets its slots on demand, which takes a moment. Also if the store
    /// cannot be used on this system or with this build, and if the password of the store is
    /// missing.
    pub(crate) fn new(config: &Config) -> Result<Option<Arc<Self>>, Error> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let share = &config.share;
        let (times, start): (_, Box<dyn FnOnce() + Send>) = match &share.store {
            ShareStore::Off => return Ok(None),
            ShareStore::Auto => {
                #[cfg(target_os = "linux")]
                unshared::report_neighbours(config);
                return Ok(None);
            }
            ShareStore::Local => {
                if cfg!(not(unix)) {
                    let problem = "share: `store = \"local\"` needs a Unix system; use a Redis server as the store, or divide the caps among the processes";
                    return Err(Error::config(problem));
                }
                let name = share.name.clone();
                (LeaseTimes::LOCAL, Box::new(move || local::Member::start(&name, receiver)))
            }
            #[cfg(feature = "redis")]
            ShareStore::Redis(url) => {
                let member = redis::Member::new(share, url, receiver)?;
                (LeaseTimes::REMOTE, Box::new(move || member.start()))
            }
            #[cfg(not(feature = "redis"))]
            ShareStore::Redis(_) => {
                let problem = "share: this build has no support for Redis; build tidegate with the feature `redis`, or use `store = \"local\"`";
                return Err(Error::config(problem));
            }
        };
        if let Some(name) = config.unshareable() {
            let problem = "a shared limit cannot be combined with `on_full = \"refuse\"`, because a process asks for its part while a call waits: set `wait = \"100ms\"` instead";
            return Err(Error::config(problem).at(&name.into()));
        }
        Ok(Some(Arc::new(Self { strict: share.strict, times, commands, start: Mutex::new(Some(start)) })))
    }

    /// Shares the limit of a target or tool, which is at most `cap`. `resource` is its name among
    /// all processes.
    pub(crate) fn add(self: &Arc<Self>, resource: String, cap: usize, admission: &Arc<Admission>) {
        let link = |kind| {
            let name = match kind {
                LeaseKind::Slots => resource.clone(),
                LeaseKind::FirstTokens => format!("{FIRST_TOKENS}{resource}"),
            };
            self.link(name, SharedResource::Calls(kind, Arc::downgrade(admission)))
        };
        admission.share(|| Lease::new(cap, self.strict, self.times), link);
    }

    /// Shares the requests and tokens per time of `budgets`. `owner` is their name among all
    /// processes.
    pub(crate) fn add_rates(self: &Arc<Self>, owner: &str, budgets: &Arc<BudgetSet>) {
        let (share, owner, shared) = (self.clone(), owner.to_owned(), Arc::downgrade(budgets));
        budgets.share(self.strict, self.times, move |set, limits| {
            share.link(format!("rates:{owner}:{limits}"), SharedResource::Rates(shared.clone(), set))
        });
    }

    /// Tells other processes where calls of a pool are sent. `resource` is the name of the pool
    /// among all processes.
    pub(crate) fn add_pool(self: &Arc<Self>, resource: String, admission: &Arc<Admission>) {
        admission.share_pool(self.link(resource, SharedResource::Replicas(Arc::downgrade(admission))));
    }

    /// Connects a limit to the member. `resource` is its name among all processes.
    fn link(self: &Arc<Self>, resource: String, limit: SharedResource) -> ShareLink {
        let (share, resource) = (self.clone(), Arc::<str>::from(resource));
        ShareLink::new(move |event| share.send(Command::Event(resource.clone(), limit.clone(), event)))
    }

    /// Sends a command to the member, and starts its thread at the first one.
    fn send(&self, command: Command) {
        // Without a thread, the commands are dropped, and the lease ends.
        let _ = self.commands.send(command);
        if let Some(start) = self.start.lock().take() {
            if let Some(mut members) = MEMBERS.try_lock_for(LOCKED_WITHIN) {
                members.retain(|(_, member)| member.strong_count() > 0);
                members.push((std::process::id(), self.commands.downgrade()));
            }
            start();
        }
    }
}

/// Runs a member on a thread of its own, with a runtime that does not stall with the application's.
#[cfg(any(unix, feature = "redis"))]
fn start_thread<F: Future>(member: impl FnOnce() -> F + Send + 'static) {
    let started = std::thread::Builder::new().name("tidegate-share".to_owned()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                // What the member returns is dropped after its tasks.
                let _last = LocalSet::new().block_on(&runtime, member());
            }
            Err(error) => tracing::warn!(%error, "limits are not shared: no runtime can be started"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "limits are not shared: no thread can be started");
    }
}
