//! Writes records such that a kill loses no written record and leaves at most one line incomplete.
//!
//! Records of plain files are written by [`Sink::flush`], which the writer calls when no further
//! records are queued. Records of compressed files are collected into pieces, which are written
//! after one second or one mebibyte, so a kill loses the answers of at most that second. Written
//! data survive a kill of the process. They survive a power failure once they are synced, which
//! happens every five seconds and at the end.

use std::io::{self, Write};
use std::mem::take;

use super::output_record::Record;
use crate::compression::Compression;

/// Number of calls of [`Sink::tick`] after which the files are synced. One call per second means
/// one sync every five seconds.
pub const SYNC_EVERY: u32 = 5;
/// Size of the buffered records of a file, in bytes, at which they are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// A file that can be synced to disk.
pub(crate) trait SyncWrite: Write + Send {
    /// Blocks until the data written so far are on disk and survive a power failure. Does nothing
    /// for standard output, pipes and devices.
    fn sync(&mut self) -> io::Result<()>;
}

impl SyncWrite for io::Stdout {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes records to one file, to separate files for successful and failed lines, or to standard
/// output. The methods block the thread.
pub struct Sink {
    good: OutputStream,
    /// Destination of the records of failed lines. With `None`, they are written to `good`.
    failed: Option<OutputStream>,
    ticks: u32,
}

struct OutputStream {
    format: Compression,
    file: Box<dyn SyncWrite>,
    pending: Vec<u8>,
    unsynced: bool,
}

impl Sink {
    pub(crate) fn new(
        format: Compression,
        good: Box<dyn SyncWrite>,
        failed: Option<(Compression, Box<dyn SyncWrite>)>,
    ) -> Self {
        let stream = |format, file| OutputStream { format, file, pending: Vec::new(), unsynced: false };
        let failed = failed.map(|(format, file)| stream(format, file));
        Self { good: stream(format, good), failed, ticks: 0 }
    }

    /// Returns a sink that writes to standard output. Such an output cannot be resumed.
    pub fn stdout() -> Self {
        Self::new(Compression::Plain, Box::new(io::stdout()), None)
    }

    /// Buffers a record. [`Sink::flush`] or [`Sink::tick`] writes it later. If the buffered records
    /// of a file reach one mebibyte, writes them at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. The sink must not be used after an error.
    pub fn write_record(&mut self, record: &Record) -> io::Result<()> {
        let stream = match &mut self.failed {
            Some(failed) if !record.outcome.is_good() => failed,
            _ => &mut self.good,
        };
        record.write(&mut stream.pending)?;
        if stream.pending.len() >= PIECE_BYTES { stream.write() } else { Ok(()) }
    }

    /// Writes the pending records of plain files. Compressed files are written by [`Sink::tick`].
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written. The sink must not be used after an error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.for_each_stream(
            |stream| if stream.format == Compression::Plain { stream.write() } else { Ok(()) },
        )
    }

    /// Writes all pending records. Every fifth call also syncs the files. Call this once per
    /// second.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written. The sink must not be used after an error.
    pub fn tick(&mut self) -> io::Result<()> {
        self.ticks += 1;
        let sync = self.ticks.is_multiple_of(SYNC_EVERY);
        self.for_each_stream(|stream| {
            stream.write()?;
            if sync { stream.sync() } else { Ok(()) }
        })
    }

    /// Writes all pending records, and syncs the files.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.for_each_stream(|stream| {
            stream.write()?;
            stream.sync()
        })
    }

    fn for_each_stream(
        &mut self,
        mut action: impl FnMut(&mut OutputStream) -> io::Result<()>,
    ) -> io::Result<()> {
        action(&mut self.good)?;
        self.failed.as_mut().map_or(Ok(()), action)
    }
}

impl OutputStream {
    fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let piece = self.format.compress_piece(take(&mut self.pending))?;
        self.unsynced = true;
        self.file.write_all(&piece)?;
        self.file.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        if take(&mut self.unsynced) { self.file.sync() } else { Ok(()) }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("separate_failures", &self.failed.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) use tests::MemoryFile;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// A file in memory. Clones share their content.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct MemoryFile(Arc<Mutex<Vec<u8>>>);

    impl MemoryFile {
        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.0.lock().clone()
        }
    }

    impl Write for MemoryFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl SyncWrite for MemoryFile {
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
