//! The gate that Python holds.

use std::path::PathBuf;

use http::Request;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::Value;
use tidegate::transport::{Foreign, ProxyRules};
use tidegate::{Client, Config, Error, RequestBody, Transport, config_file};
use tidegate_bindings::{
    DynamicReplicas, FailureMode, OriginalHead, RuntimeBound, SlotHandle, ToolRequest, from_json, mode_name,
    seconds, target_for, to_json,
};
use tidegate_testing::world::{self, Worlds};

use crate::bridge::{Outcome, Port, block_on, runtime};
use crate::context::{Context, resolve};
use crate::custom_transport::{CustomCall, OnLoop};
use crate::errors::{invalid, raised};
use crate::proxies::{self, ClientProxies};
use crate::reply::{Answer, ReadAhead, exchange};
use crate::request::Parts;
use crate::tool::{Asked, YIELD_OPTION};
use crate::upload::Call;

/// A gate.
///
/// In a forked child the gate starts again from its configuration, because the parent's slots and
/// connections are not the child's. The same happens in each world that a test enters ([`world`]);
/// after that world, the gate is what it was before.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Gate {
    config: Config,
    replicas: DynamicReplicas,
    /// The proxies of the environment when the gate was opened; `None` if the configuration takes
    /// none from there.
    proxies: Option<ProxyRules>,
    worlds: Mutex<Worlds<RuntimeBound<Open>>>,
}

/// A gate in one world.
struct Open {
    gate: tidegate::Gate,
    client: Client,
    /// The fingerprint of the environment's certificate authorities when the transport read them.
    authorities: Py<PyAny>,
}

impl Gate {
    /// Opens a gate with this configuration and the proxies of the environment.
    fn over(py: Python<'_>, config: Result<Config, Error>) -> PyResult<Self> {
        let config = config.map_err(|e| raised(py, &e))?;
        let proxies = proxies::of_environment(py, &config.transport)?;
        let worlds = Mutex::new(Worlds::new(open(py, &config, proxies.as_ref())?));
        Ok(Self { config, replicas: DynamicReplicas::default(), proxies, worlds })
    }

    /// Runs `f` on the gate of the current world, under the lock of the worlds.
    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&Open) -> T) -> PyResult<T> {
        loop {
            if let Some(open) = self.worlds.lock().present().and_then(RuntimeBound::get) {
                return Ok(f(open));
            }
            self.enter_world(py)?;
        }
    }

    /// Switches to the current world. Opens the gate if this world, or the child of a fork, is new
    /// to it.
    fn enter_world(&self, py: Python<'_>) -> PyResult<()> {
        // Not under the lock: opening can fail, and raising the error runs Python code.
        let is_known = self.worlds.lock().knows(RuntimeBound::is_usable);
        let fresh = if is_known { None } else { Some(self.reopen(py)?) };
        let gone = self.worlds.lock().change(fresh, RuntimeBound::is_usable);
        drop(gone);
        Ok(())
    }

    /// Opens the gate again for a new world, with the replicas that were set.
    fn reopen(&self, py: Python<'_>) -> PyResult<RuntimeBound<Open>> {
        let open = open(py, &self.config, self.proxies.as_ref())?;
        if let Some(open) = open.get() {
            self.replicas.restore(&open.gate).map_err(|e| raised(py, &e))?;
        }
        Ok(open)
    }

    /// Returns the gate of the current world, for whatever takes time: under the lock of the worlds
    /// nothing may wait, and no Python code may run.
    fn gate(&self, py: Python<'_>) -> PyResult<tidegate::Gate> {
        self.with(py, |open| open.gate.clone())
    }

    /// Runs a query on the gate inside the runtime, whose clock the gate uses.
    fn ask_inside<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&tidegate::Gate) -> T + Send,
    ) -> PyResult<T> {
        let (gate, runtime) = (self.gate(py)?, runtime::handle()?);
        Ok(py.detach(move || {
            let _context = runtime.enter();
            f(&gate)
        }))
    }

    /// Returns the call of these arguments, ready to run.
    fn call(
        &self,
        request: &Bound<'_, PyTuple>,
    ) -> PyResult<impl Future<Output = Result<Answer, Error>> + Send + use<>> {
        let (client, request, failures) = self.prepare(request, false)?;
        Ok(exchange(client, request, failures, ReadAhead::Yes))
    }

    /// Converts the arguments of a call. `is_custom`: the client's own transport makes the
    /// exchanges.
    fn prepare(
        &self,
        request: &Bound<'_, PyTuple>,
        is_custom: bool,
    ) -> PyResult<(Client, Request<RequestBody>, FailureMode)> {
        let (py, parts) = (request.py(), Parts::read(request)?);
        let request = parts.build(is_custom)?.map_err(|e| raised(py, &e))?;
        let (client, mode) = self.with(py, |open| (open.client.clone(), open.gate.mode()))?;
        let failures = parts.failure_mode(&request, mode);
        Ok((client, request, failures))
    }
}

/// Opens a gate in the current world.
fn open(py: Python<'_>, config: &Config, rules: Option<&ProxyRules>) -> PyResult<RuntimeBound<Open>> {
    let runtime = runtime::handle()?;
    // Read before the transport reads them, so that a change in between is noticed.
    let authorities = py.import("tidegate._transport.family")?.getattr("environment_authorities")?.call0()?;
    let transport = match world::transport() {
        None => proxies::transport(config.transport.clone(), rules).map(Transport::new),
        Some(transport) => Ok(transport),
    };
    let transport = transport.map_err(|e| raised(py, &e))?;
    // Detached, because opening can read files that name replicas.
    let gate = py.detach(|| {
        let _context = runtime.enter();
        tidegate::Gate::over(config.clone(), transport)
    });
    let gate = gate.map_err(|e| raised(py, &e))?;
    let client = gate.client();
    Ok(RuntimeBound::new(Open { gate, client, authorities: authorities.unbind() }, runtime))
}

#[pymethods]
impl Gate {
    /// Opens a gate with this configuration, in JSON with the keys of the file.
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        let config = py.detach(|| from_json(json).map(Config::from_json));
        Self::over(py, config.map_err(invalid)?.map_err(Error::from))
    }

    /// Opens a gate configured by a TOML file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::over(py, py.detach(|| config_file::read(path)))
    }

    /// Whether clients can bypass the gate: its mode is `off`, and it has no pool, whose name would
    /// have to be resolved.
    #[getter]
    fn aside(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |open| open.gate.is_bypassed())
    }

    /// The mode: `enforce`, `observe` or `off`.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |open| mode_name(open.gate.mode()))
    }

    /// The value of `environment_authorities` when the gate was opened.
    #[getter]
    fn authorities(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |open| open.authorities.clone_ref(py))
    }

    /// Returns the name of the target that receives such requests, or None.
    #[pyo3(signature = (url, model = None))]
    fn target_for(&self, py: Python<'_>, url: &str, model: Option<&str>) -> PyResult<Option<String>> {
        self.with(py, |open| target_for(&open.gate, url, model))?.map_err(|e| raised(py, &e))
    }

    /// Sets the replicas of a pool, given as a JSON list.
    fn set_replicas(&self, py: Python<'_>, target: String, json: &str) -> PyResult<()> {
        let replicas: Value = from_json(json).map_err(invalid)?;
        let set = self.ask_inside(py, |gate| gate.set_replicas_json(&target, &replicas))?;
        set.map_err(|e| raised(py, &e))?;
        self.replicas.remember(target, replicas);
        Ok(())
    }

    /// Returns the proxy rules for the mounts that `mounts()` returns, or None if `proxy_from_env`
    /// is false.
    fn proxies(&self, py: Python<'_>, mounts: &Bound<'_, PyAny>) -> PyResult<Option<ClientProxies>> {
        if self.proxies.is_none() {
            return Ok(None);
        }
        let rules = proxies::of_mounts(mounts.call0()?.extract()?).map_err(|e| raised(py, &e))?;
        Ok(Some(ClientProxies(rules)))
    }

    /// Returns the state of everything, as JSON.
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        self.ask_inside(py, |gate| to_json(&gate.snapshot()))?.map_err(invalid)
    }

    /// Returns all metrics, in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        self.ask_inside(py, tidegate::Gate::prometheus)
    }

    /// Returns the records of the last calls that ended, oldest first, as JSON.
    fn calls(&self, py: Python<'_>) -> PyResult<String> {
        let gate = self.gate(py)?;
        py.detach(|| to_json(&gate.calls().records())).map_err(invalid)
    }

    /// Returns what the call with that number or label waits for, as JSON; None if no such call is
    /// in flight.
    fn explain(&self, py: Python<'_>, call: CallName) -> PyResult<Option<String>> {
        let explanation = self.ask_inside(py, |gate| match &call {
            CallName::Number(id) => gate.explain(*id),
            CallName::Label(label) => gate.explain(label.as_str()),
        })?;
        explanation.as_ref().map(to_json).transpose().map_err(invalid)
    }

    /// Returns what each call in flight waits for, at most `limit` calls, as JSON.
    fn explain_all(&self, py: Python<'_>, limit: usize) -> PyResult<String> {
        self.ask_inside(py, |gate| to_json(&gate.explain_all(limit)))?.map_err(invalid)
    }

    /// Starts a call. Returns the asyncio future of its reply or error, and the number to cancel it
    /// by.
    #[pyo3(signature = (port, *request))]
    fn send(&self, port: &Bound<'_, Port>, request: &Bound<'_, PyTuple>) -> PyResult<(Py<PyAny>, u64)> {
        Port::submit(port, self.call(request)?)
    }

    /// Makes a call, and waits for its reply or error.
    #[pyo3(signature = (*request))]
    fn send_blocking(&self, py: Python<'_>, request: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        Box::new(block_on(py, self.call(request)?)?).into_python(py)
    }

    /// Starts a call by the client's own transport. `serve` returns the task that makes an
    /// exchange.
    #[pyo3(signature = (port, serve, *request))]
    fn send_kept(
        &self,
        port: &Bound<'_, Port>,
        serve: Py<PyAny>,
        request: &Bound<'_, PyTuple>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let (client, mut request, failures) = self.prepare(request, true)?;
        let host = OnLoop::new(port.get().mailbox(), serve, OriginalHead::of(&request));
        if !world::is_faked() {
            request.extensions_mut().insert(Foreign::new(host));
        }
        Port::submit(port, exchange(client, request, failures, ReadAhead::Yes))
    }

    /// Prepares a call by the client's own transport, whose exchanges the caller makes on its own
    /// thread.
    #[pyo3(signature = (*request))]
    fn start_kept(&self, request: &Bound<'_, PyTuple>) -> PyResult<CustomCall> {
        let (client, mut request, failures) = self.prepare(request, true)?;
        CustomCall::new(OriginalHead::of(&request), |host| {
            if !world::is_faked() {
                request.extensions_mut().insert(Foreign::new(host));
            }
            exchange(client, request, failures, ReadAhead::No)
        })
    }

    /// Starts a call whose request body the caller produces on its own thread.
    #[pyo3(signature = (*request))]
    fn start(&self, request: &Bound<'_, PyTuple>) -> PyResult<Call> {
        Call::start(self.call(request)?)
    }

    /// Requests a tool's slot: takes a free one, or prepares to wait for one.
    fn ask(
        &self,
        py: Python<'_>,
        tool: &str,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
        yield_slot: bool,
    ) -> PyResult<Asked> {
        let context = resolve(context, task);
        self.ask_inside(py, |gate| Asked(ToolRequest::new(gate, tool, context, yield_slot, YIELD_OPTION)))
    }

    /// Waits for a target's slot. Returns the asyncio future of the slot or error, and the number
    /// to cancel it by.
    fn acquire_slot(
        &self,
        port: &Bound<'_, Port>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let gate = self.gate(port.py())?;
        Port::submit(port, SlotHandle::acquire(gate, target, resolve(context, task)))
    }

    /// Waits for a target's slot. Returns the slot or the error.
    fn acquire_slot_blocking(
        &self,
        py: Python<'_>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let slot = SlotHandle::acquire(self.gate(py)?, target, resolve(context, task));
        Box::new(block_on(py, slot)?).into_python(py)
    }

    /// Rejects new calls, and waits for those in flight, at most `patience` seconds. Returns the
    /// asyncio future of the number of calls that are left, and the number that cancels it.
    fn drain(&self, port: &Bound<'_, Port>, patience: f64) -> PyResult<(Py<PyAny>, u64)> {
        let (gate, patience) = (self.gate(port.py())?, seconds("patience", patience).map_err(invalid)?);
        Port::submit(port, async move { CallsLeft(gate.drain(patience).await) })
    }

    /// Rejects new calls, and waits for those in flight. Returns the number of calls that are left.
    fn drain_blocking(&self, py: Python<'_>, patience: f64) -> PyResult<usize> {
        let (gate, patience) = (self.gate(py)?, seconds("patience", patience).map_err(invalid)?);
        block_on(py, async move { gate.drain(patience).await })
    }
}

/// The number or the label of a call.
#[derive(FromPyObject)]
enum CallName {
    Number(u64),
    Label(String),
}

/// The number of calls that were in flight when a drain ended.
struct CallsLeft(usize);

impl Outcome for CallsLeft {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}
