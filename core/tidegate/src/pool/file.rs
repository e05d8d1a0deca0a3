//! Replica discovery by a file that is read again at regular intervals.
//!
//! The file is opened by its path each time, and its contents are compared. A change is therefore
//! detected if the file is written in place, replaced by a rename, or replaced by changing a
//! symbolic link (as mounted ConfigMaps are). A file may be read while it is being written. New
//! contents are therefore used only if two reads in a row return the same text.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{self, ConfigError, ReplicaConfig};
use crate::read_file;

/// Maximum size of the file, in bytes: 1 MiB. A list of 128 replicas is far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Time between the two reads that must return the same text: 50 ms.
const SETTLE: Duration = Duration::from_millis(50);

/// Reads the file at `path` on a blocking thread. `last` is the text that was read before, or
/// `None` if none was. Returns the new text, or `None` if the text equals `last` or is still being
/// written.
///
/// # Errors
/// The reason why the file cannot be read.
pub(super) async fn look_up(path: PathBuf, last: Option<String>) -> Result<Option<String>, String> {
    let read = async || {
        let path = path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        read.unwrap_or_else(|_| Err("it could not be read".into()))
    };
    let first = read().await?;
    if last.as_ref() == Some(&first) {
        return Ok(None);
    }
    sleep(SETTLE).await;
    let second = read().await?;
    // The next lookup reads the file again.
    Ok((first == second).then_some(second))
}

/// Returns the text of the file. Blocks the thread while reading.
///
/// # Errors
/// The reason why the file cannot be read.
pub(super) fn read(path: &Path) -> Result<String, String> {
    read_file::read(path, MAX_FILE_BYTES).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses the replicas in `text`, which was read from the file at `path`. Only error messages use
/// `path`.
///
/// # Errors
/// The invalid parts of the file, one per line.
pub(super) fn members(path: &Path, text: &str) -> Result<Vec<ReplicaConfig>, String> {
    let named = |error: ConfigError| error.in_source(&path.display().to_string()).to_string();
    config::replicas_in_file(text).map_err(named)
}
