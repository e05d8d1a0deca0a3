//! Files that experiments write beside their sources.

use std::path::{Path, PathBuf};

use crate::Fallible;

/// Returns a folder of the crate `bench`.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Writes a text that ends in one line break; creates the folder if needed.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Fallible<()> {
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join(name), format!("{}\n", text.trim_end()))?)
}
