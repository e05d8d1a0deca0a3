//! Opens the output files, with the records of a previous run or to overwrite them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::answered_lines::{AnsweredLines, CompletePart, ScanError};
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
    /// Opens and locks the files, whose content is to be removed.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be opened, or if another run is writing to it.
    pub fn overwrite(&self) -> Result<OpenOutputs, OpenError> {
        let records = OutputFile::open(&self.records)?;
        let errors = self.errors.as_deref().map(OutputFile::open).transpose()?;
        Ok(OpenOutputs { records, errors })
    }

    /// Opens and locks the files of a previous run, and returns the input lines that their records
    /// answer. Incomplete records at the ends of the files are to be removed. If both files answer
    /// a line, the record in `records` counts. With `retry_failed`, the whole content of the file
    /// `errors` is to be removed, and its lines are not returned, so that they are sent again. If
    /// `errors` is `None`, `retry_failed` has no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be opened, if another run is writing to it, if it is
    /// damaged, if it was not written by a run, or if `errors` contains answers. Returns an error
    /// about a pipe or device if `retry_failed` is set, or if `records` is the pipe or device and
    /// `errors` has records.
    pub fn resume(&self, retry_failed: bool) -> Result<(OpenOutputs, AnsweredLines), OpenError> {
        if let Some(errors) = self.errors.as_ref().filter(|_| retry_failed)
            && let Some(path) = [&self.records, errors].into_iter().find(|path| is_pipe_or_device(path))
        {
            return Err(OpenError::new(path, ScanError::NotResumable));
        }
        let (mut outputs, mut answered) = (self.overwrite()?, AnsweredLines::default());
        let records = &mut outputs.records;
        if records.is_regular {
            (answered, records.kept) = scan(&records.path, &mut records.file)?;
        }
        if let Some(errors) = outputs.errors.as_mut().filter(|errors| errors.is_regular) {
            let (failed, kept) = scan_errors(&errors.path, &mut errors.file)?;
            if !retry_failed {
                errors.kept = kept;
                answered.add_failed(failed);
            }
        }
        if !outputs.records.is_regular && !answered.is_empty() {
            return Err(OpenError::new(&self.records, ScanError::NotResumable));
        }
        Ok((outputs, answered))
    }

    /// Returns the input lines that [`Outputs::resume`] returns, but neither locks nor creates a
    /// file.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, if it is damaged, if it was not written by a run,
    /// or if `errors` contains answers.
    pub fn answered(&self, retry_failed: bool) -> Result<AnsweredLines, OpenError> {
        let open = |path: &Path| File::open(path).map_err(|error| OpenError::new(path, error));
        let mut answered = AnsweredLines::default();
        if self.records.is_file() {
            (answered, _) = scan(&self.records, &mut open(&self.records)?)?;
        }
        if let Some(errors) = self.errors.as_ref().filter(|path| path.is_file()) {
            let (failed, _) = scan_errors(errors, &mut open(errors)?)?;
            if !retry_failed {
                answered.add_failed(failed);
            }
        }
        Ok(answered)
    }
}

/// Reads a file of a previous run. Returns the input lines that its records answer, and its
/// complete part.
fn scan(path: &Path, file: &mut File) -> Result<(AnsweredLines, CompletePart), OpenError> {
    let mut answered = AnsweredLines::default();
    let kept = answered
        .scan(Compression::from_path(path), &mut BufReader::with_capacity(1 << 16, file))
        .map_err(|error| OpenError::new(path, error))?;
    Ok((answered, kept))
}

/// Reads a file of failed lines as [`scan`] does. Returns an error if it contains answers.
fn scan_errors(path: &Path, file: &mut File) -> Result<(AnsweredLines, CompletePart), OpenError> {
    let (failed, kept) = scan(path, file)?;
    if failed.good > 0 {
        return Err(OpenError::new(path, ScanError::AnswersInErrors));
    }
    Ok((failed, kept))
}

/// The open and locked files of a run. Their content is unchanged until [`OpenOutputs::truncate`].
#[derive(Debug)]
pub struct OpenOutputs {
    records: OutputFile,
    errors: Option<OutputFile>,
}

impl OpenOutputs {
    /// Removes the content of the files that is to be removed, and returns a sink that appends to
    /// the rest.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be truncated.
    pub fn truncate(mut self) -> Result<Sink, OpenError> {
        for file in [&mut self.records].into_iter().chain(&mut self.errors) {
            file.truncate()?;
        }
        let stream = |file: OutputFile| -> (Compression, Box<dyn SyncWrite>) {
            (Compression::from_path(&file.path), Box::new(file))
        };
        let (format, records) = stream(self.records);
        Ok(Sink::new(format, records, self.errors.map(stream)))
    }
}

/// Returns `true` if `path` exists and is not a regular file.
fn is_pipe_or_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file())
}

/// An open output: a locked regular file, or a pipe or device. Its errors contain its path.
#[derive(Debug)]
struct OutputFile {
    path: PathBuf,
    file: File,
    is_regular: bool,
    /// The start of a regular file, which is kept.
    kept: CompletePart,
}

impl OutputFile {
    /// Opens and locks a file, creating it if necessary. A pipe or device is only opened.
    fn open(path: &Path) -> Result<Self, OpenError> {
        let io_error = |error: io::Error| OpenError::new(path, error);
        let is_regular = !is_pipe_or_device(path);
        let mut options = OpenOptions::new();
        options.read(is_regular).write(true).create(is_regular).truncate(false);
        let file = options.open(path).map_err(io_error)?;
        if is_regular && !file.try_lock_exclusive().map_err(io_error)? {
            let busy = io::Error::new(
                io::ErrorKind::WouldBlock,
                "another run is writing to this file; wait until it has ended",
            );
            return Err(io_error(busy));
        }
        Ok(Self { path: path.to_owned(), file, is_regular, kept: CompletePart::default() })
    }

    /// Truncates a regular file to the part that is kept, and ends its last line.
    fn truncate(&mut self) -> Result<(), OpenError> {
        if !self.is_regular {
            return Ok(());
        }
        let CompletePart { bytes, lacks_line_end } = self.kept;
        let truncated = self.file.set_len(bytes).and_then(|()| self.file.seek(io::SeekFrom::Start(bytes)));
        let line_end: &[u8] = if lacks_line_end { b"\n" } else { b"" };
        truncated
            .and_then(|_| self.file.write_all(line_end))
            .map_err(|error| OpenError::new(&self.path, error))
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
