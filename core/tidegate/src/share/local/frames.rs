//! Messages as lines of JSON on a stream.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The maximum length of a line in bytes. Longer ones are an error.
const MAX_LINE: u64 = 65_536;

/// Adds a message as a line to `buffer`.
pub(super) fn write<T: Serialize>(buffer: &mut Vec<u8>, message: &T) {
    // The messages have no values that cannot be serialized.
    if serde_json::to_writer(&mut *buffer, message).is_ok() {
        buffer.push(b'\n');
    }
}

/// Reads lines. Keeps a line of which a part was read when a read is cancelled.
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, line: Vec::new() }
    }

    /// Reads the next message. Returns `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// A part of a line that was read is kept for the next call.
    ///
    /// # Errors
    /// The stream fails, or a line is no message or too long.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let left = MAX_LINE.saturating_sub(self.line.len() as u64);
        (&mut self.reader).take(left).read_until(b'\n', &mut self.line).await?;
        match self.line.last() {
            Some(b'\n') => {
                let message = serde_json::from_slice(&self.line);
                self.line.clear();
                Ok(Some(message?))
            }
            // Also a line that the end of the stream has cut.
            Some(_) if self.line.len() as u64 >= MAX_LINE => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_share::ToBroker;
    use tokio::io::BufReader;

    use super::{Lines, write};

    /// Reads messages until the end or an error. Returns the messages, and whether there was no
    /// error.
    fn read(bytes: &[u8]) -> (Vec<ToBroker>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(BufReader::with_capacity(7, bytes));
            let mut messages = Vec::new();
            loop {
                match lines.next().await {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => return (messages, true),
                    Err(_) => return (messages, false),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }

        #[test]
        fn damaged_messages_end_the_connection(numbers in prop::collection::vec(any::<u64>(), 1..5), at: usize, byte: u8) {
            let messages: Vec<_> = numbers.iter().map(|number| ToBroker::Heartbeat { number: *number }).collect();
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| write(&mut bytes, message));
            prop_assert_eq!(read(&bytes), (messages.clone(), true));
            let at = at % bytes.len();
            bytes[at] = byte;
            let (read, _) = read(&bytes);
            prop_assert!(read.len() <= messages.len() + 1);
        }
    }

    #[test]
    fn endless_line_is_rejected() {
        assert_eq!(read(&vec![b' '; super::MAX_LINE as usize + 1]), (Vec::new(), false));
    }
}
