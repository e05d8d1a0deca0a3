//! The gate: the object that a process shares. Holds targets and tools.

mod registry;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use registry::Registry;

use crate::active::Active;
use crate::body::RequestBody;
use crate::call::{Call, Identity};
use crate::client::{self, Client};
use crate::clock;
use crate::config::{Config, ConfigBuilder, Mode};
use crate::context::{Context, Timeouts};
use crate::error::{Error, ErrorKind, Reason};
use crate::observe::{CallLog, Metrics, Snapshot, TargetSnapshot};
use crate::tool::{ToolPermit, Tools};
use crate::transport::{Http, Transport};
use crate::wire::request::RequestFacts;

/// The tenant of a call that names none.
pub(crate) const DEFAULT_TENANT: &str = "default";
/// Longer names of tenants are cut.
const LONGEST_TENANT: usize = 200;

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
    mode: Mode,
    registry: Registry,
    tools: Tools,
    default_tenant: Arc<str>,
    metrics: Arc<Metrics>,
    log: Arc<CallLog>,
    active: Arc<Active>,
    draining: AtomicBool,
    transport: Transport,
    stack: Transport,
}

impl Gate {
    /// A gate of this configuration over the built-in transport. `TIDEGATE=off|observe|on` in the environment overrides the mode.
    ///
    /// # Errors
    /// `Config`, where TLS roots, a proxy or `TIDEGATE` in the environment cannot be understood.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(Http::new(config.transport.clone())?);
        Self::over(config, transport)
    }

    /// A gate of this configuration over the caller's own transport.
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn over(config: Config, transport: Transport) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new()?);
        let (log, active) = (Arc::new(CallLog::default()), Arc::new(Active::default()));
        Ok(Self(Arc::new(Inner {
            mode: Mode::from_env()?.unwrap_or(config.mode),
            registry: Registry::new(&config, metrics.clone())?,
            tools: Tools::new(&config.tools),
            default_tenant: DEFAULT_TENANT.into(),
            stack: client::compose(transport.clone(), log.clone(), active.clone()),
            transport,
            metrics,
            log,
            active,
            draining: AtomicBool::new(false),
        })))
    }

    /// A gate configured by a TOML file.
    ///
    /// # Errors
    /// `Config`, naming each key that is wrong, and the nearest valid one.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Config::from_file(path)?)
    }

    /// A gate configured in code.
    pub fn builder() -> GateBuilder {
        GateBuilder(Config::builder())
    }

    /// Calls go through this.
    pub fn client(&self) -> Client {
        Client::new(self.clone())
    }

    /// Whether it acts, only looks, or stands aside.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// A slot of a tool, as soon as there is one. Dropping it gives it back.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue.
    ///
    /// # Errors
    /// `Unknown` for a tool that is not configured; `Refused` as for calls, and where waiting would never end.
    pub async fn acquire_tool(&self, name: &str, context: &Context) -> Result<ToolPermit, Error> {
        if self.0.draining.load(Ordering::Acquire) {
            return Err(draining());
        }
        self.0.tools.acquire(name, self.tenant(context), context, self.0.mode).await
    }

    /// What a person wants to know, now.
    pub fn snapshot(&self) -> Snapshot {
        let now = clock::now();
        Snapshot {
            mode: match self.0.mode {
                Mode::Enforce => "enforce",
                Mode::Observe => "observe",
                Mode::Off => "off",
            },
            draining: self.0.draining.load(Ordering::Acquire),
            active: self.0.active.count(),
            targets: self
                .0
                .registry
                .all()
                .iter()
                .map(|target| (target.name().clone(), TargetSnapshot::of(target, now)))
                .collect(),
            tools: self.0.tools.snapshot(),
        }
    }

    /// Every series, in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        let targets = self.0.registry.all();
        self.0.metrics.text(targets.iter().map(|target| (target.metrics(), target.admission().view())))
    }

    /// The last 1,024 calls that ended, with the stamps of their attempts.
    pub fn calls(&self) -> &CallLog {
        &self.0.log
    }

    /// Takes no new calls, and waits for those under way, waiting ones included. After `patience`, what still waits is refused;
    /// what is in flight goes on. Returns how many calls are then left.
    ///
    /// *Cancellation safety*: dropping the future stops the waiting; the gate goes on refusing new calls.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.0.draining.store(true, Ordering::Release);
        let _ = tokio::time::timeout(patience, self.0.active.none()).await;
        for target in self.0.registry.all() {
            target.admission().drain();
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
        if self.0.draining.load(Ordering::Acquire) {
            return Err(draining());
        }
        let body = request.body().bytes().map(|bytes| &bytes[..]);
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), body);
        let target = self.0.registry.target(request.uri(), request.headers(), facts.model.as_deref());
        let context = request.extensions_mut().remove::<Context>().unwrap_or_default();
        let identity = Identity {
            mode: self.0.mode,
            target,
            facts,
            tenant: self.tenant(&context),
            lane: context.lane,
            timeouts: request.extensions_mut().remove::<Timeouts>().unwrap_or_default(),
            deadline: context.deadline.map(tokio::time::Instant::into_std),
        };
        request.extensions_mut().insert(Call::new(identity, clock::now()));
        Ok(())
    }

    pub(crate) fn stack(&self) -> &Transport {
        &self.0.stack
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    fn tenant(&self, context: &Context) -> Arc<str> {
        match &context.tenant {
            None => self.0.default_tenant.clone(),
            Some(name) if name.is_empty() => self.0.default_tenant.clone(),
            Some(name) if name.len() <= LONGEST_TENANT => name.clone(),
            Some(name) => {
                let end = (0..=LONGEST_TENANT).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
                name.get(..end).unwrap_or(DEFAULT_TENANT).into()
            }
        }
    }
}

fn draining() -> Error {
    Error::new(ErrorKind::Refused(Reason::Draining), "the gate is draining and takes no new calls")
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("mode", &self.0.mode)
            .field("active", &self.0.active.count())
            .finish_non_exhaustive()
    }
}

/// Builds a [`Gate`] in code, with the same checks as a file.
#[derive(Clone)]
pub struct GateBuilder(ConfigBuilder);

impl GateBuilder {
    /// Adds a target.
    pub fn target(self, target: crate::config::Target) -> Self {
        Self(self.0.target(target))
    }

    /// What every target has that does not say otherwise.
    pub fn defaults(self, defaults: impl FnOnce(crate::config::Target) -> crate::config::Target) -> Self {
        Self(self.0.defaults(defaults))
    }

    /// Adds a tenant, at every target.
    pub fn tenant(self, id: impl Into<String>, tenant: crate::config::Tenant) -> Self {
        Self(self.0.tenant(id, tenant))
    }

    /// Adds a tool: its cap, or more.
    pub fn tool(self, name: impl Into<String>, tool: impl Into<crate::config::Tool>) -> Self {
        Self(self.0.tool(name, tool))
    }

    /// Sets the mode.
    pub fn mode(self, mode: Mode) -> Self {
        Self(self.0.mode(mode))
    }

    /// Sets how connections are made.
    pub fn transport(self, transport: crate::config::Transport) -> Self {
        Self(self.0.transport(transport))
    }

    /// Checks everything, and opens the gate.
    ///
    /// # Errors
    /// `Config`, naming each setting that is wrong.
    pub fn build(self) -> Result<Gate, Error> {
        Gate::new(self.0.build()?)
    }

    /// The same over the caller's own transport.
    ///
    /// # Errors
    /// As [`GateBuilder::build`].
    pub fn build_over(self, transport: Transport) -> Result<Gate, Error> {
        Gate::over(self.0.build()?, transport)
    }
}
