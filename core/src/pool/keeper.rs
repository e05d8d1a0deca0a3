//! The task that keeps a pool.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::ask::Asker;
use super::dns::{Resolve, System};
use super::source::{Look, Source};
use crate::admission::Admission;
use crate::clock::now;
use crate::config::{self, PoolConfig};
use crate::credential::Credential;
use crate::duration;
use crate::error::Error;
use crate::placement::{Observation, ReplicaId};
use crate::transport::Transport;

/// For how long it goes on after the last call.
const LINGER: Duration = Duration::from_secs(10);
/// So often it asks what there is to ask, at least: what calls meet may be a reason, and does not wake it.
const PACE: Duration = Duration::from_millis(100);

/// There is no task.
const STOPPED: u8 = 0;
/// There is one, and no call has come since it looked last.
const QUIET: u8 = 1;
/// There is one, and a call has.
const CALLED: u8 = 2;

/// Keeps one pool, for as long as calls come. Dropping it ends the task.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    task: Mutex<Option<AbortHandle>>,
}

struct Shared {
    admission: Weak<Admission>,
    asker: Asker,
    source: Option<Arc<Source>>,
    state: AtomicU8,
    /// Whether it is known what a first look tells, be it nothing.
    looked: watch::Sender<bool>,
}

impl Keeper {
    /// Of a pool whose door is `admission`. Reads the file that names its replicas, where one does. `acting`: whether the gate acts on calls; one that does not opens whatever
    /// is missing.
    ///
    /// # Errors
    /// `Config`, where `key_env` names no usable key.
    pub(crate) fn new(
        admission: &Arc<Admission>,
        pool: &PoolConfig,
        transport: Transport,
        acting: bool,
    ) -> Result<Self, Error> {
        let key = match key(admission.name(), pool) {
            Err(problem) if !acting => {
                tracing::warn!(%problem, "what its replicas serve is not asked");
                None
            }
            key => key?,
        };
        Ok(Self::resolving(admission, pool, transport, key, Arc::new(System)))
    }

    pub(super) fn resolving(
        admission: &Arc<Admission>,
        pool: &PoolConfig,
        transport: Transport,
        key: Option<HeaderValue>,
        resolve: Arc<dyn Resolve>,
    ) -> Self {
        let name = admission.name();
        let source = Source::of(name, &pool.source, resolve).map(Arc::new);
        if let Some(source) = &source {
            source.open(admission);
        }
        let shared = Shared {
            admission: Arc::downgrade(admission),
            asker: Asker { transport, health: pool.health.clone(), key },
            source,
            state: AtomicU8::new(STOPPED),
            looked: watch::Sender::new(!matches!(pool.source, config::ReplicaSource::Dns { .. })),
        };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// A call comes. Costs one load where others came just before. Without a runtime around it nothing is kept: then no call can be made either.
    pub(crate) fn called(&self) {
        let state = &self.shared.state;
        let turn = |from| state.compare_exchange(from, CALLED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if state.load(Ordering::Acquire) == CALLED || turn(QUIET) {
            return;
        }
        if let Ok(runtime) = Handle::try_current()
            && turn(STOPPED)
        {
            let task = runtime.spawn(run(Running(Some(self.shared.clone()))));
            *self.task.lock() = Some(task.abort_handle());
        }
    }

    /// Until it was looked once which replicas there are, or for so long. At once where nobody has to.
    ///
    /// *Cancellation safety*: nothing is lost.
    pub(crate) async fn looked(&self, longest: Duration) {
        let mut looked = self.shared.looked.subscribe();
        let known = *looked.borrow_and_update();
        if !known {
            let _ = timeout(longest, looked.wait_for(|looked| *looked)).await;
        }
    }

    /// Why it is not known now which replicas there are. What was known before holds.
    pub(crate) fn problem(&self) -> Option<String> {
        self.shared.source.as_ref()?.problem()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}

/// The running task. A runtime that shuts down drops it; then the next call starts it where that is made.
struct Running(Option<Arc<Shared>>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.state.store(STOPPED, Ordering::Release);
        }
    }
}

/// What comes of what was asked for.
enum News {
    Saw(ReplicaId, Option<Observation>),
    Looked(Look),
}

async fn run(mut running: Running) {
    let Some(shared) = running.0.clone() else { return };
    let mut under_way: JoinSet<News> = JoinSet::new();
    let mut next_look = shared.source.is_some().then(now);
    let mut look: Option<AbortHandle> = None;
    let mut last_busy = now();
    loop {
        let Some(admission) = shared.admission.upgrade() else { return };
        let now = now();
        if shared.state.swap(QUIET, Ordering::AcqRel) == CALLED || admission.is_busy() {
            last_busy = now;
        } else if now >= last_busy + LINGER
            && shared.state.compare_exchange(QUIET, STOPPED, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            // From here on the next call starts another. What was asked for meanwhile is not waited for.
            running.0 = None;
            return;
        }
        let poll_requests = admission.poll_requests();
        drop(admission);
        for poll_request in poll_requests.due {
            let shared = shared.clone();
            under_way.spawn(async move { News::Saw(poll_request.to, shared.asker.ask(&poll_request).await) });
        }
        let looks = look.as_ref().is_some_and(|look| !look.is_finished());
        if let Some(source) =
            shared.source.as_ref().filter(|_| !looks && next_look.is_some_and(|at| at <= now))
        {
            // The next comes, whatever becomes of this one.
            next_look = Some(duration::after(now, source.every()));
            let source = source.clone();
            look = Some(under_way.spawn(async move { News::Looked(source.look().await) }));
        }
        let next = next_look.filter(|at| *at > now);
        let wake = [poll_requests.next, next].into_iter().flatten().fold(now + PACE, Instant::min);
        tokio::select! {
            biased;
            Some(news) = under_way.join_next() => {
                match news {
                    Ok(news) => shared.hear(news, &mut next_look),
                    // It told nothing, and nobody is to wait for it.
                    Err(_) => drop(shared.looked.send_replace(true)),
                }
            }
            () = sleep_until(wake.into()) => {}
        }
    }
}

impl Shared {
    fn hear(&self, news: News, next_look: &mut Option<Instant>) {
        let Some(admission) = self.admission.upgrade() else { return };
        match news {
            News::Saw(replica, Some(observation)) => admission.observe(replica, observation),
            News::Looked(look) => {
                if let Some(source) = &self.source {
                    *next_look = Some(duration::after(now(), source.every()));
                    source.take(&admission, look);
                    self.looked.send_replace(true);
                }
            }
            News::Saw(_, None) => {}
        }
    }
}

/// What `/v1/models` is asked with.
fn key(name: &str, pool: &PoolConfig) -> Result<Option<HeaderValue>, Error> {
    let Some(variable) = &pool.key_env else { return Ok(None) };
    let key = Credential::in_environment(variable).map_err(|what| {
        Error::config(format!("targets.{name}.pool.key_env: {variable} {what}; set it, or leave key_env out"))
    })?;
    Ok(key.bearer())
}
