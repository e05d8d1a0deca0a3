//! Paths below `bench/`, and a function that writes result files there.

use std::path::{Path, PathBuf};

use crate::Fallible;

/// Returns the absolute path of a file or folder below `bench/`. An empty `name` is `bench/`
/// itself.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Writes `text` to the file `name` in `folder`, with exactly one line break at its end. Creates
/// the folder if needed, and replaces an existing file.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Fallible<()> {
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join(name), format!("{}\n", text.trim_end()))?)
}
