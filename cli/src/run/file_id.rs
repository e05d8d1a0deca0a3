//! Recognizes two names of one file, such as hard links, symbolic links and `/dev/stdout`.

use std::path::Path;

use super::is_stdio;

/// Identifies a regular file or a pipe. Two names with equal values lead to the same file.
#[derive(PartialEq, Eq)]
pub(super) struct FileId(Id);

#[cfg(unix)]
type Id = (u64, u64);
#[cfg(not(unix))]
type Id = std::path::PathBuf;

impl FileId {
    /// Returns the identity of the input, where `-` means standard input.
    pub(super) fn from_input(path: &Path) -> Option<Self> {
        if is_stdio(path) { Self::from_stream(&std::io::stdin()) } else { Self::from_path(path) }
    }

    /// Returns the identity of an output, where `-` means standard output.
    pub(super) fn from_output(path: &Path) -> Option<Self> {
        if is_stdio(path) { Self::from_stdout() } else { Self::from_path(path) }
    }

    /// Returns the identity of the file or pipe that standard output leads to.
    pub(super) fn from_stdout() -> Option<Self> {
        Self::from_stream(&std::io::stdout())
    }
}

/// The functions return `None` for files that do not exist, and for devices, because terminals and
/// `/dev/null` can be read and written at once.
#[cfg(unix)]
impl FileId {
    fn from_path(path: &Path) -> Option<Self> {
        Self::from_metadata(&std::fs::metadata(path).ok()?)
    }

    fn from_stream(stream: &impl std::os::fd::AsFd) -> Option<Self> {
        let file = std::fs::File::from(stream.as_fd().try_clone_to_owned().ok()?);
        Self::from_metadata(&file.metadata().ok()?)
    }

    fn from_metadata(file: &std::fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let is_storage = file.is_file() || file.file_type().is_fifo();
        is_storage.then(|| Self((file.dev(), file.ino())))
    }
}

/// Other systems compare only paths, so hard links and redirected streams are not recognized.
#[cfg(not(unix))]
impl FileId {
    fn from_path(path: &Path) -> Option<Self> {
        std::fs::canonicalize(path).ok().filter(|path| path.is_file()).map(Self)
    }

    fn from_stream<T>(_: &T) -> Option<Self> {
        None
    }
}
