//! Opens the output files, and resumes a previous run.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::answered_lines::{AnsweredLines, ScanError};
use super::sink::{Sink, SyncWrite};
use crate::compression::Compression;

/// The output files of a run.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// File for all records, or only for successful ones if `errors` is set.
    pub records: PathBuf,
    /// Separate file for failed records, if wanted.
    pub errors: Option<PathBuf>,
}

/// An output file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct OpenError {
    path: String,
    #[source]
    why: ScanError,
}

impl OpenError {
    fn new(path: &Path, why: impl Into<ScanError>) -> Self {
        Self { path: path.display().to_string(), why: why.into() }
    }
}

impl Outputs {
    /// Truncates the files and starts again.
    ///
    /// # Errors
    ///
    /// Returns the error of the files, with `WouldBlock` if another run is writing to one.
    pub fn overwrite(&self) -> Result<Sink, OpenError> {
        let records = self.open(&self.records, |_, _| Ok(0))?;
        let errors = self.errors.as_ref().map(|path| self.open(path, |_, _| Ok(0))).transpose()?;
        Ok(self.sink(records, errors))
    }

    /// Resumes with the existing records, after removing torn ends. With `again`, the failed lines
    /// are retried, and their file is emptied.
    ///
    /// # Errors
    ///
    /// Returns the error of the files, with `WouldBlock` if another run is writing to one. Also
    /// returns an error if a file is damaged or was not written by a run.
    pub fn resume(&self, again: bool) -> Result<(Sink, AnsweredLines), OpenError> {
        let mut found = AnsweredLines::default();
        let records = self.open(&self.records, |format, file| found.scan(format, file))?;
        let errors = self.errors.as_ref().map(|path| {
            self.open(path, |format, file| {
                // Checked first, so that a file that was not written by a run is not emptied.
                let mut failed = AnsweredLines::default();
                let failed = if again { &mut failed } else { &mut found };
                let whole = failed.scan(format, file)?;
                Ok(if again { 0 } else { whole })
            })
        });
        let errors = errors.transpose()?;
        Ok((self.sink(records, errors), found))
    }

    fn sink(&self, records: File, errors: Option<File>) -> Sink {
        let apart = self.errors.as_ref().zip(errors).map(|(path, file)| {
            let store: Box<dyn SyncWrite> = Box::new(file);
            (Compression::from_path(path), store)
        });
        Sink::new(Compression::from_path(&self.records), Box::new(records), apart)
    }

    /// Opens and locks a file, and truncates it to the length that `keep` returns.
    fn open(
        &self,
        path: &Path,
        keep: impl FnOnce(Compression, &mut BufReader<&mut File>) -> Result<u64, ScanError>,
    ) -> Result<File, OpenError> {
        let told = |why: io::Error| OpenError::new(path, why);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(told)?;
        if !file.try_lock_exclusive().map_err(told)? {
            let busy = io::Error::new(io::ErrorKind::WouldBlock, "another run is writing to this file");
            return Err(told(busy));
        }
        let kept = keep(Compression::from_path(path), &mut BufReader::with_capacity(1 << 16, &mut file))
            .map_err(|why| OpenError::new(path, why))?;
        // Pipes and devices have no length.
        if file.metadata().map_err(told)?.is_file() {
            file.set_len(kept).map_err(told)?;
            file.seek(io::SeekFrom::Start(kept)).map_err(told)?;
        }
        Ok(file)
    }
}
