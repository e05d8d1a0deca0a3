//! Reads files that users name: regular files only, up to a size limit.
//!
//! Opening a FIFO blocks until another process writes to it, and opening a device may have side
//! effects. Both may be endless. So [`read`] checks the path before opening it, opens it without
//! blocking, because the path may have been replaced meanwhile, and checks the opened file again.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Returns the text of a regular file of at most `limit` bytes.
///
/// # Errors
/// Text that completes a sentence beginning with the path: the file cannot be read, is not a
/// regular file, is not UTF-8, or is larger than `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<String, String> {
    check_regular(&std::fs::metadata(path).map_err(unreadable)?)?;
    let file = open(path).map_err(unreadable)?;
    check_regular(&file.metadata().map_err(unreadable)?)?;
    read_text(file, limit)
}

/// Reads a source to its end, and returns its text of at most `limit` bytes.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_text(source: impl Read, limit: u64) -> Result<String, String> {
    let mut text = String::new();
    match source.take(limit.saturating_add(1)).read_to_string(&mut text) {
        Ok(length) if length as u64 > limit => Err(format!("is larger than {} MiB", limit >> 20)),
        Ok(_) => Ok(text),
        Err(error) => Err(unreadable(error)),
    }
}

/// Returns the error text for a file or source that could not be opened or read.
fn unreadable(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Returns `Ok` if the metadata are those of a regular file.
///
/// # Errors
/// Text that states what the path is instead, for example a directory.
fn check_regular(metadata: &Metadata) -> Result<(), String> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = kind(metadata.file_type());
    Err(format!("cannot be read: it is {kind}; name a regular file"))
}

/// Opens a file for reading. Returns immediately even if the path is a FIFO without a writer.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new().read(true).custom_flags(flags as i32).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// Returns the type of a path that is not a regular file, for error messages: for example, `a
/// directory`.
#[cfg(unix)]
fn kind(file: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    match file {
        file if file.is_dir() => "a directory",
        file if file.is_fifo() => "a FIFO or pipe",
        file if file.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind(file: FileType) -> &'static str {
    if file.is_dir() { "a directory" } else { "a device" }
}
