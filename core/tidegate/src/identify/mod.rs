//! Finds the target of a request, and creates the [`Call`] that the layers of the client use.

mod registry;
mod request_credential;
mod target_name;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Uri};
use registry::Registry;
use tokio::time::Instant;

use crate::admission::TaskSlots;
use crate::body::RequestBody;
use crate::call::{Call, Identity};
use crate::clock;
use crate::config::{Config, Mode};
use crate::context::{Context, TaskId, Timeouts, truncate_name};
use crate::error::{Error, ErrorKind, Reason};
use crate::metrics::{DEFAULT_TENANT, Metrics};
use crate::placement::Affinity;
use crate::share::Share;
use crate::target::Target;
use crate::transport::Transport;
use tidegate_protocol::request::{RequestFacts, affinity};

/// Finds the targets of requests and creates the calls to them, for all requests of one gate.
pub(crate) struct Identify {
    mode: Mode,
    registry: Registry,
    default_tenant: Arc<str>,
    /// `true` once the gate drains. New calls are then rejected.
    draining: AtomicBool,
    /// The model slots that each task holds. `None` if no tools are configured, because only tools
    /// need them.
    task_slots: Option<Arc<TaskSlots>>,
}

impl Identify {
    /// Creates the targets of `config`, whose own requests are sent over `transport`.
    ///
    /// # Errors
    /// `Config` if the URLs of the targets conflict, if a `key_env` has no usable key, or if this
    /// build has no pools.
    pub(crate) fn new(
        mode: Mode,
        config: &Config,
        metrics: Arc<Metrics>,
        task_slots: Option<Arc<TaskSlots>>,
        transport: &Transport,
        share: Option<Arc<Share>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            mode,
            registry: Registry::new(config, metrics, transport, mode == Mode::Enforce, share)?,
            default_tenant: DEFAULT_TENANT.into(),
            draining: AtomicBool::new(false),
            task_slots,
        })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the name of the configured target for requests to this URL and model. `None` if no
    /// configured target matches.
    pub(crate) fn configured(&self, url: &Uri, model: Option<&str>) -> Option<Arc<str>> {
        self.registry.configured(url, model).map(|target| target.name().clone())
    }

    /// Returns all targets: the configured ones, and those created for other requests.
    pub(crate) fn targets(&self) -> Vec<Arc<Target>> {
        self.registry.all()
    }

    /// Makes the gate reject new calls from now on, because it drains.
    pub(crate) fn close(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Returns `Ok` if the gate accepts new calls.
    ///
    /// # Errors
    /// `Refused` with the reason `Draining` if the gate drains.
    pub(crate) fn check_accepting(&self) -> Result<(), Error> {
        if !self.draining.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Refused(Reason::Draining), "the gate is draining and accepts no new calls"))
    }

    /// Creates the [`Call`] of a request and puts it into the request's extensions.
    ///
    /// # Errors
    /// `Refused` if the gate drains.
    pub(crate) fn identify(&self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        self.check_accepting()?;
        let body = request.body().bytes().map(|bytes| &bytes[..]);
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), body);
        let (target, key) = self.registry.target(request.uri(), request.headers(), &facts);
        let context = request.extensions_mut().remove::<Context>().unwrap_or_default();
        let timeouts = request.extensions_mut().remove::<Timeouts>().unwrap_or_default();
        let affinity = target.config().pool.as_ref().map(|pool| {
            let body = request.body().bytes().filter(|_| pool.affinity).map(|bytes| &bytes[..]);
            affinity(&facts, request.headers(), body, pool.session.as_ref())
        });
        request.extensions_mut().insert(self.call((target, key), facts, &context, timeouts, affinity));
        Ok(())
    }

    pub(crate) fn has_pools(&self) -> bool {
        self.registry.has_pools()
    }

    /// Replaces the URL of a request to a pool with the address of one of its replicas, in
    /// rotation. Requests to other targets are not changed. Used in mode `off`.
    ///
    /// If the replicas have not been discovered yet, waits for the discovery until the deadline of
    /// the call.
    ///
    /// # Errors
    ///
    /// `Refused` if the pool has no replica and is not discovered by DNS. `Request` if the URL
    /// cannot be moved to the replica.
    pub(crate) async fn route_in_turn(&self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        if !self.has_pools() {
            return Ok(());
        }
        let body = request.body().bytes().map(|bytes| &bytes[..]);
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), body);
        let target = self.registry.configured(request.uri(), facts.model.as_deref());
        let Some((target, pool)) = target.and_then(|target| Some((target, target.pool()?))) else {
            return Ok(());
        };
        let deadline = request.extensions().get::<Context>().and_then(|context| context.deadline);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let longest = target.config().deadline;
        pool.route_in_turn(request, left.map_or(longest, |left| left.min(longest))).await
    }

    /// Returns the configured target with this name.
    ///
    /// # Errors
    /// `Unknown` if there is none.
    pub(crate) fn named(&self, target: &str) -> Result<Arc<Target>, Error> {
        self.registry.named(target)
    }

    /// Creates a call that starts now. `cooldown_key` is as for [`Identity::cooldown_key`].
    pub(crate) fn call(
        &self,
        (target, cooldown_key): (Arc<Target>, Option<u64>),
        facts: RequestFacts,
        context: &Context,
        timeouts: Timeouts,
        affinity: Option<Affinity>,
    ) -> Call {
        let identity = Identity {
            mode: self.mode,
            target,
            cooldown_key,
            facts,
            tenant: self.tenant(context),
            lane: context.lane,
            timeouts,
            deadline: context.deadline.map(Instant::into_std),
            label: context.call.as_ref().map(truncate_name),
            task_slots: self.task_slots.clone().zip(task_of(context)),
            affinity,
            group: context.group.clone(),
            max_attempts: context.max_attempts,
        };
        Call::new(identity, clock::now())
    }

    /// Returns the tenant of a context, with its name truncated, or the default tenant if the
    /// context names none.
    pub(crate) fn tenant(&self, context: &Context) -> Arc<str> {
        let named = context.tenant.as_ref().filter(|name| !name.is_empty());
        named.map_or_else(|| self.default_tenant.clone(), truncate_name)
    }
}

/// Returns the task of a context or, if the context names none, the current tokio task. `None` if
/// there is neither.
pub(crate) fn task_of(context: &Context) -> Option<TaskId> {
    context.task.or_else(TaskId::current)
}
