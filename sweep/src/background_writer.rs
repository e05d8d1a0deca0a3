//! Writes a file on a thread of its own, because a slow disk would delay the client and distort the
//! measurement.
//!
//! Lines are written in order. After an error nothing more is written, and [`Writer::finish`]
//! returns the error: a sweep that has cost time and money goes on without its files.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde::Serialize;

use crate::error::SweepError;

enum WriteRequest {
    Write(Vec<u8>),
    Sync,
}

/// Handle of a thread that writes one file. Dropping it blocks until everything is written.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    requests: Option<Sender<WriteRequest>>,
    thread: Option<JoinHandle<()>>,
    first_error: Arc<Mutex<Option<std::io::Error>>>,
}

impl Writer {
    pub(crate) fn new(path: &Path, file: File) -> Result<Self, SweepError> {
        let (requests, receiver) = channel();
        let first_error = Arc::new(Mutex::new(None));
        let thread_error = first_error.clone();
        let thread = std::thread::Builder::new()
            .name("sweep-files".to_owned())
            .spawn(move || run_thread(file, &receiver, &thread_error))
            .map_err(|error| SweepError::file(path, error))?;
        Ok(Self { path: path.to_owned(), requests: Some(requests), thread: Some(thread), first_error })
    }

    /// Appends `value` to `lines` as a line of JSON.
    pub(crate) fn add_line(&self, lines: &mut Vec<u8>, value: &impl Serialize) {
        match serde_json::to_writer(&mut *lines, value) {
            Ok(()) => lines.push(b'\n'),
            Err(error) => {
                self.first_error.lock().get_or_insert(error.into());
            }
        }
    }

    /// Queues lines to be appended to the file. Does not block.
    pub(crate) fn write(&self, lines: Vec<u8>) {
        self.submit(WriteRequest::Write(lines));
    }

    /// Queues a sync of the file to disk. Does not block.
    pub(crate) fn sync(&self) {
        self.submit(WriteRequest::Sync);
    }

    /// Blocks until everything is written and synced to disk.
    ///
    /// # Errors
    ///
    /// Returns the first error since the file was opened.
    pub(crate) fn finish(mut self) -> Result<(), SweepError> {
        self.sync();
        self.join();
        match self.first_error.lock().take() {
            Some(error) => Err(SweepError::file(&self.path, error)),
            None => Ok(()),
        }
    }

    fn submit(&self, request: WriteRequest) {
        if let Some(requests) = &self.requests {
            // The thread ends early only if it failed.
            let _ = requests.send(request);
        }
    }

    fn join(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}

fn run_thread(
    mut file: File,
    receiver: &Receiver<WriteRequest>,
    thread_error: &Mutex<Option<std::io::Error>>,
) {
    while let Ok(request) = receiver.recv() {
        let done = match request {
            WriteRequest::Write(bytes) => file.write_all(&bytes),
            WriteRequest::Sync => file.sync_data(),
        };
        if let Err(error) = done {
            thread_error.lock().get_or_insert(error);
            return;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn finish_returns_the_error_of_an_earlier_write() {
        let path = Path::new("/dev/full");
        let writer = Writer::new(path, File::options().write(true).open(path).unwrap()).unwrap();
        for _ in 0..3 {
            writer.write(b"line\n".to_vec());
            writer.sync();
        }
        let error = writer.finish().unwrap_err().to_string();
        assert!(error.starts_with("/dev/full: cannot be read or written: No space left"), "{error}");
    }
}
