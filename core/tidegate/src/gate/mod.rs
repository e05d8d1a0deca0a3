//! The gate: the object that a process shares, which owns all targets and tools.

mod builder;
pub(crate) mod mode;

use std::future::Future;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};

pub use builder::GateBuilder;

use crate::active_calls::Active;
use crate::body::RequestBody;
use crate::call::Call;
use crate::client::Client;
use crate::clock;
use crate::config::{self, Config, ConfigError, Mode, Replica, ReplicaConfig, ReplicaSource};
use crate::config_file;
use crate::context::{Context, Timeouts};
use crate::error::Error;
use crate::explain::{CallName, Explanation, Subject};
use crate::framing;
use crate::identify::Identify;
use crate::layers::fallback::FallbackRoutes;
use crate::layers::observe::CallLog;
use crate::metrics::Metrics;
#[cfg(feature = "pool")]
use crate::pool::PoolCheck;
use crate::share::Share;
use crate::slot::Slot;
use crate::snapshot::{Snapshot, TargetSnapshot};
use crate::tool::{PendingToolPermit, ToolPermit, ToolWait, Tools};
use crate::transport::{Http, Transport};
use tidegate_protocol::request::RequestFacts;
use tidegate_protocol::url_check;

/// The targets and tools of a process, and the limits on the calls to them.
///
/// Create one gate in each process, because limits hold across all calls of one gate. Clones are
/// cheap and refer to the same gate.
///
/// ```no_run
/// # async fn run() -> Result<(), tidegate::Error> {
/// use tidegate::{Gate, config::Target};
///
/// let gate = Gate::builder().target(Target::new("openai").cap(64)).tool("db", 8).build()?;
/// let request = http::Request::post("https://api.openai.com/v1/chat/completions")
///     .body(r#"{"model": "gpt-4o"}"#.into());
/// # let request = request.unwrap();
/// let response = gate.client().call(request).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    identify: Arc<Identify>,
    client: Client,
    tools: Arc<Tools>,
    metrics: Arc<Metrics>,
    log: Arc<CallLog>,
    active: Arc<Active>,
}

impl Gate {
    /// Creates a gate with this configuration and the built-in transport.
    ///
    /// The environment variable `TIDEGATE` (`on`, `observe` or `off`) overrides the mode. Proxy
    /// variables are read once, when the gate is created
    /// ([`transport::proxy`](crate::transport::proxy)). To set proxies in code, use
    /// [`Http::with_proxies`] and [`Gate::over`].
    ///
    /// # Errors
    ///
    /// `Config` if the TLS roots or a proxy variable cannot be read, if `TIDEGATE` has an unknown
    /// value, or if the variable of a `key_env` has no usable key.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(Http::new(config.transport.clone())?);
        Self::over(config, transport)
    }

    /// Creates a gate with this configuration that sends requests over `transport` instead of the
    /// built-in transport.
    ///
    /// A transport is made from a tower service. Use [`crate::transport::Foreign`] for a transport
    /// that does not run on tokio.
    ///
    /// # Errors
    ///
    /// As for [`Gate::new`], except that TLS roots and proxy variables are not read.
    pub fn over(config: Config, transport: Transport) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new()?);
        let (log, active) = (Arc::<CallLog>::default(), Arc::<Active>::default());
        let mode = mode::from_env()?.unwrap_or(config.mode);
        // Before the targets, because each target creates its series with each tool.
        let share = if mode == Mode::Enforce { Share::new(&config)? } else { None };
        let tools = Arc::new(Tools::new(&config.tools, &metrics, share.as_ref()));
        let task_slots = tools.task_slots().cloned();
        let identify =
            Arc::new(Identify::new(mode, &config, metrics.clone(), task_slots, &transport, share)?);
        let routes = Arc::new(FallbackRoutes::new(&config, &identify)?);
        let client = Client::new(identify.clone(), routes, transport, log.clone(), active.clone());
        Ok(Self(Arc::new(Inner { identify, client, tools, metrics, log, active })))
    }

    /// Creates a gate that is configured by a TOML file.
    ///
    /// # Errors
    ///
    /// `Config` if the file cannot be read or is invalid. The error names each invalid key and the
    /// nearest valid key. Otherwise as for [`Gate::new`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(config_file::read(path)?)
    }

    /// Returns a builder that configures a gate in code.
    pub fn builder() -> GateBuilder {
        GateBuilder::new(Config::builder())
    }

    /// Returns a client that sends calls through this gate. Clients are cheap to create and to
    /// clone.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Returns the current mode: the one that the environment variable `TIDEGATE` set, or otherwise
    /// the configured mode.
    pub fn mode(&self) -> Mode {
        self.0.identify.mode()
    }

    /// Returns `true` if requests may be sent without the gate: the mode is `off` and no target is
    /// a pool. Requests to a pool need the gate in every mode, because it replaces the name of the
    /// pool by the address of a replica.
    pub fn is_bypassed(&self) -> bool {
        self.mode() == Mode::Off && !self.0.identify.has_pools()
    }

    /// Waits for a slot of a tool. Dropping the permit releases the slot.
    ///
    /// If the task holds a model slot while it waits (a response that is still streaming, or a
    /// [`Slot`]), a warning is logged through `tracing`, once for each place in the code that calls
    /// this function. The task is the one that `context` names, or otherwise the current tokio
    /// task.
    ///
    /// ```no_run
    /// # async fn run(gate: tidegate::Gate) -> Result<(), tidegate::Error> {
    /// let permit = gate.acquire_tool("db", &tidegate::Context::default()).await?;
    /// // Use the tool here.
    /// drop(permit);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the wait from the queue.
    ///
    /// # Errors
    ///
    /// `Unknown` if the tool is not configured. `Refused` for the same reasons as calls, and if the
    /// wait could never end (a deadlock).
    #[track_caller]
    pub fn acquire_tool<'a>(
        &'a self,
        name: &'a str,
        context: &'a Context,
    ) -> impl Future<Output = Result<ToolPermit, Error>> + Send + 'a {
        self.acquire_tool_at(Location::caller(), name, context, false)
    }

    /// Waits for a slot of a tool, and meanwhile reads this task's streaming responses into memory,
    /// so that their model slots are released early.
    ///
    /// While the task waits for the tool and holds it, up to 1 MiB and one chunk of each response
    /// is buffered. A model slot is released when the provider has sent the end of the response.
    /// The reader then gets the same bytes. No generation is ended early. A longer response keeps
    /// its slot, and so does a [`Slot`]. Otherwise as [`Gate::acquire_tool`].
    ///
    /// # Cancel safety and errors
    ///
    /// As for [`Gate::acquire_tool`].
    #[track_caller]
    pub fn acquire_tool_yielding<'a>(
        &'a self,
        name: &'a str,
        context: &'a Context,
    ) -> impl Future<Output = Result<ToolPermit, Error>> + Send + 'a {
        self.acquire_tool_at(Location::caller(), name, context, true)
    }

    /// Waits for a slot of a tool as [`Gate::acquire_tool`] does, or as
    /// [`Gate::acquire_tool_yielding`] does if `yield_slot` is `true`. `site` is the location in
    /// the caller's code that a warning names.
    async fn acquire_tool_at(
        &self,
        site: &'static Location<'static>,
        name: &str,
        context: &Context,
        yield_slot: bool,
    ) -> Result<ToolPermit, Error> {
        let pending = self.ask_tool(name, context, yield_slot)?;
        if let Some(held) = pending.while_holding() {
            self.0.tools.warn_once(site, held);
        }
        pending.granted().await
    }

    /// Acquires a free slot of a tool or queues for one, without waiting. Await
    /// [`PendingToolPermit::granted`] to get the slot. This is the first half of
    /// [`Gate::acquire_tool`], for callers that log their own warnings.
    ///
    /// If `yield_slot` is `true`, the streaming responses of the task are read into memory, as by
    /// [`Gate::acquire_tool_yielding`].
    ///
    /// # Errors
    ///
    /// As for [`Gate::acquire_tool`].
    pub fn ask_tool(
        &self,
        name: &str,
        context: &Context,
        yield_slot: bool,
    ) -> Result<PendingToolPermit, Error> {
        self.0.identify.check_accepting()?;
        self.0.tools.ask(name, self.0.identify.tenant(context), context, self.mode(), yield_slot)
    }

    /// Waits for a slot of a configured target, for a call that is not sent through [`Client`].
    /// Dropping the slot releases it.
    ///
    /// The slot counts toward the same limits, queue and metrics as other calls to the target. The
    /// wait is limited by the target's `wait` setting and by the deadline of the context or target.
    /// In mode `observe` the function never waits. In mode `off` the returned slot holds nothing.
    /// Do not hold a slot around a call through [`Client`], because that call acquires its own
    /// slot.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the wait from the queue.
    ///
    /// # Errors
    ///
    /// `Unknown` if the target is not configured. `Refused` for the same reasons as calls.
    pub async fn acquire_slot(&self, target: &str, context: &Context) -> Result<Slot, Error> {
        let target = self.0.identify.named(target)?;
        if self.mode() == Mode::Off {
            return Ok(Slot::empty());
        }
        self.0.identify.check_accepting()?;
        let call =
            self.0.identify.call((target, None), RequestFacts::unknown(), context, Timeouts::default(), None);
        Slot::acquire(call, self.0.log.clone(), &self.0.active).await
    }

    /// Asks each replica of each pool for its health (`pool.health`) and its models
    /// (`/v1/models`), over the gate's own transport. Looks up the replicas first if they are not
    /// listed. A replica without an answer takes at most 2 s, and all are asked at the same time.
    ///
    /// Has no effect on which replicas get calls.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the requests.
    #[cfg(feature = "pool")]
    pub async fn check_replicas(&self) -> Vec<PoolCheck> {
        let mut checks = Vec::new();
        for target in self.0.identify.targets() {
            if let Some(pool) = target.pool() {
                checks.push(pool.check().await);
            }
        }
        checks
    }

    /// Returns the name of the configured target that receives requests to `url` for `model`.
    /// `model` is `None` if the request names no model.
    ///
    /// Returns `None` if no configured target matches. The gate then creates a target for each
    /// combination of origin, credential and model.
    ///
    /// # Errors
    ///
    /// `Request` if the path has a `.` or `..` segment or a backslash, because such a request is
    /// never sent.
    pub fn target_for(&self, url: &Uri, model: Option<&str>) -> Result<Option<Arc<str>>, Error> {
        url_check::check(url).map_err(framing::url_rejection)?;
        Ok(self.0.identify.configured(url, model))
    }

    /// Replaces the replicas of a pool. Each is a base URL or a [`Replica`] with more settings.
    ///
    /// New replicas are added. Known replicas stay, with their new weight. Replicas that are not in
    /// the list get no more calls, and are removed when their last call ends. With an empty list,
    /// calls wait until there are replicas again. The list replaces the configured one. This
    /// function may be called from any thread.
    ///
    /// # Errors
    ///
    /// `Unknown` if the target is not configured. `Config` if it is not a pool, if its replicas are
    /// discovered through DNS or a file, or if a replica is invalid. After an error, the replicas
    /// are unchanged.
    ///
    /// ```
    /// use tidegate::config::{Pool, Replica, Target};
    ///
    /// let llama = Target::new("llama").pool(Pool::dynamic());
    /// let gate = tidegate::Gate::builder().target(llama).build()?;
    /// let second = Replica::new("http://10.0.0.2:8000").weight(2.0);
    /// gate.set_replicas("llama", [Replica::new("http://10.0.0.1:8000"), second])?;
    /// assert_eq!(gate.snapshot().targets["llama"].replicas.len(), 2);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn set_replicas<R: Into<Replica>>(
        &self,
        target: &str,
        replicas: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        self.set_members(target, || Replica::parse_all(replicas.into_iter().map(Into::into)))
    }

    /// Replaces the replicas of a pool with a JSON list. Each element is a base URL, or an object
    /// with the keys that a replica has in the configuration file. Used by the bindings.
    ///
    /// # Errors
    ///
    /// As for [`Gate::set_replicas`].
    pub fn set_replicas_json(&self, target: &str, replicas: &serde_json::Value) -> Result<(), Error> {
        self.set_members(target, || config::replicas_from_json(replicas))
    }

    /// Sets the number of slots of a configured target to `cap`. An adaptive limit no longer
    /// changes the number afterwards.
    ///
    /// In a pool, `cap` bounds the slots of all replicas together, and each replica keeps its own
    /// limit. Lowering the cap ends no call: the number of slots falls as calls end.
    ///
    /// # Errors
    ///
    /// `Unknown` if the target is not configured. `Config` if `cap` is 0, because no call would be
    /// admitted.
    ///
    /// ```
    /// use tidegate::config::Target;
    ///
    /// let gate = tidegate::Gate::builder().target(Target::new("openai").cap(64)).build()?;
    /// gate.set_cap("openai", 16)?;
    /// assert_eq!(gate.snapshot().targets["openai"].limit, 16);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn set_cap(&self, target: &str, cap: usize) -> Result<(), Error> {
        let target = self.0.identify.named(target)?;
        if cap == 0 {
            return Err(Error::config("a cap of 0 admits no call: use 1 or more").at(target.name()));
        }
        target.admission().set_limit(cap);
        Ok(())
    }

    /// Replaces the replicas of a pool with those that `members` returns. Does not call `members`
    /// if the replicas cannot be set.
    ///
    /// # Errors
    ///
    /// As for [`Gate::set_replicas`].
    fn set_members(
        &self,
        target: &str,
        members: impl FnOnce() -> Result<Vec<ReplicaConfig>, ConfigError>,
    ) -> Result<(), Error> {
        let target = self.0.identify.named(target)?;
        let problem = match target.config().pool.as_ref().map(|pool| &pool.source) {
            Some(ReplicaSource::Listed(_) | ReplicaSource::Dynamic) => None,
            Some(ReplicaSource::Dns { .. }) => Some(
                "its replicas are discovered through DNS; remove `dns` from the configuration to set them here",
            ),
            Some(ReplicaSource::File { .. }) => Some(
                "its replicas are read from a file; remove `file` from the configuration to set them here",
            ),
            None => Some(
                "it is not a pool; add `pool = {}` to the target, so that the program can set its replicas",
            ),
        };
        if let Some(problem) = problem {
            return Err(Error::config(problem).at(target.name()));
        }
        target.admission().set_members(&members().map_err(|error| Error::from(error).at(target.name()))?);
        Ok(())
    }

    /// Returns the number of calls that currently wait for a slot of any target, or for the end of
    /// a cool-down. Waits for tools are not included.
    pub fn waiting(&self) -> usize {
        self.0.identify.targets().iter().map(|target| target.waiting()).sum()
    }

    /// Returns the current state of all targets and tools, including the targets that the gate has
    /// created for unconfigured models.
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let targets = self.0.identify.targets();
        Snapshot {
            mode: self.mode().as_str(),
            draining: self.0.identify.check_accepting().is_err(),
            active: self.0.active.count(),
            targets: targets
                .iter()
                .map(|target| (target.name().clone(), TargetSnapshot::from_target(target, now)))
                .collect(),
            tools: self.0.tools.snapshot(&targets, now),
        }
    }

    /// Returns all metrics in the Prometheus text format. The gauges are updated first.
    pub fn prometheus(&self) -> String {
        self.0.tools.update_gauges();
        let targets = self.0.identify.targets();
        let now = clock::now();
        self.0.metrics.text(targets.iter().map(|target| {
            (target.metrics(), target.view(), target.budgets(now), target.admission().replicas())
        }))
    }

    /// Returns the log of the last 1,024 calls that ended, with the timestamps of their attempts.
    /// Calls that run no model and waits for tools are not logged.
    pub fn calls(&self) -> &CallLog {
        &self.0.log
    }

    /// Returns the state of a call in progress and, if the call waits, the rule that keeps it
    /// waiting.
    ///
    /// `call` is the number or the label of a call, or of a wait for a tool. Returns `None` if no
    /// call in progress and no current wait for a tool has this number or label.
    pub fn explain<'a>(&self, call: impl Into<CallName<'a>>) -> Option<Explanation> {
        let named = |own: Option<&Arc<str>>, label: &str| own.is_some_and(|own| **own == *label);
        let subjects = match call.into() {
            CallName::Number(id) => match self.0.active.get(id) {
                Some(call) => vec![Subject::Call(call)],
                None => self.subjects(|_| false, |tool_wait| tool_wait.id == id),
            },
            CallName::Label(label) => self.subjects(
                |call| named(call.label(), label),
                |tool_wait| named(tool_wait.label.as_ref(), label),
            ),
        };
        self.explained(subjects, 1).pop()
    }

    /// Returns the explanations of at most `limit` of the calls in progress and waits for tools.
    /// Those that wait come before the others, and the oldest come first within both groups.
    pub fn explain_all(&self, limit: usize) -> Vec<Explanation> {
        self.explained(self.subjects(|_| true, |_| true), limit)
    }

    /// Returns the calls in progress for which the filter `calls` returns `true`, and the waits for
    /// tools for which the filter `tool_waits` returns `true`.
    fn subjects(
        &self,
        calls: impl Fn(&Call) -> bool,
        tool_waits: impl Fn(&ToolWait) -> bool,
    ) -> Vec<Subject> {
        let calls = self.0.active.filter(calls).into_iter().map(Subject::Call);
        let tool_waits = self.0.tools.tool_waits().into_iter().filter(|tool_wait| tool_waits(tool_wait));
        calls.chain(tool_waits.map(Subject::ToolWait)).collect()
    }

    /// Returns the explanations of the first `limit` subjects in the order of [`Subject::urgency`].
    fn explained(&self, mut subjects: Vec<Subject>, limit: usize) -> Vec<Explanation> {
        let now = clock::now();
        subjects.sort_by_cached_key(Subject::urgency);
        subjects.truncate(limit);
        let explain = |subject: &Subject| match subject {
            Subject::Call(call) => Explanation::from_call(call, now),
            Subject::ToolWait(wait) => Explanation::from_tool_wait(wait, self.0.tools.why(wait), now),
        };
        subjects.iter().map(explain).collect()
    }

    /// Rejects new calls from now on, and waits for at most `patience` until all calls in progress,
    /// including queued calls, have ended.
    ///
    /// After that time, the calls that are still queued are rejected, and calls in flight continue.
    /// Returns the number of calls still in progress, which is 0 if all have ended.
    ///
    /// ```no_run
    /// # async fn run(gate: tidegate::Gate) {
    /// let left = gate.drain(std::time::Duration::from_secs(30)).await;
    /// assert_eq!(left, 0, "all calls have ended");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait. The gate continues to reject new calls.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.0.identify.close();
        let _ = tokio::time::timeout(patience, self.0.active.wait_until_idle()).await;
        for target in self.0.identify.targets() {
            target.drain();
        }
        self.0.tools.drain();
        self.0.active.count()
    }

    /// Finds the target of a request, and stores what the layers need to know about the call in the
    /// extensions of the request.
    ///
    /// Only needed if the layers of this crate are used without a [`Client`]: a client does this
    /// itself.
    ///
    /// # Errors
    ///
    /// `Refused` if the gate drains.
    pub fn identify(&self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        self.0.identify.identify(request)
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("mode", &self.mode())
            .field("active", &self.0.active.count())
            .finish_non_exhaustive()
    }
}
