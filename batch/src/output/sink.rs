//! Writes records such that a kill loses no written record and tears at most one line.
//!
//! Plain text is written at once, in one write per batch of records. Compressed text is collected
//! into pieces that are written after a second or a megabyte, so a kill loses the answers of that
//! second. Written data survive the process. They survive a power failure once they are synced,
//! every five seconds and at the end.

use std::fs::File;
use std::io::{self, Write};
use std::mem::take;

use super::record::Record;
use crate::compression::Compression;

/// Number of ticks, of one second each, between two syncs.
pub const SYNC_EVERY: u32 = 5;
/// Size at which a compressed piece is written without waiting longer, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A file that can be synced to disk.
pub(crate) trait SyncWrite: Write + Send {
    /// Waits until the written data survive a power failure.
    fn sync(&mut self) -> io::Result<()>;
}

impl SyncWrite for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl SyncWrite for io::Stdout {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The destination of records. Its methods block.
pub struct Sink {
    good: OutputStream,
    /// Separate destination of failed records, if any.
    failed: Option<OutputStream>,
    ticks: u32,
}

struct OutputStream {
    format: Compression,
    store: Box<dyn SyncWrite>,
    text: Vec<u8>,
    unsynced: bool,
}

impl Sink {
    pub(crate) fn new(
        format: Compression,
        good: Box<dyn SyncWrite>,
        failed: Option<(Compression, Box<dyn SyncWrite>)>,
    ) -> Self {
        let stream = |format, store| OutputStream { format, store, text: Vec::new(), unsynced: false };
        let failed = failed.map(|(format, store)| stream(format, store));
        Self { good: stream(format, good), failed, ticks: 0 }
    }

    /// Returns a sink for standard output, which cannot be resumed.
    pub fn stdout() -> Self {
        Self::new(Compression::Plain, Box::new(io::stdout()), None)
    }

    /// Adds a record, which the next [`Sink::flush`] or [`Sink::tick`] writes.
    ///
    /// # Errors
    ///
    /// Returns the error of the file. The sink cannot be used any more.
    pub fn put(&mut self, record: &Record) -> io::Result<()> {
        let stream = match &mut self.failed {
            Some(failed) if !record.outcome.is_good() => failed,
            _ => &mut self.good,
        };
        record.write(&mut stream.text)?;
        if stream.text.len() >= PIECE_BYTES { stream.write() } else { Ok(()) }
    }

    /// Writes the pending records, unless the output is compressed.
    ///
    /// # Errors
    ///
    /// As for [`Sink::put`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.each(|stream| if stream.format == Compression::Plain { stream.write() } else { Ok(()) })
    }

    /// Writes all pending records, and syncs every [`SYNC_EVERY`] calls. Must be called once per
    /// second.
    ///
    /// # Errors
    ///
    /// As for [`Sink::put`].
    pub fn tick(&mut self) -> io::Result<()> {
        self.ticks += 1;
        let sync = self.ticks.is_multiple_of(SYNC_EVERY);
        self.each(|stream| {
            stream.write()?;
            if sync { stream.sync() } else { Ok(()) }
        })
    }

    /// Writes and syncs all pending records.
    ///
    /// # Errors
    ///
    /// As for [`Sink::put`].
    pub fn finish(mut self) -> io::Result<()> {
        self.each(|stream| {
            stream.write()?;
            stream.sync()
        })
    }

    fn each(&mut self, mut what: impl FnMut(&mut OutputStream) -> io::Result<()>) -> io::Result<()> {
        what(&mut self.good)?;
        self.failed.as_mut().map_or(Ok(()), what)
    }
}

impl OutputStream {
    fn write(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let piece = self.format.piece(take(&mut self.text))?;
        self.unsynced = true;
        self.store.write_all(&piece)?;
        self.store.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        if take(&mut self.unsynced) { self.store.sync() } else { Ok(()) }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("apart", &self.failed.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) use tests::MemoryFile;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// A file in memory.
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
