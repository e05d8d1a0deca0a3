//! Writes a file on a thread of its own, so that a slow disk does not delay the client and distort
//! the measurement.
//!
//! Bytes are written in order. An error is reported by the next call and by [`Writer::finish`].

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

/// Dropping the writer waits until everything is written.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    requests: Option<Sender<WriteRequest>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<std::io::Error>>>,
}

impl Writer {
    pub(crate) fn new(path: &Path, file: File) -> Result<Self, SweepError> {
        let (requests, told) = channel();
        let failed = Arc::new(Mutex::new(None));
        let failures = failed.clone();
        let thread = std::thread::Builder::new()
            .name("sweep-files".to_owned())
            .spawn(move || work(file, &told, &failures))
            .map_err(|error| SweepError::file(path, error))?;
        Ok(Self { path: path.to_owned(), requests: Some(requests), thread: Some(thread), failed })
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of an earlier write.
    pub(crate) fn write(&self, bytes: Vec<u8>) -> Result<(), SweepError> {
        self.hand_over(WriteRequest::Write(bytes))
    }

    /// Starts to sync the file to disk.
    ///
    /// # Errors
    ///
    /// As for [`Writer::write`].
    pub(crate) fn sync(&self) -> Result<(), SweepError> {
        self.hand_over(WriteRequest::Sync)
    }

    /// Waits until everything is synced to disk.
    ///
    /// # Errors
    ///
    /// As for [`Writer::write`].
    pub(crate) fn finish(mut self) -> Result<(), SweepError> {
        let _ = self.sync();
        self.join();
        self.trouble()
    }

    fn hand_over(&self, request: WriteRequest) -> Result<(), SweepError> {
        if let Some(requests) = &self.requests {
            // The thread ends early only if it failed.
            let _ = requests.send(request);
        }
        self.trouble()
    }

    fn trouble(&self) -> Result<(), SweepError> {
        match self.failed.lock().take() {
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

fn work(mut file: File, told: &Receiver<WriteRequest>, failures: &Mutex<Option<std::io::Error>>) {
    while let Ok(request) = told.recv() {
        let done = match request {
            WriteRequest::Write(bytes) => file.write_all(&bytes),
            WriteRequest::Sync => file.sync_data(),
        };
        if let Err(error) = done {
            *failures.lock() = Some(error);
            return;
        }
    }
}
