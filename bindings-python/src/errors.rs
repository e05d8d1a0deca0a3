//! The gate's errors as Python exceptions. Python maps the kind, never the text.

use std::error::Error as _;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tidegate::explain::Obstacle;
use tidegate::{Error, ErrorKind, Reason, duration};

/// The exception that says the same, as an object: `tidegate.Error` or the subclass of its kind.
pub(crate) fn instance(py: Python<'_>, error: &Error) -> PyResult<Py<PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "tidegate._errors", "from_native")?;
    let made = make.call1((
        error.kind().as_str(),
        error.to_string(),
        error.reason().map(|reason| reason.as_str()),
        error.target(),
        error.status().as_u16(),
        error.come_back().map(|after| after.as_secs_f64()),
        error.position(),
        error.retryable(),
        error.call(),
        error
            .why()
            .map(Obstacle::from)
            .map(|why| (why.rule, why.text, why.since, why.waited, why.expected, why.ahead)),
    ))?;
    // What the client's own transport raised.
    if let Some(original) = error.source().and_then(|source| source.downcast_ref::<PyErr>()) {
        made.setattr(intern!(py, "__cause__"), original.value(py))?;
    }
    Ok(made.unbind())
}

/// The same, to be raised.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match instance(py, error) {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(failed) => failed,
    }
}

/// The exception that an error of the core becomes. For conformance tests (`tests/vectors/errors.json`): not every kind of failure can be
/// had at will. `None` for a kind or reason that the core does not have.
#[pyfunction]
#[pyo3(signature = (kind, message, reason=None, target=None, retry_after=None, queue_position=None))]
pub(crate) fn error(
    py: Python<'_>,
    kind: &str,
    message: &str,
    reason: Option<&str>,
    target: Option<&str>,
    retry_after: Option<f64>,
    queue_position: Option<usize>,
) -> PyResult<Option<Py<PyAny>>> {
    let named = |known: &ErrorKind| known.as_str() == kind && known.reason().map(Reason::as_str) == reason;
    let Some(kind) = ErrorKind::ALL.into_iter().find(named) else { return Ok(None) };
    let seconds = |seconds: f64| {
        let message = || {
            PyValueError::new_err(format!(
                "retry_after: {seconds} is not valid; give a finite number of seconds, 0 or more"
            ))
        };
        duration::from_secs(seconds).ok_or_else(message)
    };
    let mut error = Error::new(kind, message).retry_after(retry_after.map(seconds).transpose()?);
    if let Some(target) = target {
        error = error.at(&target.into());
    }
    if let Some(position) = queue_position {
        error = error.queue_position(position);
    }
    instance(py, &error).map(Some)
}

/// What a reader finds when somebody else closed the response.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Transport, "this response was closed before it was read to the end")
}

/// What is left of a response in the child of a fork.
pub(crate) fn forked() -> Error {
    Error::new(
        ErrorKind::Transport,
        "this response belongs to the parent process: it cannot be read after a fork",
    )
}
