//! Rejects imports of the module in subinterpreters.
//!
//! The runtime and the classes of this module exist once per process. A subinterpreter would share
//! them with the main interpreter, and its `atexit` callbacks would stop the gates of the main
//! interpreter.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The identifier of CPython's main interpreter.
const MAIN: i64 = 0;

/// Checks that the current interpreter is the main one. CPython 3.12 and later rejects isolated
/// subinterpreters by itself, but not legacy ones.
///
/// # Errors
///
/// `ImportError` in a subinterpreter.
#[allow(unsafe_code)]
pub(crate) fn require_main(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached to an interpreter, so there is a current one.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if current == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "tidegate cannot be imported in a subinterpreter, because its runtime belongs to the main interpreter of the \
         process. Run the application in the main interpreter (mod_wsgi: `WSGIApplicationGroup %{GLOBAL}`; uWSGI: \
         `single-interpreter = true`), or in a process of its own",
    ))
}
