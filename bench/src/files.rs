//! Files that experiments write beside their sources.

use std::path::{Path, PathBuf};

use crate::Fallible;

/// Returns the path of a folder of the `bench` crate.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Writes `text`, with exactly one line break at its end, to a file. Creates the folder if needed.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Fallible<()> {
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join(name), format!("{}\n", text.trim_end()))?)
}
