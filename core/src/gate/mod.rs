//! The gate: the object that a process shares. Holds targets and tools.

mod builder;
mod mode;

use std::future::Future;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};

pub use builder::GateBuilder;

use crate::active::Active;
use crate::body::RequestBody;
use crate::call::Call;
use crate::client::Client;
use crate::clock;
use crate::config::{self, Config, ConfigError, Mode, Replica, ReplicaConfig, ReplicaSource};
use crate::config_file;
use crate::context::{Context, Timeouts};
use crate::error::Error;
use crate::explain::{CallName, Explanation, Subject};
use crate::fallback::FallbackRoutes;
use crate::framing;
use crate::identify::Identify;
use crate::observe::{CallLog, Metrics, Snapshot, TargetSnapshot};
use crate::slot::Slot;
use crate::tool::{Asked, Asking, ToolPermit, Tools};
use crate::transport::{Http, Transport};
use tidegate_protocol::request::RequestFacts;
use tidegate_protocol::url;

/// Holds targets and tools. Cheap to clone; clones are the same gate.
///
/// ```no_run
/// # async fn run() -> Result<(), tidegate::Error> {
/// use tidegate::{Gate, config::Target};
///
/// let gate = Gate::builder().target(Target::new("openai").cap(64)).tool("db", 8).build()?;
/// let request = http::Request::post("https://api.openai.com/v1/chat/completions").body(r#"{"model": "gpt-4o"}"#.into());
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
    /// A gate of this configuration over the built-in transport. `TIDEGATE=off|observe|on` in the environment overrides the mode.
    /// Proxy variables are read once, when the gate is created
    /// ([`transport::proxy`](crate::transport::proxy)). To set proxies in code, use
    /// [`Http::with_proxies`] and [`Gate::over`].
    ///
    /// # Errors
    /// `Config`, where TLS roots, a proxy or `TIDEGATE` in the environment cannot be understood.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(Http::new(config.transport.clone())?);
        Self::over(config, transport)
    }

    /// A gate of this configuration over the caller's own transport: any tower service of that shape, or, for one that lives outside of tokio,
    /// [`crate::transport::Foreign`].
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn over(config: Config, transport: Transport) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new()?);
        let (log, active) = (Arc::new(CallLog::default()), Arc::new(Active::default()));
        let mode = mode::from_env()?.unwrap_or(config.mode);
        // Before the targets, whose series with each tool exist from the start.
        let tools = Arc::new(Tools::new(&config.tools, &metrics));
        let identify = Identify::new(mode, &config, metrics.clone(), tools.task_slots().cloned())?;
        let identify = Arc::new(identify);
        for target in identify.targets() {
            target.keep(&transport, mode == Mode::Enforce)?;
        }
        let routes = Arc::new(FallbackRoutes::new(&config, &identify)?);
        let client = Client::new(identify.clone(), routes, transport, log.clone(), active.clone());
        Ok(Self(Arc::new(Inner { identify, client, tools, metrics, log, active })))
    }

    /// A gate configured by a TOML file.
    ///
    /// # Errors
    /// `Config`, naming each key that is wrong, and the nearest valid one.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(config_file::read(path)?)
    }

    /// A gate configured in code.
    pub fn builder() -> GateBuilder {
        GateBuilder::new(Config::builder())
    }

    /// Calls go through this.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Whether it acts, only looks, or stands aside.
    pub fn mode(&self) -> Mode {
        self.0.identify.mode()
    }

    /// Whether calls need not pass through it at all: it is off, and no name of a pool is to be made an address.
    pub fn is_aside(&self) -> bool {
        self.mode() == Mode::Off && !self.0.identify.has_pools()
    }

    /// A slot of a tool, as soon as there is one. Dropping it gives it back.
    ///
    /// A task that waits here while it holds a model slot (a response that is still streaming, or a [`Slot`]) is told so by a warning (`tracing`),
    /// once for each place in the code. The task is the context's, or else tokio's.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue.
    ///
    /// # Errors
    /// `Unknown` for a tool that is not configured; `Refused` as for calls, and where waiting would never end.
    #[track_caller]
    pub fn acquire_tool<'a>(
        &'a self,
        name: &'a str,
        context: &'a Context,
    ) -> impl Future<Output = Result<ToolPermit, Error>> + Send + 'a {
        self.acquire_tool_at(Location::caller(), name, context, false)
    }

    /// The same; and while this task waits for the tool and holds it, the slots of its responses that are still streaming are handed back: what
    /// the provider still sends is read ahead, up to 1 MiB (and a chunk) a response, until the exchange ends by itself. The reader
    /// then finds the same bytes. No generation is ended early: a longer answer, and a [`Slot`], keep their slot.
    ///
    /// *Cancellation safety*, *Errors*: as [`Gate::acquire_tool`].
    #[track_caller]
    pub fn acquire_tool_yielding<'a>(
        &'a self,
        name: &'a str,
        context: &'a Context,
    ) -> impl Future<Output = Result<ToolPermit, Error>> + Send + 'a {
        self.acquire_tool_at(Location::caller(), name, context, true)
    }

    async fn acquire_tool_at(
        &self,
        site: &'static Location<'static>,
        name: &str,
        context: &Context,
        yield_slot: bool,
    ) -> Result<ToolPermit, Error> {
        let asked = self.ask_tool(name, context, yield_slot)?;
        if let Some(held) = asked.while_holding() {
            self.0.tools.tell(site, held);
        }
        asked.granted().await
    }

    /// The first half of [`Gate::acquire_tool`]: takes a free slot, or says what stands in the way, for callers with warnings of their own.
    ///
    /// # Errors
    /// As [`Gate::acquire_tool`].
    pub fn ask_tool(&self, name: &str, context: &Context, yield_slot: bool) -> Result<Asked, Error> {
        self.0.identify.open()?;
        self.0.tools.ask(name, self.0.identify.tenant(context), context, self.mode(), yield_slot)
    }

    /// A slot of a configured target, for a call that no HTTP client of ours makes. The same queue, and the same books, as for every other call
    /// to it. Dropping the slot gives it back.
    ///
    /// The wait is bounded by the target's `wait` and by the deadline, the context's or the target's, as for calls. In mode `observe` it never
    /// waits and in mode `off` it holds nothing. What a wrapped client calls takes slots of its own: do not hold one around it.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue.
    ///
    /// # Errors
    /// `Unknown` for a target that is not configured; `Refused` as for calls.
    pub async fn acquire_slot(&self, target: &str, context: &Context) -> Result<Slot, Error> {
        let target = self.0.identify.named(target)?;
        if self.mode() == Mode::Off {
            return Ok(Slot::of_nothing());
        }
        self.0.identify.open()?;
        let call =
            self.0.identify.call((target, None), RequestFacts::unknown(), context, Timeouts::default(), None);
        Slot::take(call, self.0.log.clone(), &self.0.active).await
    }

    /// The configured target that takes requests to this URL, for this model where one is known. `None`: none matches, and the
    /// request gets a target of its own, one for each origin, credential and model.
    ///
    /// # Errors
    /// `Request` for a path with a `.` or `..` segment or a backslash: no call is sent to it.
    pub fn target_for(&self, url: &Uri, model: Option<&str>) -> Result<Option<Arc<str>>, Error> {
        url::check(url).map_err(framing::url_rejection)?;
        Ok(self.0.identify.configured(url, model))
    }

    /// From now on these are the replicas of a pool: base URLs, or [`Replica`]s with more. Who is new joins; who is known already goes on, with a new weight perhaps; who
    /// is not among them gets no more calls, and leaves with its last one. An empty list is a pool without replicas: its calls wait.
    ///
    /// The list takes the place of the configured one. It may be told from any thread.
    ///
    /// # Errors
    /// `Unknown` for a target that is not configured; `Config` for one that is no pool, or whose replicas DNS or a file names, and for a replica that could not be
    /// configured. Then they stay what they were.
    ///
    /// ```
    /// use tidegate::config::{Pool, Replica, Target};
    ///
    /// let gate = tidegate::Gate::builder().target(Target::new("llama").pool(Pool::dynamic())).build()?;
    /// gate.set_replicas("llama", [Replica::new("http://10.0.0.1:8000"), Replica::new("http://10.0.0.2:8000").weight(2.0)])?;
    /// assert_eq!(gate.snapshot().targets["llama"].replicas.len(), 2);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn set_replicas<R: Into<Replica>>(
        &self,
        target: &str,
        replicas: impl IntoIterator<Item = R>,
    ) -> Result<(), Error> {
        self.tell(target, || Replica::members(replicas.into_iter().map(Into::into)))
    }

    /// The same from JSON, which is what the bindings make of a list: base URLs, and objects with the keys of the configuration.
    ///
    /// # Errors
    /// As [`Gate::set_replicas`].
    pub fn set_replicas_json(&self, target: &str, replicas: &serde_json::Value) -> Result<(), Error> {
        self.tell(target, || config::replicas_from_json(replicas))
    }

    /// From now on so many slots of a configured target, whatever its limit was and however it was found: it does not adapt any more. Of a pool it bounds those of all
    /// replicas together, each of which keeps its own. Lowering it ends no call: slots retire as calls end.
    ///
    /// # Errors
    /// `Unknown` for a target that is not configured; `Config` for 0: nothing would ever go.
    pub fn set_cap(&self, target: &str, cap: usize) -> Result<(), Error> {
        let target = self.0.identify.named(target)?;
        if cap == 0 {
            return Err(Error::config("a cap of 0 lets nothing through: use 1 or more").at(target.name()));
        }
        target.admission().set_limit(cap);
        Ok(())
    }

    fn tell(
        &self,
        target: &str,
        members: impl FnOnce() -> Result<Vec<ReplicaConfig>, ConfigError>,
    ) -> Result<(), Error> {
        let target = self.0.identify.named(target)?;
        let whose = |what: &str| Error::config(what).at(target.name());
        match target.config().pool.as_ref().map(|pool| &pool.source) {
            Some(ReplicaSource::Listed(_) | ReplicaSource::Dynamic) => {}
            Some(ReplicaSource::Dns { .. }) => {
                return Err(whose("its replicas are those that DNS names; drop \"dns\" to tell them"));
            }
            Some(ReplicaSource::File { .. }) => {
                return Err(whose("its replicas are those that a file names; drop \"file\" to tell them"));
            }
            None => return Err(whose("it is no pool: give it a \"pool\" to tell its replicas")),
        }
        target.admission().set_members(&members().map_err(|error| Error::from(error).at(target.name()))?);
        Ok(())
    }

    /// Returns the number of calls that wait for a slot of a target now, or for the cool-down of
    /// their key.
    pub fn waiting(&self) -> usize {
        self.0.identify.targets().iter().map(|target| target.waiting()).sum()
    }

    /// What a person wants to know, now.
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        let targets = self.0.identify.targets();
        Snapshot {
            mode: match self.mode() {
                Mode::Enforce => "enforce",
                Mode::Observe => "observe",
                Mode::Off => "off",
            },
            draining: self.0.identify.open().is_err(),
            active: self.0.active.count(),
            targets: targets
                .iter()
                .map(|target| (target.name().clone(), TargetSnapshot::of(target, now)))
                .collect(),
            tools: self.0.tools.snapshot(&targets, now),
        }
    }

    /// Every series, in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        self.0.tools.gauge();
        let targets = self.0.identify.targets();
        let now = clock::now();
        self.0.metrics.text(targets.iter().map(|target| {
            let door = target.admission();
            (target.metrics(), door.view(), target.budgets(now), door.replicas())
        }))
    }

    /// The last 1,024 calls that ended, with the stamps of their attempts.
    pub fn calls(&self) -> &CallLog {
        &self.0.log
    }

    /// Why a call waits now, or what else it is at. `None`: no call of that name is under way, nor waits for a tool.
    pub fn explain<'a>(&self, call: impl Into<CallName<'a>>) -> Option<Explanation> {
        let named = |own: Option<&Arc<str>>, label: &str| own.is_some_and(|own| **own == *label);
        let subjects = match call.into() {
            CallName::Number(id) => match self.0.active.get(id) {
                Some(call) => vec![Subject::Call(call)],
                None => self.subjects(|_| false, |asking| asking.id == id),
            },
            CallName::Label(label) => {
                self.subjects(|call| named(call.label(), label), |asking| named(asking.label.as_ref(), label))
            }
        };
        self.explained(subjects, 1).pop()
    }

    /// The same of every call under way and every wait for a tool, at most `limit` of them: those that wait first, the longest wait first.
    pub fn explain_all(&self, limit: usize) -> Vec<Explanation> {
        self.explained(self.subjects(|_| true, |_| true), limit)
    }

    fn subjects(&self, calls: impl Fn(&Call) -> bool, askings: impl Fn(&Asking) -> bool) -> Vec<Subject> {
        let calls = self.0.active.filter(calls).into_iter().map(Subject::Call);
        let askings = self.0.tools.askings().into_iter().filter(|asking| askings(asking));
        calls.chain(askings.map(Subject::Asking)).collect()
    }

    fn explained(&self, mut subjects: Vec<Subject>, limit: usize) -> Vec<Explanation> {
        let now = clock::now();
        subjects.sort_by_cached_key(Subject::urgency);
        subjects.truncate(limit);
        let told = subjects.iter().map(|subject| match subject {
            Subject::Call(call) => Explanation::of_call(call, now),
            Subject::Asking(asking) => Explanation::of_asking(asking, self.0.tools.why(asking), now),
        });
        told.collect()
    }

    /// Takes no new calls, and waits for those under way, waiting ones included. After `patience`, what still waits is refused;
    /// what is in flight goes on. Returns how many calls are then left.
    ///
    /// *Cancellation safety*: dropping the future stops the waiting; the gate goes on refusing new calls.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.0.identify.close();
        let _ = tokio::time::timeout(patience, self.0.active.none()).await;
        for target in self.0.identify.targets() {
            target.drain();
        }
        self.0.tools.drain();
        self.0.active.count()
    }

    /// Puts into a request's extensions what the layers need to know of it: reads its facts and finds its target. [`Client`] does
    /// this by itself; it is for stacks that use single layers.
    ///
    /// # Errors
    /// `Refused`, while the gate drains.
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
