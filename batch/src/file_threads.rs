//! Connects blocking files with the asynchronous run. Each function needs a thread of its own.

use std::io::{self, BufRead};

use tokio::sync::mpsc;

use crate::input::{Line, Lines};
use crate::output::Sink;
use crate::run::WriteJob;

/// Sends lines into a channel until the lines end, `limit` lines were read, or the receiver is
/// gone. Blocks.
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

/// Writes the jobs of a channel until its senders are gone, in batches of what is available.
/// Blocks.
///
/// # Errors
///
/// Returns the error of the files.
pub fn write_records(mut sink: Sink, mut jobs: mpsc::Receiver<WriteJob>) -> io::Result<()> {
    while let Some(job) = jobs.blocking_recv() {
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                WriteJob::Record(record) => sink.put(&record)?,
                WriteJob::Tick => sink.tick()?,
            }
            next = jobs.try_recv().ok();
        }
        sink.flush()?;
    }
    sink.finish()
}
