//! Lines of a text, numbered, each with a checksum, and none longer than is bearable.

use std::fmt;
use std::io::{self, BufRead};

use bytes::Bytes;

/// What a line is known by again: its CRC-32, without what ends it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub(crate) u32);

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One line that is not blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1 on, blank ones counted, so that editors show the same.
    pub number: u64,
    /// Known for one that is too long too.
    pub sum: Checksum,
    /// Without the line's end; `None` where it was too long to be kept.
    pub text: Option<Bytes>,
}

/// Reads lines: of LF or CRLF, the last of which needs neither, a byte order mark before the first, blank ones passed.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    most: usize,
    number: u64,
    /// Bytes read so far.
    read: u64,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

impl<R: BufRead> Lines<R> {
    /// Lines of at most so many bytes; of longer ones nothing is kept but their place.
    pub fn new(reader: R, most: usize) -> Self {
        Self { reader, most, number: 0, read: 0 }
    }

    /// Bytes of text read so far.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// As the reader's.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some((mut text, sum)) = self.raw()? else { return Ok(None) };
            self.number += 1;
            let Some(text) = &mut text else {
                return Ok(Some(Line { number: self.number, sum: Checksum(sum), text: None }));
            };
            if text.last() == Some(&b'\r') {
                text.pop();
            }
            if self.number == 1 && text.starts_with(MARK) {
                text.drain(..MARK.len());
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

    /// What stands up to the next LF, where it is short enough, and the checksum of it where it is not.
    fn raw(&mut self) -> io::Result<Option<(Option<Vec<u8>>, u32)>> {
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
            if let Some(text) = kept.as_mut().filter(|text| text.len() + part.len() <= self.most) {
                text.extend_from_slice(part);
            } else {
                if let Some(text) = kept.take() {
                    sum.update(&text);
                }
                sum.update(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            self.read += used as u64;
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

    fn all(text: &[u8], most: usize, buffer: usize) -> Vec<(u64, Option<String>)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), most);
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
        let told: Vec<_> = [(1, Some("a")), (4, Some("b")), (5, None), (6, Some("c"))].into();
        for buffer in [1, 2, 7, 100] {
            let all = all(text, 5, buffer);
            assert_eq!(all.iter().map(|(n, text)| (*n, text.as_deref())).collect::<Vec<_>>(), told);
        }
        assert!(all(b"", 5, 10).is_empty());
    }

    proptest! {
        /// However the text comes in pieces, each line that is not blank is there once, in order, known by its text alone.
        #[test]
        fn every_line_is_returned_once(texts in prop::collection::vec("[a-c ]{0,12}", 0..30), most in 1usize..12, buffer in 1usize..20, ended: bool) {
            let mut text = texts.join("\n");
            if ended { text.push('\n'); }
            let mut lines = Lines::new(BufReader::with_capacity(buffer, text.as_bytes()), most);
            for (number, expected) in texts.iter().enumerate() {
                if expected.trim().is_empty() && expected.len() <= most { continue; }
                let line = lines.next_line().unwrap().unwrap();
                prop_assert_eq!(line.number, number as u64 + 1);
                prop_assert_eq!(line.sum, Checksum(crc32fast::hash(expected.as_bytes())));
                prop_assert_eq!(line.text.as_deref(), (expected.len() <= most).then_some(expected.as_bytes()));
            }
            prop_assert!(lines.next_line().unwrap().is_none());
        }
    }
}
