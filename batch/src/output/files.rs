//! Opens the files that a run writes to, and goes on where one before has ended.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::answered_lines::{AnsweredLines, ScanError};
use super::sink::{Sink, SyncWrite};
use crate::compression::Compression;

/// The files that a run writes to.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// All records, or the good ones.
    pub records: PathBuf,
    /// The others, where they are wanted apart.
    pub errors: Option<PathBuf>,
}

/// Why a file cannot be written to.
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
    /// Begins anew: what stands in them is gone.
    ///
    /// # Errors
    /// As the files'; `WouldBlock` where another run writes to one.
    pub fn overwrite(&self) -> Result<Sink, OpenError> {
        let records = self.open(&self.records, |_, _| Ok(0))?;
        let errors = self.errors.as_ref().map(|path| self.open(path, |_, _| Ok(0))).transpose()?;
        Ok(self.sink(records, errors))
    }

    /// Goes on: what they hold stays, but for torn ends. With `again`, what failed before is asked for once more, and their file begins anew.
    ///
    /// # Errors
    /// As the files'; `WouldBlock` where another run writes to one; where one is not from a run, or damaged.
    pub fn resume(&self, again: bool) -> Result<(Sink, AnsweredLines), OpenError> {
        let mut found = AnsweredLines::default();
        let records = self.open(&self.records, |format, file| found.scan(format, file))?;
        let errors = self.errors.as_ref().map(|path| {
            self.open(path, |format, file| {
                // A file that is not a run's is not emptied either.
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

    /// Opens a file that nobody else writes to, and cuts it off where `keep` says.
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
            let busy = io::Error::new(io::ErrorKind::WouldBlock, "another run is writing to it");
            return Err(told(busy));
        }
        let kept = keep(Compression::from_path(path), &mut BufReader::with_capacity(1 << 16, &mut file))
            .map_err(|why| OpenError::new(path, why))?;
        // A pipe or a device has neither length nor place.
        if file.metadata().map_err(told)?.is_file() {
            file.set_len(kept).map_err(told)?;
            file.seek(io::SeekFrom::Start(kept)).map_err(told)?;
        }
        Ok(file)
    }
}
