//! Reads lines and writes records on threads of their own, because files block a thread. The
//! functions exchange data with the asynchronous run through channels.

use std::io::{self, BufRead};

use tokio::sync::mpsc;

use crate::input::{Line, Lines};
use crate::output::Sink;
use crate::run::WriteJob;

/// Reads lines and sends them into the channel `into`. Returns at the end of the input, after
/// `limit` lines, when the receiver is dropped, or after a read error, which is also sent. A
/// `limit` of `None` reads all lines. Blocks the thread.
pub fn read_lines<R: BufRead>(
    mut lines: Lines<R>,
    limit: Option<u64>,
    into: &mpsc::Sender<io::Result<Line>>,
) {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        left -= 1;
        match lines.next_line().transpose() {
            Some(line) => {
                let last = line.is_err();
                if into.blocking_send(line).is_err() || last {
                    return;
                }
            }
            None => return,
        }
    }
}

/// Writes the records received from `jobs` to `sink` until all senders of the channel are dropped,
/// then syncs the files. Blocks the thread.
///
/// # Errors
///
/// Returns an error if a file cannot be written.
pub fn write_records(mut sink: Sink, mut jobs: mpsc::Receiver<WriteJob>) -> io::Result<()> {
    while let Some(job) = jobs.blocking_recv() {
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                WriteJob::Record(record) => sink.write_record(&record)?,
                WriteJob::Tick => sink.tick()?,
            }
            next = jobs.try_recv().ok();
        }
        sink.flush()?;
    }
    sink.finish()
}
