//! Opens the output files, either empty or with the records of a previous run.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::answered_lines::{AnsweredLines, ScanError};
use super::crash_safe_writer::{Sink, SyncWrite};
use crate::compression::Compression;

/// Paths of the output files of a run.
///
/// A path may also lead to a pipe or a device, such as `/dev/stdout` or `/dev/null`. These are
/// neither locked, read, truncated nor synced, and a run cannot be resumed from them. Opening a
/// named pipe blocks until another process opens it for reading.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// File for all records, or only for those of successful lines if `errors` is `Some`.
    pub records: PathBuf,
    /// Separate file for the records of failed lines. With `None`, they are written to `records`.
    pub errors: Option<PathBuf>,
}

/// An output file that cannot be opened, with its path and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct OpenError {
    path: String,
    #[source]
    error: ScanError,
}

impl OpenError {
    fn new(path: &Path, error: impl Into<ScanError>) -> Self {
        Self { path: path.display().to_string(), error: error.into() }
    }
}

impl Outputs {
    /// Opens the files and removes their content.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be opened or truncated, or if another run is writing to
    /// it.
    pub fn overwrite(&self) -> Result<Sink, OpenError> {
        let records = OutputFile::open(&self.records, |_, _| Ok(0))?;
        let errors = self.errors.as_ref().map(|path| OutputFile::open(path, |_, _| Ok(0))).transpose()?;
        Ok(sink(records, errors))
    }

    /// Opens the files of a previous run, removes incomplete records at their ends, and returns the
    /// input lines that the other records answer. If both files answer a line, the record in
    /// `records` counts. With `retry_failed`, empties the file `errors`
    /// and does not return its lines, so that they are sent again. If `errors` is `None`,
    /// `retry_failed` has no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be opened or truncated, if another run is writing to it,
    /// if it is damaged, or if it was not written by a run. Returns an error about a pipe or device
    /// if `retry_failed` is set, or if `records` is the pipe or device and `errors` has records.
    pub fn resume(&self, retry_failed: bool) -> Result<(Sink, AnsweredLines), OpenError> {
        if let Some(errors) = self.errors.as_ref().filter(|_| retry_failed)
            && let Some(path) = [&self.records, errors].into_iter().find(|path| is_pipe_or_device(path))
        {
            return Err(OpenError::new(path, ScanError::NotResumable));
        }
        let mut answered = AnsweredLines::default();
        let records = OutputFile::open(&self.records, |format, file| answered.scan(format, file))?;
        let errors = self.errors.as_ref().map(|path| {
            OutputFile::open(path, |format, file| {
                // Scanned first, so that a file that was not written by a run is not emptied.
                let mut failed = AnsweredLines::default();
                let whole = failed.scan(format, file)?;
                if retry_failed {
                    return Ok(0);
                }
                answered.add_failed(failed);
                Ok(whole)
            })
        });
        let errors = errors.transpose()?;
        if !records.is_regular && !answered.is_empty() {
            return Err(OpenError::new(&self.records, ScanError::NotResumable));
        }
        Ok((sink(records, errors), answered))
    }
}

fn sink(records: OutputFile, errors: Option<OutputFile>) -> Sink {
    let stream = |file: OutputFile| -> (Compression, Box<dyn SyncWrite>) {
        (Compression::from_path(&file.path), Box::new(file))
    };
    let (format, records) = stream(records);
    Sink::new(format, records, errors.map(stream))
}

/// Returns `true` if `path` exists and is not a regular file.
fn is_pipe_or_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file())
}

/// An open output: a locked regular file, or a pipe or device. Its errors contain its path.
struct OutputFile {
    path: PathBuf,
    file: File,
    is_regular: bool,
}

impl OutputFile {
    /// Opens and locks a file, creating it if necessary. Calls `kept_length` with its content, and
    /// truncates the file to the number of bytes that `kept_length` returns. A pipe or device is
    /// only opened.
    fn open(
        path: &Path,
        kept_length: impl FnOnce(Compression, &mut BufReader<&mut File>) -> Result<u64, ScanError>,
    ) -> Result<Self, OpenError> {
        let io_error = |error: io::Error| OpenError::new(path, error);
        if is_pipe_or_device(path) {
            let file = OpenOptions::new().write(true).open(path).map_err(io_error)?;
            return Ok(Self { path: path.to_owned(), file, is_regular: false });
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io_error)?;
        if !file.try_lock_exclusive().map_err(io_error)? {
            let busy = io::Error::new(
                io::ErrorKind::WouldBlock,
                "another run is writing to this file; wait until it has ended",
            );
            return Err(io_error(busy));
        }
        let length =
            kept_length(Compression::from_path(path), &mut BufReader::with_capacity(1 << 16, &mut file))
                .map_err(|error| OpenError::new(path, error))?;
        file.set_len(length).map_err(io_error)?;
        file.seek(io::SeekFrom::Start(length)).map_err(io_error)?;
        Ok(Self { path: path.to_owned(), file, is_regular: true })
    }

    fn with_path(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| self.with_path(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.with_path(&error))
    }
}

impl SyncWrite for OutputFile {
    fn sync(&mut self) -> io::Result<()> {
        if !self.is_regular {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.with_path(&error))
    }
}
