//! Opens the output files, either empty or with the records of a previous run.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::answered_lines::{AnsweredLines, ScanError};
use super::crash_safe_writer::{Sink, SyncWrite};
use crate::compression::Compression;

/// Paths of the output files of a run.
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
        let records = self.open(&self.records, |_, _| Ok(0))?;
        let errors = self.errors.as_ref().map(|path| self.open(path, |_, _| Ok(0))).transpose()?;
        Ok(self.sink(records, errors))
    }

    /// Opens the files of a previous run, removes incomplete records at their ends, and returns the
    /// input lines that the other records answer. With `retry_failed`, empties the file `errors`
    /// and does not return its lines, so that they are sent again. If `errors` is `None`,
    /// `retry_failed` has no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be opened or truncated, if another run is writing to it,
    /// if it is damaged, or if it was not written by a run.
    pub fn resume(&self, retry_failed: bool) -> Result<(Sink, AnsweredLines), OpenError> {
        let mut answered = AnsweredLines::default();
        let records = self.open(&self.records, |format, file| answered.scan(format, file))?;
        let errors = self.errors.as_ref().map(|path| {
            self.open(path, |format, file| {
                // Checked first, so that a file that was not written by a run is not emptied.
                let mut failed = AnsweredLines::default();
                let failed = if retry_failed { &mut failed } else { &mut answered };
                let whole = failed.scan(format, file)?;
                Ok(if retry_failed { 0 } else { whole })
            })
        });
        let errors = errors.transpose()?;
        Ok((self.sink(records, errors), answered))
    }

    fn sink(&self, records: File, errors: Option<File>) -> Sink {
        let failed_stream = self.errors.as_ref().zip(errors).map(|(path, file)| {
            let store: Box<dyn SyncWrite> = Box::new(file);
            (Compression::from_path(path), store)
        });
        Sink::new(Compression::from_path(&self.records), Box::new(records), failed_stream)
    }

    /// Opens and locks a file, creating it if necessary. Calls `kept_length` with its content, and
    /// truncates the file to the number of bytes that `kept_length` returns. Pipes and devices are
    /// not truncated.
    fn open(
        &self,
        path: &Path,
        kept_length: impl FnOnce(Compression, &mut BufReader<&mut File>) -> Result<u64, ScanError>,
    ) -> Result<File, OpenError> {
        let io_error = |error: io::Error| OpenError::new(path, error);
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
        // Pipes and devices have no length.
        if file.metadata().map_err(io_error)?.is_file() {
            file.set_len(length).map_err(io_error)?;
            file.seek(io::SeekFrom::Start(length)).map_err(io_error)?;
        }
        Ok(file)
    }
}
