//! The gate as Python holds it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde::Serialize;
use serde_json::Value;
use tidegate::config::Mode;
use tidegate::transport::{Foreign, ProxyRules};
use tidegate::{Client, Config, Error, ErrorKind, RequestBody, Transport, config_file, duration};
use tidegate_testing::world::{self, Worlds};

use crate::bridge::{Held, Outcome, Port, block_on, runtime};
use crate::context::{Context, resolve};
use crate::errors::raised;
use crate::kept::{KeptCall, OnLoop, Original};
use crate::manner::Manner;
use crate::proxies::{self, ClientProxies};
use crate::reply::{Ahead, Answer, exchange};
use crate::request::Parts;
use crate::slot::Slot;
use crate::tool::Asked;
use crate::upload::Call;

/// A gate. In a forked child it starts anew from its configuration: the parent's slots and connections are not the child's. So it does in
/// each world that a test enters ([`world`]), and is afterwards what it was before.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Gate {
    config: Config,
    /// Replicas that it was told of, by target: they hold in children and worlds as well.
    told: Mutex<BTreeMap<String, Value>>,
    /// The proxies of the environment when it was opened; `None` if the configuration takes none
    /// from there.
    proxies: Option<ProxyRules>,
    current: Mutex<Worlds<Held<Open>>>,
}

struct Open {
    gate: tidegate::Gate,
    client: Client,
    /// The fingerprint of the environment's authorities when the transport read them.
    authorities: Py<PyAny>,
}

impl Gate {
    fn over(py: Python<'_>, config: Result<Config, Error>) -> PyResult<Self> {
        let config = config.map_err(|e| raised(py, &e))?;
        let proxies = proxies::of_environment(py, &config.transport)?;
        let current = Mutex::new(Worlds::new(open(py, &config, proxies.as_ref())?));
        Ok(Self { config, told: Mutex::default(), proxies, current })
    }

    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&Open) -> T) -> PyResult<T> {
        loop {
            if let Some(open) = self.current.lock().present().and_then(Held::get) {
                return Ok(f(open));
            }
            self.change(py)?;
        }
    }

    /// Another world, or the child of a fork, met for the first time.
    fn change(&self, py: Python<'_>) -> PyResult<()> {
        // Not under the lock: opening may fail, and saying so runs Python code.
        let known = self.current.lock().knows(Held::usable);
        let fresh = if known { None } else { Some(self.reopen(py)?) };
        let gone = self.current.lock().change(fresh, Held::usable);
        drop(gone);
        Ok(())
    }

    fn reopen(&self, py: Python<'_>) -> PyResult<Held<Open>> {
        let told = self.told.lock().clone();
        let held = open(py, &self.config, self.proxies.as_ref())?;
        if let Some(open) = held.get() {
            let tell = |(target, replicas): (&String, &Value)| open.gate.set_replicas_json(target, replicas);
            told.iter().try_for_each(tell).map_err(|e| raised(py, &e))?;
        }
        Ok(held)
    }

    /// The gate itself, for whatever takes time: nothing may wait, nor Python code run, under the lock.
    fn gate(&self, py: Python<'_>) -> PyResult<tidegate::Gate> {
        self.with(py, |open| open.gate.clone())
    }

    /// Asks the gate something, by its runtime's clock.
    fn inside<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&tidegate::Gate) -> T + Send) -> PyResult<T> {
        let (gate, runtime) = (self.gate(py)?, runtime::handle()?);
        Ok(py.detach(move || {
            let _context = runtime.enter();
            f(&gate)
        }))
    }

    /// The call, ready to be run.
    fn call(
        &self,
        py: Python<'_>,
        parts: &Parts<'_, '_>,
    ) -> PyResult<impl Future<Output = Result<Answer, Error>> + Send + use<>> {
        let (client, request, manner) = self.prepare(py, parts)?;
        Ok(exchange(client, request, manner, Ahead::Take))
    }

    fn prepare(
        &self,
        py: Python<'_>,
        parts: &Parts<'_, '_>,
    ) -> PyResult<(Client, Request<RequestBody>, Manner)> {
        let request = parts.build()?.map_err(|e| raised(py, &e))?;
        let (client, mode) = self.with(py, |open| (open.client.clone(), open.gate.mode()))?;
        let manner = parts.manner(&request, mode);
        Ok((client, request, manner))
    }
}

fn open(py: Python<'_>, config: &Config, rules: Option<&ProxyRules>) -> PyResult<Held<Open>> {
    let runtime = runtime::handle()?;
    // Before the transport reads them: a change in between is then seen as one.
    let authorities = py.import("tidegate._transport.family")?.getattr("environment_authorities")?.call0()?;
    let transport = match world::transport() {
        None => proxies::transport(config.transport.clone(), rules).map(Transport::new),
        Some(transport) => Ok(transport),
    };
    let transport = transport.map_err(|e| raised(py, &e))?;
    // It may read files that name replicas.
    let gate = py.detach(|| {
        let _context = runtime.enter();
        tidegate::Gate::over(config.clone(), transport)
    });
    let gate = gate.map_err(|e| raised(py, &e))?;
    let client = gate.client();
    Ok(Held::new(Open { gate, client, authorities: authorities.unbind() }, runtime.clone()))
}

#[pymethods]
impl Gate {
    /// A gate of this configuration, given as JSON with the keys of the file.
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        let config = py.detach(|| Ok(Config::from_json(serde_json::from_str(json)?)));
        Self::over(
            py,
            config
                .map_err(|e: serde_json::Error| PyValueError::new_err(format!("not JSON: {e}")))?
                .map_err(Error::from),
        )
    }

    /// A gate configured by a TOML file.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::over(py, py.detach(|| config_file::read(path)))
    }

    /// Whether clients may go on as they are: it is off, and no pool's name is to be made an address.
    #[getter]
    fn aside(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |open| open.gate.is_aside())
    }

    /// `enforce`, `observe` or `off`.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |open| match open.gate.mode() {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
            Mode::Off => "off",
        })
    }

    /// What `environment_authorities` returned when the gate was opened.
    #[getter]
    fn authorities(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |open| open.authorities.clone_ref(py))
    }

    /// The configured target that takes such requests.
    #[pyo3(signature = (url, model = None))]
    fn target_for(&self, py: Python<'_>, url: &str, model: Option<&str>) -> PyResult<Option<String>> {
        // Without the URL: it may hold a key.
        let url = url
            .parse()
            .map_err(|e| raised(py, &Error::new(ErrorKind::Request, format!("the URL is malformed: {e}"))))?;
        let target = self.with(py, |open| open.gate.target_for(&url, model))?.map_err(|e| raised(py, &e))?;
        Ok(target.map(|name| name.to_string()))
    }

    /// Tells the replicas of a pool, given as a JSON list.
    fn set_replicas(&self, py: Python<'_>, target: String, json: &str) -> PyResult<()> {
        let replicas: Value =
            serde_json::from_str(json).map_err(|e| PyValueError::new_err(format!("not JSON: {e}")))?;
        let told = self.inside(py, |gate| gate.set_replicas_json(&target, &replicas))?;
        told.map_err(|e| raised(py, &e))?;
        self.told.lock().insert(target, replicas);
        Ok(())
    }

    /// Returns the proxy rules for the mounts that `mounts()` returns, or `None` if
    /// `proxy_from_env` is false.
    fn proxies(&self, py: Python<'_>, mounts: &Bound<'_, PyAny>) -> PyResult<Option<ClientProxies>> {
        if self.proxies.is_none() {
            return Ok(None);
        }
        let rules = proxies::of_mounts(mounts.call0()?.extract()?).map_err(|e| raised(py, &e))?;
        Ok(Some(ClientProxies(rules)))
    }

    /// The state of everything, as JSON.
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        self.inside(py, |gate| json(&gate.snapshot()))?
    }

    /// Every series, in Prometheus' text format.
    fn prometheus(&self, py: Python<'_>) -> PyResult<String> {
        self.inside(py, tidegate::Gate::prometheus)
    }

    /// The last calls that ended, oldest first, as JSON.
    fn calls(&self, py: Python<'_>) -> PyResult<String> {
        let gate = self.gate(py)?;
        py.detach(|| json(&gate.calls().records()))
    }

    /// Why the call of that number or name waits now, as JSON; None: no such call is under way.
    fn explain(&self, py: Python<'_>, call: Name) -> PyResult<Option<String>> {
        let told = self.inside(py, |gate| match &call {
            Name::Number(id) => gate.explain(*id),
            Name::Label(label) => gate.explain(label.as_str()),
        })?;
        told.as_ref().map(json).transpose()
    }

    /// The same of every call under way, at most `limit` of them, as JSON.
    fn explain_all(&self, py: Python<'_>, limit: usize) -> PyResult<String> {
        self.inside(py, |gate| json(&gate.explain_all(limit)))?
    }

    /// Starts a call. Returns the asyncio future of its reply (or error), and the number to cancel it by. With `wrapped`, the
    /// SDK above was told not to retry.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        port: &Bound<'_, Port>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
        wrapped: bool,
        task: Option<u64>,
        proxies: Option<&Bound<'_, ClientProxies>>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let call = self.call(
            port.py(),
            &Parts {
                method,
                url,
                headers,
                body,
                read,
                pool,
                context,
                wrapped,
                task,
                kept: false,
                proxies: proxies.map(Bound::get),
            },
        )?;
        Port::submit(port, call)
    }

    /// Makes a call and waits for its reply, or error.
    #[allow(clippy::too_many_arguments)]
    fn send_blocking(
        &self,
        py: Python<'_>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
        wrapped: bool,
        task: Option<u64>,
        proxies: Option<&Bound<'_, ClientProxies>>,
    ) -> PyResult<Py<PyAny>> {
        let call = self.call(
            py,
            &Parts {
                method,
                url,
                headers,
                body,
                read,
                pool,
                context,
                wrapped,
                task,
                kept: false,
                proxies: proxies.map(Bound::get),
            },
        )?;
        Box::new(block_on(py, call)?).into_python(py)
    }

    /// As `send`, by the client's own transport: `serve` makes of an exchange the task that serves it. A body of None is the transport's to read.
    #[allow(clippy::too_many_arguments)]
    fn send_kept(
        &self,
        port: &Bound<'_, Port>,
        serve: Py<PyAny>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
        wrapped: bool,
        task: Option<u64>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let parts = Parts {
            method,
            url,
            headers,
            body,
            read,
            pool,
            context,
            wrapped,
            task,
            kept: true,
            proxies: None,
        };
        let (client, mut request, manner) = self.prepare(port.py(), &parts)?;
        let host = OnLoop::new(port.get().mailbox(), serve, Original::of(&request));
        if !world::is_faked() {
            request.extensions_mut().insert(Foreign::new(host));
        }
        Port::submit(port, exchange(client, request, manner, Ahead::Take))
    }

    /// Prepares a call by the client's own transport, whose exchanges the caller serves from the same thread. A body of None is the transport's
    /// to read.
    #[allow(clippy::too_many_arguments)]
    fn start_kept(
        &self,
        py: Python<'_>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
        wrapped: bool,
        task: Option<u64>,
    ) -> PyResult<KeptCall> {
        let parts = Parts {
            method,
            url,
            headers,
            body,
            read,
            pool,
            context,
            wrapped,
            task,
            kept: true,
            proxies: None,
        };
        let (client, mut request, manner) = self.prepare(py, &parts)?;
        KeptCall::new(Original::of(&request), |host| {
            if !world::is_faked() {
                request.extensions_mut().insert(Foreign::new(host));
            }
            exchange(client, request, manner, Ahead::Leave)
        })
    }

    /// Starts a call that the caller feeds with its body from the same thread.
    #[allow(clippy::too_many_arguments)]
    fn start(
        &self,
        py: Python<'_>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
        wrapped: bool,
        task: Option<u64>,
        proxies: Option<&Bound<'_, ClientProxies>>,
    ) -> PyResult<Call> {
        let call = self.call(
            py,
            &Parts {
                method,
                url,
                headers,
                body,
                read,
                pool,
                context,
                wrapped,
                task,
                kept: false,
                proxies: proxies.map(Bound::get),
            },
        )?;
        Call::start(call)
    }

    /// Asks for a tool's slot: takes a free one, or prepares the wait for one.
    fn ask(
        &self,
        py: Python<'_>,
        tool: &str,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
        yield_slot: bool,
    ) -> PyResult<Asked> {
        let context = resolve(context, task);
        self.inside(py, |gate| Asked::of(gate, tool, context, yield_slot))
    }

    /// Waits for a target's slot. Returns the asyncio future of the slot (or error), and the number to cancel it by.
    fn acquire_slot(
        &self,
        port: &Bound<'_, Port>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let (gate, context) = (self.gate(port.py())?, resolve(context, task));
        Port::submit(port, Slot::acquire(gate, target, context))
    }

    /// Waits for a target's slot; the slot, or error.
    fn acquire_slot_blocking(
        &self,
        py: Python<'_>,
        target: String,
        context: Option<&Bound<'_, Context>>,
        task: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let (gate, context) = (self.gate(py)?, resolve(context, task));
        Box::new(block_on(py, Slot::acquire(gate, target, context))?).into_python(py)
    }

    /// Takes no new calls and waits for those under way. The asyncio future is of how many are left.
    fn drain(&self, port: &Bound<'_, Port>, patience: f64) -> PyResult<(Py<PyAny>, u64)> {
        let (gate, patience) = (self.gate(port.py())?, patience_of(patience)?);
        Port::submit(port, async move { Left(gate.drain(patience).await) })
    }

    /// The same, waited for.
    fn drain_blocking(&self, py: Python<'_>, patience: f64) -> PyResult<usize> {
        let (gate, patience) = (self.gate(py)?, patience_of(patience)?);
        block_on(py, async move { gate.drain(patience).await })
    }
}

pub(crate) fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| PyValueError::new_err(e.to_string()))
}

fn patience_of(seconds: f64) -> PyResult<Duration> {
    duration::from_secs(seconds).ok_or_else(|| {
        PyValueError::new_err(format!(
            "patience: {seconds} is not valid; give a finite number of seconds, 0 or more"
        ))
    })
}

/// What a call is known by.
#[derive(FromPyObject)]
enum Name {
    Number(u64),
    Label(String),
}

struct Left(usize);

impl Outcome for Left {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}
