//! Writes a file on a thread of its own, because a slow disk would delay the client and distort the
//! measurement.
//!
//! Bytes are written in order. After an error the thread ends, and the next call of a method of
//! [`Writer`] returns the error.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

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

    /// Queues bytes to be appended to the file. Does not block.
    ///
    /// # Errors
    ///
    /// Returns the error of an earlier write or sync.
    pub(crate) fn write(&self, bytes: Vec<u8>) -> Result<(), SweepError> {
        self.submit(WriteRequest::Write(bytes))
    }

    /// Queues a sync of the file to disk. Does not block.
    ///
    /// # Errors
    ///
    /// Returns the error of an earlier write or sync.
    pub(crate) fn sync(&self) -> Result<(), SweepError> {
        self.submit(WriteRequest::Sync)
    }

    /// Blocks until everything is written and synced to disk.
    ///
    /// # Errors
    ///
    /// Returns the error of a write or sync that failed.
    pub(crate) fn finish(mut self) -> Result<(), SweepError> {
        let _ = self.sync();
        self.join();
        self.take_error()
    }

    fn submit(&self, request: WriteRequest) -> Result<(), SweepError> {
        if let Some(requests) = &self.requests {
            // The thread ends early only if it failed.
            let _ = requests.send(request);
        }
        self.take_error()
    }

    fn take_error(&self) -> Result<(), SweepError> {
        match self.first_error.lock().take() {
            Some(error) => Err(SweepError::file(&self.path, error)),
            None => Ok(()),
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
            *thread_error.lock() = Some(error);
            return;
        }
    }
}
