//! Converts errors of the core into Python exceptions. The kind of an error, and never its text,
//! determines the class.

use std::error::Error as _;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tidegate::Error;
use tidegate::explain::Obstacle;
use tidegate_bindings::{InvalidArgument, error_from_parts};

/// Creates the Python exception for an error: a `tidegate.Error`, or the subclass for its kind.
pub(crate) fn to_exception(py: Python<'_>, error: &Error) -> PyResult<Py<PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "tidegate._errors", "from_native")?;
    let made = make.call1((
        error.kind().as_str(),
        error.to_string(),
        error.reason().map(|reason| reason.as_str()),
        error.target(),
        error.status().as_u16(),
        error.retry_after().map(|after| after.as_secs_f64()),
        error.queue_position(),
        error.retryable(),
        error.call(),
        error
            .why()
            .map(Obstacle::from)
            .map(|why| (why.rule, why.text, why.since, why.waited, why.expected, why.ahead)),
    ))?;
    // The exception of the client's own transport.
    if let Some(original) = error.source().and_then(|source| source.downcast_ref::<PyErr>()) {
        made.setattr(intern!(py, "__cause__"), original.value(py))?;
    }
    Ok(made.unbind())
}

/// Creates the Python exception for an error, as a `PyErr` that a native function can raise.
pub(crate) fn to_py_err(py: Python<'_>, error: &Error) -> PyErr {
    match to_exception(py, error) {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(failed) => failed,
    }
}

/// Converts an invalid argument into a `ValueError`.
pub(crate) fn argument_error(argument: InvalidArgument) -> PyErr {
    PyValueError::new_err(argument.to_string())
}

/// Creates the exception for an error with these parts. Conformance tests
/// (`tests/vectors/errors.json`) need this, because they cannot provoke every error. Returns None
/// if the core has no error of this `kind` with this `reason`. `retry_after` is in seconds.
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
    let error = error_from_parts(kind, message.to_owned(), reason, target, retry_after, queue_position);
    error.map_err(argument_error)?.map(|error| to_exception(py, &error)).transpose()
}
