//! Writes records, so that a kill at any moment loses nothing that was written and tears one line at most.
//!
//! Plain text goes out in one write for the lines that are there, at once. Compressed text is collected into pieces, each written whole after a second or a
//! megabyte: a kill costs the answers of that second. What is written survives the process; the machine's own end it survives once it is synced, every
//! five seconds and at the end.

use std::fs::File;
use std::io::{self, Write};
use std::mem::take;

use super::record::Record;
use crate::compression::Compression;

/// Ticks, a second each, between two syncs to the disk.
pub const SYNC_EVERY: u32 = 5;
/// A piece of so much text is not waited longer for.
const PIECE_BYTES: usize = 1 << 20;

/// Something that grows.
pub(crate) trait SyncWrite: Write + Send {
    /// Sees to it that what was written outlasts the machine.
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

/// Where records go. Calls block as writing does.
pub struct Sink {
    good: OutputStream,
    /// Where what failed goes, if not with the rest.
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

    /// Standard output: nothing is left there to go on from.
    pub fn stdout() -> Self {
        Self::new(Compression::Plain, Box::new(io::stdout()), None)
    }

    /// Takes a record; it is written by the next [`Sink::flush`] or [`Sink::tick`].
    ///
    /// # Errors
    /// As the file's: no more can be written then.
    pub fn put(&mut self, record: &Record) -> io::Result<()> {
        let stream = match &mut self.failed {
            Some(failed) if !record.outcome.is_good() => failed,
            _ => &mut self.good,
        };
        record.write(&mut stream.text)?;
        if stream.text.len() >= PIECE_BYTES { stream.write() } else { Ok(()) }
    }

    /// Writes what there is, where that is not compressed.
    ///
    /// # Errors
    /// As [`Sink::put`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.each(|stream| if stream.format == Compression::Plain { stream.write() } else { Ok(()) })
    }

    /// A second has passed: writes all there is, and sometimes syncs.
    ///
    /// # Errors
    /// As [`Sink::put`].
    pub fn tick(&mut self) -> io::Result<()> {
        self.ticks += 1;
        let sync = self.ticks.is_multiple_of(SYNC_EVERY);
        self.each(|stream| {
            stream.write()?;
            if sync { stream.sync() } else { Ok(()) }
        })
    }

    /// Writes and syncs all there is.
    ///
    /// # Errors
    /// As [`Sink::put`].
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
