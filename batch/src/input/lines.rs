//! Splits the input into numbered lines with checksums. If a line is longer than a maximum, only
//! its number and its checksum are kept.

use std::fmt;
use std::io::{self, BufRead};

use bytes::Bytes;

/// The CRC-32 of a line without its line end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub(crate) u32);

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A line of the input that is not blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number, counted from 1. Blank lines count, as in editors.
    pub number: u64,
    /// Checksum of the whole line, even if `text` is `None`.
    pub sum: Checksum,
    /// Text without the line end, or `None` if the line is longer than the limit of [`Lines::new`].
    pub text: Option<Bytes>,
}

/// Reads lines that end with LF or CRLF. The last line needs no line end. Removes a byte order mark
/// at the start, and skips blank lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    max_bytes: usize,
    number: u64,
    /// Number of bytes read from `reader`.
    bytes_read: u64,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: BufRead> Lines<R> {
    /// Returns a reader of the lines in `reader`. For a line that is longer than `max_bytes`, it
    /// returns the number and the checksum, but not the text.
    pub fn new(reader: R, max_bytes: usize) -> Self {
        Self { reader, max_bytes, number: 0, bytes_read: 0 }
    }

    /// Returns the number of bytes of `reader` that were read so far, line ends included.
    pub fn position(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the next line, or `None` at the end of the input.
    ///
    /// # Errors
    ///
    /// Returns an error if reading fails.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some((mut text, sum)) = self.read_raw_line()? else { return Ok(None) };
            self.number += 1;
            let Some(text) = &mut text else {
                return Ok(Some(Line { number: self.number, sum: Checksum(sum), text: None }));
            };
            if text.last() == Some(&b'\r') {
                text.pop();
            }
            if self.number == 1 && text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len());
            }
            if text.iter().any(|byte| !byte.is_ascii_whitespace()) {
                let sum = Checksum(crc32fast::hash(text));
                return Ok(Some(Line {
                    number: self.number,
                    sum,
                    text: Some(Bytes::from(std::mem::take(text))),
                }));
            }
        }
    }

    /// Reads up to the next LF. Returns the text and 0 instead of the checksum, because the caller
    /// computes it. If the text is longer than `max_bytes`, returns `None` for the text, and its
    /// checksum. Returns `None` instead of the pair at the end of the input.
    fn read_raw_line(&mut self) -> io::Result<Option<(Option<Vec<u8>>, u32)>> {
        let (mut kept, mut sum, mut any) = (Some(Vec::new()), crc32fast::Hasher::new(), false);
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                return Ok(any.then(|| (kept, sum.finalize())));
            }
            any = true;
            let end = memchr::memchr(b'\n', chunk);
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            if let Some(text) = kept.as_mut().filter(|text| text.len() + part.len() <= self.max_bytes) {
                text.extend_from_slice(part);
            } else {
                if let Some(text) = kept.take() {
                    sum.update(&text);
                }
                sum.update(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            self.bytes_read += used as u64;
            if end.is_some() {
                return Ok(Some((kept, sum.finalize())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8], max_bytes: usize, buffer: usize) -> Vec<(u64, Option<String>)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), max_bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push((line.number, line.text.map(|text| String::from_utf8_lossy(&text).into_owned())));
        }
        assert_eq!(lines.position(), text.len() as u64);
        all
    }

    #[test]
    fn handles_line_ends_byte_order_marks_and_blank_lines() {
        let text = b"\xef\xbb\xbfa\r\n\n  \r\nb\nlong line\nc";
        let expected: Vec<_> = [(1, Some("a")), (4, Some("b")), (5, None), (6, Some("c"))].into();
        for buffer in [1, 2, 7, 100] {
            let all = all(text, 5, buffer);
            assert_eq!(all.iter().map(|(n, text)| (*n, text.as_deref())).collect::<Vec<_>>(), expected);
        }
        assert!(all(b"", 5, 10).is_empty());
    }

    proptest! {
        /// Every line that is not blank is returned once and in order, no matter at which bytes the
        /// reader's buffer divides the text.
        #[test]
        fn every_line_is_returned_once(texts in prop::collection::vec("[a-c ]{0,12}", 0..30), max_bytes in 1usize..12, buffer in 1usize..20, ended: bool) {
            let mut text = texts.join("\n");
            if ended { text.push('\n'); }
            let mut lines = Lines::new(BufReader::with_capacity(buffer, text.as_bytes()), max_bytes);
            for (number, expected) in texts.iter().enumerate() {
                if expected.trim().is_empty() && expected.len() <= max_bytes { continue; }
                let line = lines.next_line().unwrap().unwrap();
                prop_assert_eq!(line.number, number as u64 + 1);
                prop_assert_eq!(line.sum, Checksum(crc32fast::hash(expected.as_bytes())));
                prop_assert_eq!(line.text.as_deref(), (expected.len() <= max_bytes).then_some(expected.as_bytes()));
            }
            prop_assert!(lines.next_line().unwrap().is_none());
        }
    }
}
