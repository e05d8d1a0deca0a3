//! Passes what the gates log to the logger `tidegate` of the module `logging`.

use pyo3::prelude::*;
use tidegate::{LogLevel, forward_log_lines};

/// Passes the log of this process to Python from now on.
pub(crate) fn forward() {
    forward_log_lines(|level, line| {
        // `None`: the interpreter is exiting. A handler of the program that fails reports this
        // itself.
        let _ = Python::try_attach(|py| log(py, level, &line));
    });
}

fn log(py: Python<'_>, level: LogLevel, line: &str) -> PyResult<()> {
    let method = match level {
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
    };
    py.import("logging")?.call_method1("getLogger", ("tidegate",))?.call_method1(method, (line,))?;
    Ok(())
}
