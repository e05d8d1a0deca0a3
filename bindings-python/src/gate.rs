//! The native gate behind `tidegate.Gate`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::Value;
use tidegate::transport::{Foreign, ProxyRules};
use tidegate::{Client, Config, Error, RequestBody, Transport, config_file};
use tidegate_bindings::{
    DynamicReplicas, FailureMode, OriginalHead, RuntimeBound, SlotHandle, ToolRequestHandle, from_json,
    target_for, to_json,
};
use tidegate_testing::replaced_network::{self, Worlds};

use crate::body_upload::UploadCall;
use crate::bridge::{LostBodies, LostBodyWatch, Outcome, Port, block_on, runtime};
use crate::context::{Context, resolve};
use crate::custom_transport::{CustomCall, LoopHost};
use crate::errors::{argument_error, to_py_err};
use crate::proxies::{self, ClientProxies};
use crate::request::RequestParts;
use crate::response::{Answer, ReadAhead, run_call};
use crate::seconds_argument::to_duration;
use crate::tool_slot::{ToolRequest, YIELD_OPTION};

/// The number of gates that this process has created.
static GATES: AtomicUsize = AtomicUsize::new(0);

/// The native gate that `tidegate.Gate` wraps.
///
/// In a forked child process, the gate starts again from its configuration, because the child
/// cannot use the slots and connections of its parent. If the configuration does not say which
/// processes share caps, the children of the process that has created the gate do. The same happens
/// in each test [`world`], such as an installed fake target or a virtual clock, in which the gate
/// shares nothing with other processes. After that world, the gate has its earlier state.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Gate {
    config: Config,
    replicas: DynamicReplicas,
    /// The proxy rules from the environment at the time when the gate was opened; `None` if the
    /// configuration has `proxy_from_env = false`.
    proxies: Option<ProxyRules>,
    /// The process that has created the gate.
    creator: u32,
    /// The name under which its forked children share caps.
    children: Arc<str>,
    worlds: Mutex<Worlds<RuntimeBound<OpenGate>>>,
}

/// A gate and its client, opened for one world: for real operation, for one installed fake target,
/// or for one virtual clock.
struct OpenGate {
    gate: tidegate::Gate,
    client: Client,
    lost_bodies: LostBodyWatch,
    /// A value that identifies the trusted TLS authorities which the environment named when the
    /// gate was opened. It comes from `environment_authorities` in Python.
    authorities: Py<PyAny>,
}

impl Gate {
    /// Opens a gate with this configuration and the proxies of the environment.
    ///
    /// # Errors
    ///
    /// `tidegate.ConfigError` if the configuration could not be read, or if a proxy variable of the
    /// environment is invalid.
    fn from_config(py: Python<'_>, config: Result<Config, Error>) -> PyResult<Self> {
        let config = config.map_err(|e| to_py_err(py, &e))?;
        let proxies = proxies::of_environment(py, &config.transport)?;
        let worlds = Mutex::new(Worlds::new(open(py, &config, proxies.as_ref())?));
        let creator = std::process::id();
        // Files of an earlier process with this number may exist.
        let random = fastrand::u32(..);
        let children =
            format!("forked-{creator}-{}-{random:08x}", GATES.fetch_add(1, Ordering::Relaxed)).into();
        Ok(Self { config, replicas: DynamicReplicas::default(), proxies, creator, children, worlds })
    }

    /// Calls `f` with the open gate of the current test world, and returns the result of `f`. Opens
    /// the gate first if it is not open in this world. `f` must not wait or run Python code,
    /// because the lock on the worlds is held.
    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&OpenGate) -> T) -> PyResult<T> {
        loop {
            if let Some(open) = self.worlds.lock().present().and_then(RuntimeBound::get) {
                return Ok(f(open));
            }
            self.enter_world(py)?;
        }
    }

    /// Switches to the current test world: an installed fake target, a virtual clock, or neither.
    /// Opens the gate if it was not opened in this world, or in this forked child process, before.
    fn enter_world(&self, py: Python<'_>) -> PyResult<()> {
        // Not under the lock: opening can fail, and raising the error runs Python code.
        let is_known = self.worlds.lock().has_value(RuntimeBound::is_usable);
        let fresh = if is_known { None } else { Some(self.reopen(py)?) };
        let previous = self.worlds.lock().switch_world(fresh, RuntimeBound::is_usable);
        drop(previous);
        Ok(())
    }

    /// Opens the gate again for a new world, with the replicas that the program has set.
    fn reopen(&self, py: Python<'_>) -> PyResult<RuntimeBound<OpenGate>> {
        let mut config = self.config.clone();
        if std::process::id() != self.creator {
            config.share_among_forked(&self.children);
        }
        let open = open(py, &config, self.proxies.as_ref())?;
        if let Some(open) = open.get() {
            self.replicas.restore(&open.gate).map_err(|e| to_py_err(py, &e))?;
        }
        Ok(open)
    }

    /// Returns the gate of the current world. Unlike in [`Self::with`], the caller may then wait or
    /// run Python code.
    fn gate(&self, py: Python<'_>) -> PyResult<tidegate::Gate> {
        self.with(py, |open| open.gate.clone())
    }

    /// Calls `f` with the gate of the current world, without the GIL, and returns the result of
    /// `f`. Enters the runtime first, because the gate reads the runtime's clock.
    fn query<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&tidegate::Gate) -> T + Send) -> PyResult<T> {
        let (gate, runtime) = (self.gate(py)?, runtime::handle()?);
        Ok(py.detach(move || {
            let _context = runtime.enter();
            f(&gate)
        }))
    }

    /// Returns the handle that releases the slots of lost response bodies while a call waits.
    fn lost_bodies(&self, py: Python<'_>) -> PyResult<LostBodies> {
        self.with(py, |open| open.lost_bodies.for_call())
    }

    /// Returns the future that makes a call, and the handle for its wait. `request` contains the
    /// arguments of the call ([`RequestParts`]).
    fn call(
        &self,
        request: &Bound<'_, PyTuple>,
    ) -> PyResult<(impl Future<Output = Result<Answer, Error>> + Send + use<>, LostBodies)> {
        let lost_bodies = self.lost_bodies(request.py())?;
        let (client, request, failures) = self.prepare(request, false)?;
        let call = run_call(client, request, failures, ReadAhead::Yes);
        Ok((lost_bodies.clone().count(call), lost_bodies))
    }

    /// Returns the client, the request and the failure mode of a call. `request` contains the
    /// arguments of the call ([`RequestParts`]). `is_custom` is `true` if the client's own
    /// transport makes the exchanges.
    fn prepare(
        &self,
        request: &Bound<'_, PyTuple>,
        is_custom: bool,
    ) -> PyResult<(Client, Request<RequestBody>, FailureMode)> {
        let (py, parts) = (request.py(), RequestParts::read(request)?);
        let request = parts.build(is_custom)?.map_err(|e| to_py_err(py, &e))?;
        let (client, mode) = self.with(py, |open| (open.client.clone(), open.gate.mode()))?;
        let failures = parts.failure_mode(&request, mode);
        Ok((client, request, failures))
    }
}

/// Opens a gate in the current world. `rules` are the proxy rules from the environment; `None` uses
/// no proxies.
fn open(py: Python<'_>, config: &Config, rules: Option<&ProxyRules>) -> PyResult<RuntimeBound<OpenGate>> {
    let runtime = runtime::handle()?;
    let config = replaced_network::config_in_world(config);
    // Read before the transport reads them, so that a change in between is noticed.
    let authorities =
        py.import("tidegate._transport.httpx_family")?.getattr("environment_authorities")?.call0()?;
    let transport = match replaced_network::transport() {
        None => proxies::transport(config.transport.clone(), rules).map(Transport::new),
        Some(transport) => Ok(transport),
    };
    let transport = transport.map_err(|e| to_py_err(py, &e))?;
    // Detached, because opening can read files that name replicas.
    let gate = py.detach(|| {
        let _context = runtime.enter();
        tidegate::Gate::over(config, transport)
    });
    let gate = gate.map_err(|e| to_py_err(py, &e))?;
    let (client, lost_bodies) = (gate.client(), LostBodyWatch::new(gate.clone()));
    let authorities = authorities.unbind();
    Ok(RuntimeBound::new(OpenGate { gate, client, lost_bodies, authorities }, runtime))
}

#[pymethods]
impl Gate {
    /// Opens a gate from a JSON configuration, which has the keys of the configuration file.
    ///
    /// # Errors
    ///
    /// `tidegate.ConfigError` if the configuration is invalid.
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        let config = py.detach(|| from_json(json).map(Config::from_json));
        Self::from_config(py, config.map_err(argument_error)?.map_err(Error::from))
    }

    /// Opens a gate that a TOML file configures.
    ///
    /// # Errors
    ///
    /// `tidegate.ConfigError` if the file cannot be read or is invalid.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::from_config(py, py.detach(|| config_file::read(path)))
    }

    /// Returns `true` if clients can bypass the gate, because its mode is `off` and no target is a
    /// pool. Only the gate can resolve the address of a pool.
    #[getter]
    fn can_bypass(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |open| open.gate.is_bypassed())
    }

    /// The mode of the gate: `enforce`, `observe` or `off`.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |open| open.gate.mode().as_str())
    }

    /// A value that identifies the trusted TLS authorities which the environment named when the
    /// gate was opened. It comes from `environment_authorities` in Python.
    #[getter]
    fn authorities(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |open| open.authorities.clone_ref(py))
    }

    /// Returns the name of the configured target that receives a request to this URL for this
    /// model, or None if none matches.
    ///
    /// # Errors
    ///
    /// `tidegate.RequestError` if the URL is malformed.
    #[pyo3(signature = (url, model = None))]
    fn target_for(&self, py: Python<'_>, url: &str, model: Option<&str>) -> PyResult<Option<String>> {
        self.with(py, |open| target_for(&open.gate, url, model))?.map_err(|e| to_py_err(py, &e))
    }

    /// Replaces the replicas of the pool `target` by those in a JSON list.
    ///
    /// # Errors
    ///
    /// `tidegate.ConfigError` if the list is invalid; the replicas then remain unchanged.
    fn set_replicas(&self, py: Python<'_>, target: String, json: &str) -> PyResult<()> {
        let replicas: Value = from_json(json).map_err(argument_error)?;
        let set = self.query(py, |gate| gate.set_replicas_json(&target, &replicas))?;
        set.map_err(|e| to_py_err(py, &e))?;
        self.replicas.record(target, replicas);
        Ok(())
    }

    /// Calls `mounts`, and returns the proxy rules for the httpx mounts that it returns. Returns
    /// None without the call if the configuration has `proxy_from_env = false`.
    fn proxies(&self, py: Python<'_>, mounts: &Bound<'_, PyAny>) -> PyResult<Option<ClientProxies>> {
        if self.proxies.is_none() {
            return Ok(None);
        }
        let rules = proxies::of_mounts(mounts.call0()?.extract()?).map_err(|e| to_py_err(py, &e))?;
        Ok(Some(ClientProxies(rules)))
    }

    /// Returns the state of all targets and tools, as JSON.
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        self.query(py, |gate| to_json(&gate.snapshot()))?.map_err(argument_error)
    }

    /// Returns all metrics, in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        self.query(py, tidegate::Gate::prometheus)
    }

    /// Returns the records of the calls that ended most recently, oldest first, as JSON.
    fn calls(&self, py: Python<'_>) -> PyResult<String> {
        let gate = self.gate(py)?;
        py.detach(|| to_json(&gate.calls().records())).map_err(argument_error)
    }

    /// Returns the state of the active call or wait for a tool with this number or label, and the
    /// rule that blocks it, as JSON. None if none is active.
    fn explain(&self, py: Python<'_>, call: CallName) -> PyResult<Option<String>> {
        let explanation = self.query(py, |gate| match &call {
            CallName::Number(id) => gate.explain(*id),
            CallName::Label(label) => gate.explain(label.as_str()),
        })?;
        explanation.as_ref().map(to_json).transpose().map_err(argument_error)
    }

    /// Returns the state of the active calls and of the waits for tools, and the rules that block
    /// them, as a JSON list of at most `limit` entries. Those that wait come before the others, and
    /// older ones come first in both groups.
    fn explain_all(&self, py: Python<'_>, limit: usize) -> PyResult<String> {
        self.query(py, |gate| to_json(&gate.explain_all(limit)))?.map_err(argument_error)
    }

    /// Starts a call. `request` contains the fields of [`RequestParts`] in their order. Returns the
    /// asyncio future of the reply or error, and the number that cancels the call.
    #[pyo3(signature = (port, *request))]
    fn send(&self, port: &Bound<'_, Port>, request: &Bound<'_, PyTuple>) -> PyResult<(Py<PyAny>, u64)> {
        let (call, lost_bodies) = self.call(request)?;
        Port::submit(port, lost_bodies.wait(port.get().mailbox(), call))
    }

    /// Makes a call, and blocks until its response head has arrived or the call has failed. Returns
    /// the reply, or the error as an exception object. For `request`, see [`Self::send`].
    #[pyo3(signature = (*request))]
    fn send_blocking(&self, py: Python<'_>, request: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let (call, lost_bodies) = self.call(request)?;
        Box::new(lost_bodies.block_on(py, call)?).into_python(py)
    }

    /// Starts a call whose exchanges the client's own transport makes. For each exchange, `serve`
    /// is called, and returns the asyncio task that makes the exchange. The return values are those
    /// of [`Self::send`].
    #[pyo3(signature = (port, serve, *request))]
    fn send_custom(
        &self,
        port: &Bound<'_, Port>,
        serve: Py<PyAny>,
        request: &Bound<'_, PyTuple>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let (client, mut request, failures) = self.prepare(request, true)?;
        let host = LoopHost::new(port.get().mailbox(), serve, OriginalHead::from_request(&request));
        if !replaced_network::is_faked() {
            request.extensions_mut().insert(Foreign::new(host));
        }
        let lost_bodies = self.lost_bodies(port.py())?;
        let call = lost_bodies.clone().count(run_call(client, request, failures, ReadAhead::Yes));
        Port::submit(port, lost_bodies.wait(port.get().mailbox(), call))
    }

    /// Creates a call whose exchanges the calling thread makes with the client's own transport.
    /// [`CustomCall::wait`] starts it.
    #[pyo3(signature = (*request))]
    fn start_custom(&self, request: &Bound<'_, PyTuple>) -> PyResult<CustomCall> {
        let lost_bodies = self.lost_bodies(request.py())?;
        let (client, mut request, failures) = self.prepare(request, true)?;
        CustomCall::new(OriginalHead::from_request(&request), lost_bodies.clone(), |host| {
            if !replaced_network::is_faked() {
                request.extensions_mut().insert(Foreign::new(host));
            }
            lost_bodies.count(run_call(client, request, failures, ReadAhead::No))
        })
    }

    /// Starts a call for which the calling thread produces the request body chunk by chunk.
    #[pyo3(signature = (*request))]
    fn start_upload(&self, request: &Bound<'_, PyTuple>) -> PyResult<UploadCall> {
        let (call, lost_bodies) = self.call(request)?;
        UploadCall::start(call, lost_bodies)
    }

    /// Requests a slot of a tool: takes a free slot, or joins the queue. `task` is the number of
    /// the caller's asyncio task or thread; None in a callback of an event loop. If `yield_slot` is
    /// True, the model slots of that task can be released while the task waits for the tool or uses
    /// it.
    fn request_tool(
        &self,
        py: Python<'_>,
        tool: &str,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
        yield_slot: bool,
    ) -> PyResult<ToolRequest> {
        let context = resolve(context, task);
        self.query(py, |gate| {
            ToolRequest(ToolRequestHandle::new(gate, tool, context, yield_slot, YIELD_OPTION))
        })
    }

    /// Starts to wait for a slot of a target. Returns the asyncio future of the slot or error, and
    /// the number that cancels the wait. `task` is the number of the caller's asyncio task or
    /// thread; None in a callback of an event loop.
    fn acquire_slot(
        &self,
        port: &Bound<'_, Port>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let (gate, lost_bodies) = (self.gate(port.py())?, self.lost_bodies(port.py())?);
        let slot = lost_bodies.clone().count(SlotHandle::acquire(gate, target, resolve(context, task)));
        Port::submit(port, lost_bodies.wait(port.get().mailbox(), slot))
    }

    /// Blocks until a slot of a target is granted. Returns the slot, or the error as an exception
    /// object. For `task`, see [`Self::acquire_slot`].
    fn acquire_slot_blocking(
        &self,
        py: Python<'_>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let (gate, lost_bodies) = (self.gate(py)?, self.lost_bodies(py)?);
        let slot = lost_bodies.clone().count(SlotHandle::acquire(gate, target, resolve(context, task)));
        Box::new(lost_bodies.block_on(py, slot)?).into_python(py)
    }

    /// Rejects new calls from now on, and starts to wait until no call is active, for at most
    /// `patience` seconds. Returns an asyncio future and the number that cancels the wait. The
    /// result of the future is the number of calls that are still active at the end of the wait.
    fn drain(&self, port: &Bound<'_, Port>, patience: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, u64)> {
        let (gate, patience) = (self.gate(port.py())?, to_duration("patience", patience)?);
        Port::submit(port, async move { CallsLeft(gate.drain(patience).await) })
    }

    /// Rejects new calls from now on, and blocks until no call is active, for at most `patience`
    /// seconds. Returns the number of calls that are still active at the end of the wait.
    fn drain_blocking(&self, py: Python<'_>, patience: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (gate, patience) = (self.gate(py)?, to_duration("patience", patience)?);
        block_on(py, async move { gate.drain(patience).await })
    }
}

/// The number or the label of a call that is to be explained.
#[derive(FromPyObject)]
enum CallName {
    Number(u64),
    Label(String),
}

/// The number of calls that were still active when a drain ended.
struct CallsLeft(usize);

impl Outcome for CallsLeft {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}
