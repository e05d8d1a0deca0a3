//! Detects forks of the process.

use pyo3::prelude::*;

/// Makes each fork of the process start a new [generation](tidegate_bindings::generation) in the
/// child.
///
/// The hooks of CPython (`os.register_at_fork`) would not do: they run for forks by Python code
/// only, and a server in C, such as uWSGI, forks its workers itself. A comparison of process
/// numbers would need several system calls in each call.
///
/// # Errors
///
/// `OSError` if memory is short.
#[cfg(unix)]
#[allow(unsafe_code)]
pub(crate) fn watch() -> PyResult<()> {
    extern "C" fn in_child() {
        tidegate_bindings::after_fork_in_child();
    }
    // SAFETY: the function only changes an atomic number, which is allowed in the child of a
    // process with several threads. The system unregisters it if this library is unloaded.
    let code = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(code).into()) }
}

/// Does nothing, because this platform has no forks.
#[cfg(not(unix))]
pub(crate) fn watch() -> PyResult<()> {
    Ok(())
}
