//! Replicas by a file, which is read again when its time comes.
//!
//! It is opened by its path each time, and its contents are compared: so what takes its place by a rename, or by turning a link round (as mounted ConfigMaps do), is
//! seen as what is written into it. A file that somebody writes in place may be read half done: it counts once two looks in a row found the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{self, ConfigError, ReplicaConfig};
use crate::files;

/// Larger is no list of 128 replicas.
const LARGEST: u64 = 1 << 20;
/// Between the two looks that must agree.
const SETTLE: Duration = Duration::from_millis(50);

/// What a look found.
pub(super) enum Found {
    /// What the last one did.
    Same,
    /// Another text; it is still being written, or says what it says.
    Text(String),
}

/// Reads it, off the threads that serve calls, until it holds still.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn look(path: PathBuf, last: Option<String>) -> Result<Found, String> {
    let first = off(path.clone()).await?;
    if last.as_ref() == Some(&first) {
        return Ok(Found::Same);
    }
    sleep(SETTLE).await;
    let second = off(path).await?;
    // The next look will tell.
    Ok(if first == second { Found::Text(second) } else { Found::Same })
}

async fn off(path: PathBuf) -> Result<String, String> {
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    read.unwrap_or_else(|_| Err("it could not be read".into()))
}

/// # Errors
/// As [`look`].
pub(super) fn read(path: &Path) -> Result<String, String> {
    files::read(path, LARGEST).map_err(|why| format!("{}: {why}", path.display()))
}

/// What it says.
///
/// # Errors
/// What of it cannot be understood, a line each.
pub(super) fn members(path: &Path, text: &str) -> Result<Vec<ReplicaConfig>, String> {
    let named = |error: ConfigError| error.in_source(&path.display().to_string()).to_string();
    config::replicas_in_file(text).map_err(named)
}
