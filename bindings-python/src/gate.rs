//! The gate as Python holds it.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tidegate::{Client, Config};

use crate::bridge::{Held, Outcome, Port, block_on, runtime};
use crate::context::Context;
use crate::errors::raised;
use crate::reply::exchange;
use crate::request::Parts;

/// A gate. In a forked child it starts anew from its configuration: the parent's slots and connections are not the child's.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Gate {
    config: Config,
    current: Mutex<Held<Open>>,
}

struct Open {
    gate: tidegate::Gate,
    client: Client,
}

impl Gate {
    fn over(py: Python<'_>, config: Config) -> PyResult<Self> {
        let current = Mutex::new(open(py, &config)?);
        Ok(Self { config, current })
    }

    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&Open) -> T) -> PyResult<T> {
        let mut current = self.current.lock();
        if !current.usable() {
            *current = open(py, &self.config)?;
        }
        current.get().map(f).ok_or_else(|| raised(py, &crate::errors::forked()))
    }

    fn client(&self, py: Python<'_>) -> PyResult<Client> {
        self.with(py, |open| open.client.clone())
    }
}

fn open(py: Python<'_>, config: &Config) -> PyResult<Held<Open>> {
    let runtime = runtime::handle()?;
    let _context = runtime.enter();
    let gate = tidegate::Gate::new(config.clone()).map_err(|e| raised(py, &e))?;
    let client = gate.client();
    Ok(Held::new(Open { gate, client }, runtime.clone()))
}

#[pymethods]
impl Gate {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Self::over(py, Config::default())
    }

    /// Starts a call. Returns the asyncio future of its reply (or error), and the number to cancel it by.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        py: Python<'_>,
        port: &Bound<'_, Port>,
        method: &str,
        url: &str,
        headers: &Bound<'_, PyList>,
        body: &Bound<'_, PyAny>,
        read: Option<f64>,
        pool: Option<f64>,
        context: Option<&Bound<'_, Context>>,
    ) -> PyResult<(Py<PyAny>, u64)> {
        let request = Parts { method, url, headers, body, read, pool, context }.build()?;
        let request = request.map_err(|e| raised(py, &e))?;
        port.get().submit(py, exchange(self.client(py)?, request))
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
    ) -> PyResult<Py<PyAny>> {
        let request = Parts { method, url, headers, body, read, pool, context }.build()?;
        let request = request.map_err(|e| raised(py, &e))?;
        let answer = block_on(py, exchange(self.client(py)?, request))?;
        Box::new(answer).into_python(py)
    }
}
