//! Runs an earlier version of this program, for the time of a call with its gate switched off.

use std::env;
use std::process::{Command, Stdio};

use super::timed_operations::WHOLE_OFF;
use crate::Fallible;

/// The environment variable with the path of an earlier version of this program.
const VARIABLE: &str = "TIDEGATE_BENCH_EARLIER";

/// Returns the median nanoseconds of a whole call with the gate off in the earlier version. Returns
/// `None` if the environment does not name one.
///
/// # Errors
/// If the program fails or does not print this figure.
pub(super) fn off_call() -> Fallible<Option<f64>> {
    let Some(program) = env::var_os(VARIABLE) else { return Ok(None) };
    eprintln!("the earlier version");
    let run = Command::new(program).arg("hot-path").stderr(Stdio::null()).output()?;
    let text = String::from_utf8(run.stdout)?;
    let line = text.lines().last().filter(|_| run.status.success());
    let result: serde_json::Value = serde_json::from_str(line.ok_or("the earlier version failed")?)?;
    let median = result["figures"][format!("{WHOLE_OFF}, 1 thread, ns")]["median"].as_f64();
    Ok(Some(median.ok_or("the earlier version does not measure a whole call")?))
}
