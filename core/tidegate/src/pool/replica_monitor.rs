//! The background task that discovers a pool's replicas and polls their health, load and models.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::check::{self, ReplicaCheck};
use super::dns::{Resolve, System};
use super::poll_task::{Activity, PollTask};
use super::poller::Poller;
use super::source::{Lookup, Source};
use crate::admission::Admission;
use crate::clock::now;
use crate::config::{self, PoolConfig};
use crate::credential::Credential;
use crate::duration;
use crate::error::Error;
use crate::placement::{Observation, ReplicaId};
use crate::transport::Transport;

/// Maximum time between two checks whether polls are due: 100 ms. The task must check regularly,
/// because a call can make a poll due without waking the task.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Discovers and polls the replicas of one pool in a background task, while calls are made.
pub(super) struct ReplicaMonitor {
    shared: Arc<Shared>,
    task: PollTask,
}

/// The state that the monitor shares with its task.
struct Shared {
    admission: Weak<Admission>,
    poller: Arc<Poller>,
    /// Whether health probes are sent.
    has_probes: bool,
    /// Where the replicas are looked up (DNS or a file). `None` if they are listed in the
    /// configuration or set by the program.
    source: Option<Arc<Source>>,
    /// `true` once the first DNS lookup has finished, successfully or not. Always `true` if the
    /// replicas are not discovered by DNS.
    first_lookup_done: watch::Sender<bool>,
}

impl ReplicaMonitor {
    /// Creates the monitor of the pool that `admission` admits calls to. If the replicas are listed
    /// in a file, reads the file immediately.
    ///
    /// `acting` is `true` if the mode is `enforce`. In other modes, an unusable key in the variable
    /// `key_env` is not an error: it is logged, and models are polled without a key.
    ///
    /// # Errors
    /// `Config` if `acting` is `true` and the environment variable named by `key_env` has no usable
    /// key.
    pub(super) fn new(
        admission: &Arc<Admission>,
        pool: &PoolConfig,
        transport: Transport,
        acting: bool,
    ) -> Result<Self, Error> {
        let key = match key(admission.name(), pool) {
            Err(problem) if !acting => {
                tracing::warn!(%problem, "the models of the replicas are not polled");
                None
            }
            key => key?,
        };
        Ok(Self::resolving(admission, pool, transport, key, Arc::new(System)))
    }

    /// Creates the monitor. `key` is the `authorization` header for polls of models, or `None` to
    /// send none. `resolve` looks up host names.
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
            poller: Arc::new(Poller { transport, health: pool.health.clone(), key }),
            has_probes: pool.health.is_some(),
            source,
            first_lookup_done: watch::Sender::new(!matches!(pool.source, config::ReplicaSource::Dns { .. })),
        };
        Self { shared: Arc::new(shared), task: PollTask::default() }
    }

    /// Records that a call has arrived, and starts the task if it is not running. See
    /// [`PollTask::on_call`].
    pub(super) fn on_call(&self) {
        self.task.on_call(|activity| run(self.shared.clone(), activity));
    }

    /// Waits until the first DNS lookup of the replicas has finished, at most `max_wait`. Returns
    /// immediately if the replicas are not discovered by DNS.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub(super) async fn first_lookup(&self, max_wait: Duration) {
        let mut first_lookup_done = self.shared.first_lookup_done.subscribe();
        let known = *first_lookup_done.borrow_and_update();
        if !known {
            let _ =
                timeout(max_wait, first_lookup_done.wait_for(|first_lookup_done| *first_lookup_done)).await;
        }
    }

    /// Looks up the replicas that `admission` admits calls to if they are looked up, and asks each
    /// for its health and its models.
    pub(super) async fn check(&self, admission: &Arc<Admission>) -> Vec<ReplicaCheck> {
        if let Some(source) = &self.shared.source {
            source.apply(admission, source.look_up().await);
        }
        check::check(&self.shared.poller, admission.replicas(), self.shared.has_probes).await
    }

    /// Returns why the latest lookup of the replicas failed. `None` if it succeeded, or if replicas
    /// are not looked up. After a failure, the replicas known before remain in use.
    pub(super) fn problem(&self) -> Option<String> {
        self.shared.source.as_ref()?.problem()
    }
}

/// The result of one unit of work: a poll of a replica, or a lookup of the replicas.
enum TaskResult {
    Polled(ReplicaId, Option<Observation>),
    LookedUp(Lookup),
}

/// Runs the task: starts the polls and lookups that are due, and applies their results. Returns
/// when no calls are made any more, or when the gate is dropped.
async fn run(shared: Arc<Shared>, mut activity: Activity) {
    let mut in_progress: JoinSet<TaskResult> = JoinSet::new();
    let mut next_lookup = shared.source.is_some().then(now);
    let mut lookup: Option<AbortHandle> = None;
    loop {
        let Some(admission) = shared.admission.upgrade() else { return };
        let now = now();
        if !activity.continues(admission.is_busy()) {
            // Polls in flight are dropped.
            return;
        }
        let poll_requests = admission.poll_requests();
        drop(admission);
        for poll_request in poll_requests.due {
            let shared = shared.clone();
            in_progress.spawn(async move {
                TaskResult::Polled(poll_request.to, shared.poller.poll(&poll_request).await)
            });
        }
        let is_looking_up = lookup.as_ref().is_some_and(|lookup| !lookup.is_finished());
        if let Some(source) =
            shared.source.as_ref().filter(|_| !is_looking_up && next_lookup.is_some_and(|at| at <= now))
        {
            // Scheduled now, so that the next lookup happens even if this one panics.
            next_lookup = Some(duration::after(now, source.interval));
            let source = source.clone();
            lookup = Some(in_progress.spawn(async move { TaskResult::LookedUp(source.look_up().await) }));
        }
        let next = next_lookup.filter(|at| *at > now);
        let wake =
            [poll_requests.next, next].into_iter().flatten().fold(now + MAX_CHECK_INTERVAL, Instant::min);
        tokio::select! {
            biased;
            Some(result) = in_progress.join_next() => {
                match result {
                    Ok(result) => shared.apply(result, &mut next_lookup),
                    // The lookup panicked. Calls must not wait for it.
                    Err(_) => drop(shared.first_lookup_done.send_replace(true)),
                }
            }
            () = sleep_until(wake.into()) => {}
        }
    }
}

impl Shared {
    /// Passes the result of a poll or a lookup to the gate. After a lookup, sets `next_lookup` to
    /// the time of the next one. Does nothing if the gate was dropped.
    fn apply(&self, result: TaskResult, next_lookup: &mut Option<Instant>) {
        let Some(admission) = self.admission.upgrade() else { return };
        match result {
            TaskResult::Polled(replica, Some(observation)) => {
                self.warn_if_denied(&admission, replica, &observation);
                admission.observe(replica, observation);
            }
            TaskResult::LookedUp(lookup) => {
                if let Some(source) = &self.source {
                    *next_lookup = Some(duration::after(now(), source.interval));
                    source.apply(&admission, lookup);
                    self.first_lookup_done.send_replace(true);
                }
            }
            TaskResult::Polled(_, None) => {}
        }
    }

    /// Logs that a replica does not show its models without another key, unless its last answer
    /// said so too.
    fn warn_if_denied(&self, admission: &Admission, replica: ReplicaId, observation: &Observation) {
        let Observation::ModelsUnreadable(status @ (401 | 403)) = observation else { return };
        let replicas = admission.replicas();
        let Some(replica) = replicas.iter().find(|known| known.id == replica) else { return };
        if replica.models_status != Some(*status) {
            let (replica, problem) = (&replica.url, self.poller.models_problem(*status));
            tracing::warn!(target = %admission.name(), %replica, %problem, "the models of the replica are not known");
        }
    }
}

/// Returns the value of the `authorization` header for polls of `/v1/models`. `None` if no
/// `key_env` is configured.
///
/// # Errors
/// `Config` if the environment variable named by `key_env` has no usable key.
fn key(name: &str, pool: &PoolConfig) -> Result<Option<HeaderValue>, Error> {
    let Some(variable) = &pool.key_env else { return Ok(None) };
    let key = Credential::from_env(variable).map_err(|what| {
        Error::config(format!("targets.{name}.pool.key_env: {variable} {what}; set it, or remove key_env"))
    })?;
    Ok(key.bearer())
}
