//! A sweep under way: a task on the runtime, that tells how it goes and can be stopped.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::Transport;
use tidegate::config::TransportConfig;
use tidegate_sweep::{SweepError, SweepOutcome, SweepProgress};
use tidegate_testing::world;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::told;
use crate::bridge::{Held, Port, block_on, runtime};
use crate::errors::raised;
use crate::proxies;

/// A sweep that has begun. Dropping it ends every exchange at once.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct SweepRun {
    stop: watch::Sender<bool>,
    seen: Arc<Seen>,
    _task: Held<Ends>,
}

/// What was told, and not yet read: at most one moment after the last step that ended, however slowly it is read.
#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    told: VecDeque<(String, bool)>,
    over: bool,
    result: Option<Result<SweepOutcome, SweepError>>,
}

impl Seen {
    fn tell(&self, progress: &SweepProgress) {
        let Ok(text) = serde_json::to_string(progress) else { return };
        let mut state = self.state.lock();
        // A moment is worth nothing once there is a later one; a step that ended is.
        if state.told.back().is_some_and(|(_, keeps)| !keeps) {
            state.told.pop_back();
        }
        state.told.push_back((text, progress.step_ended.is_some()));
        drop(state);
        self.changed.notify_one();
    }

    fn end(&self, result: Option<Result<SweepOutcome, SweepError>>) {
        let mut state = self.state.lock();
        if !state.over {
            (state.over, state.result) = (true, result);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// What was told next; `None` when it is over. For one reader.
    async fn next(&self) -> Option<String> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some((text, _)) = state.told.pop_front() {
                    return Some(text);
                }
                if state.over {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

/// Ends the task with whoever held it.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says that it is over however the task goes: its end, a panic, an abort.
struct Over(Arc<Seen>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

impl SweepRun {
    pub(super) fn start(py: Python<'_>, sweep: tidegate_sweep::Sweep) -> PyResult<Self> {
        let runtime = runtime::handle()?;
        let _context = runtime.enter();
        let transport = match world::transport() {
            Some(transport) => transport,
            None => {
                let usual = TransportConfig::default();
                let pool_idle = usual.pool_idle.max(sweep.options().search.max_cap);
                let rules = proxies::of_environment(py, &usual)?;
                let http = proxies::transport(TransportConfig { pool_idle, ..usual }, rules.as_ref());
                Transport::new(http.map_err(|e| raised(py, &e))?)
            }
        };
        let (stop, stopped) = watch::channel(false);
        let seen = Arc::new(Seen::default());
        let task = {
            let seen = seen.clone();
            runtime.spawn(async move {
                let over = Over(seen.clone());
                let result = sweep.run(transport, |progress| seen.tell(progress), stopped).await;
                over.0.end(Some(result));
            })
        };
        Ok(Self { stop, seen, _task: Held::new(Ends(task.abort_handle()), runtime.clone()) })
    }
}

#[pymethods]
impl SweepRun {
    /// How it goes, as JSON; None when it is over. Returns the asyncio future of it, and the number to cancel it by.
    fn next(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let seen = self.seen.clone();
        Port::submit(port, async move { Told(seen.next().await) })
    }

    /// The same, waited for. A signal handler that raises ends the waiting only.
    fn next_blocking(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let seen = self.seen.clone();
        block_on(py, async move { seen.next().await })
    }

    /// Asks it to end with what is known. What is in flight may come to its end for a few seconds.
    fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Its result as JSON, once, when it is over; raises what kept it from one.
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        match self.seen.state.lock().result.take() {
            Some(Ok(outcome)) => Ok(tidegate_sweep::report::json(&outcome)),
            Some(Err(error)) => Err(told(py, error)),
            None => Err(PyRuntimeError::new_err("the sweep was cut off before it came to a result")),
        }
    }
}

struct Told(Option<String>);

impl crate::bridge::Outcome for Told {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}
