//! Arguments in seconds that a Python program passes.

use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use tidegate_bindings::seconds;

use crate::errors::argument_error;

/// Converts an argument into a number of seconds. `name` is the name of the argument in the error
/// message.
///
/// # Errors
///
/// `TypeError` if the argument is not a number, and `ValueError` if it is an integer that is too
/// large for a float.
pub(crate) fn to_seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().map_err(|error: PyErr| {
        let py = value.py();
        let message = format!("{name}: {}; give a number of seconds", error.value(py));
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(message)
        } else if error.is_instance_of::<PyOverflowError>(py) {
            PyValueError::new_err(message)
        } else {
            error
        }
    })
}

/// Converts an argument in seconds into a duration. `name` is the name of the argument in the error
/// message.
///
/// # Errors
///
/// As [`to_seconds`]. `ValueError` also if the number is negative, infinite or not a number.
pub(crate) fn to_duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    seconds(name, to_seconds(name, value)?).map_err(argument_error)
}
