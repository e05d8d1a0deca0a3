//! A running sweep: a task on the runtime that reports its progress and can be stopped.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::Transport;
use tidegate::config::TransportConfig;
use tidegate_bindings::RuntimeBound;
use tidegate_sweep::{SweepError, SweepOutcome, SweepProgress};
use tidegate_testing::replaced_network;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::raised_sweep;
use crate::bridge::{Port, block_on, runtime};
use crate::errors::to_py_err;
use crate::proxies;

/// A running sweep. Dropping it aborts the sweep and ends its exchanges at once.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct SweepRun {
    stop: watch::Sender<bool>,
    progress: Arc<ProgressQueue>,
    task: RuntimeBound<AbortOnDrop>,
}

/// The progress reports that Python has not read yet: all reports of the end of a step, and at most
/// one later report. Because later reports replace each other, a slow reader does not make the
/// queue grow with each of them.
#[derive(Default)]
struct ProgressQueue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Progress reports in order of time: the report as JSON, and `true` if it reports the end of a
    /// step.
    unread: VecDeque<(String, bool)>,
    is_over: bool,
    result: Option<Result<SweepOutcome, SweepError>>,
}

impl ProgressQueue {
    /// Adds a progress report, and wakes the reader. If the last unread report is not about the end
    /// of a step, the new report replaces it.
    fn push(&self, progress: &SweepProgress) {
        let Ok(text) = serde_json::to_string(progress) else { return };
        let mut state = self.state.lock();
        // A later moment replaces an earlier one, but not a step that ended.
        if state.unread.back().is_some_and(|(_, is_step)| !is_step) {
            state.unread.pop_back();
        }
        state.unread.push_back((text, progress.step_ended.is_some()));
        drop(state);
        self.changed.notify_one();
    }

    /// Marks the sweep as over, and stores its result; `None` if the sweep was aborted. Further
    /// calls change nothing and only wake the reader.
    fn end(&self, result: Option<Result<SweepOutcome, SweepError>>) {
        let mut state = self.state.lock();
        if !state.is_over {
            (state.is_over, state.result) = (true, result);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next progress report, and returns it as JSON. Returns `None` when the sweep is
    /// over and all reports were read. Must be called by one reader only.
    async fn next(&self) -> Option<String> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some((text, _)) = state.unread.pop_front() {
                    return Some(text);
                }
                if state.is_over {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

/// A guard that aborts the task of the sweep when dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A guard that marks the sweep as over when dropped: at the end of its task, after a panic, or
/// after an abort.
struct EndOnDrop(Arc<ProgressQueue>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

impl SweepRun {
    /// Starts the sweep as a task on the runtime. `config` are the settings of its connections.
    ///
    /// # Errors
    ///
    /// `tidegate.ConfigError` if a proxy variable of the environment is invalid.
    pub(super) fn start(
        py: Python<'_>,
        sweep: tidegate_sweep::Sweep,
        config: &TransportConfig,
    ) -> PyResult<Self> {
        let runtime = runtime::handle()?;
        let _context = runtime.enter();
        let transport = match replaced_network::transport() {
            Some(transport) => transport,
            None => {
                let pool_idle = config.pool_idle.max(sweep.options().search.max_cap);
                let rules = proxies::of_environment(py, config)?;
                let config = TransportConfig { pool_idle, ..config.clone() };
                let http = proxies::transport(config, rules.as_ref());
                Transport::new(http.map_err(|e| to_py_err(py, &e))?)
            }
        };
        let (stop, stopped) = watch::channel(false);
        let progress = Arc::new(ProgressQueue::default());
        let task = {
            let progress = progress.clone();
            runtime.spawn(async move {
                let guard = EndOnDrop(progress.clone());
                let result = sweep.run(transport, |made| progress.push(made), stopped).await;
                guard.0.end(Some(result));
            })
        };
        Ok(Self {
            stop,
            progress,
            task: RuntimeBound::new(AbortOnDrop(task.abort_handle()), runtime.clone()),
        })
    }
}

#[pymethods]
impl SweepRun {
    /// Starts to wait for the next progress report. Returns an asyncio future, and the number that
    /// cancels the wait. The result of the future is the report as JSON, or None when the sweep is
    /// over.
    fn next(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let progress = self.progress.clone();
        Port::submit(port, async move { NextProgress(progress.next().await) })
    }

    /// Blocks until there is a progress report, and returns it as JSON. Returns None when the sweep
    /// is over.
    ///
    /// # Errors
    ///
    /// The exception of a signal handler, such as `KeyboardInterrupt`. It ends only the wait.
    fn next_blocking(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let progress = self.progress.clone();
        block_on(py, async move { progress.next().await })
    }

    /// Requests that the sweep ends early. Its result then contains the steps so far. Calls in
    /// flight have a few seconds to complete.
    fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Ends the sweep and its calls in flight at once, without a result. Does nothing if the sweep
    /// is over.
    fn abort(&self) {
        self.task.get().into_iter().for_each(|task| task.0.abort());
    }

    /// Takes the result out of a sweep that is over, and returns it as JSON.
    ///
    /// # Errors
    ///
    /// The error that prevented a result, or `RuntimeError` if there is no result: the sweep was
    /// aborted or is not over, or the result was taken before.
    fn result(&self, py: Python<'_>) -> PyResult<String> {
        match self.progress.state.lock().result.take() {
            Some(Ok(outcome)) => Ok(tidegate_sweep::report::json(&outcome)),
            Some(Err(error)) => Err(raised_sweep(py, error)),
            None => Err(PyRuntimeError::new_err("the sweep was aborted before it had a result")),
        }
    }
}

/// The result of a wait for progress: the report as JSON, or `None` when the sweep is over.
struct NextProgress(Option<String>);

impl crate::bridge::Outcome for NextProgress {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}
