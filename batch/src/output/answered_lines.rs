//! Reads the output of a previous run, and finds where its complete part ends.
//!
//! A killed run leaves at most the last line, or the last piece of a compressed file, incomplete. A
//! power failure may leave zeros at the end. Such an end is *torn*: it is removed, and its lines
//! are sent again. Anything else that is wrong with a file is an error, because the file belongs to
//! something else or was modified.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, BufRead, Read};

use serde::de::IgnoredAny;

use super::output_record::{self, ParsedRecord, RECORD_PREFIX};
use crate::compression::Compression;
use crate::input::{Checksum, Line};

/// Maximum length of a record, or of the text of a compressed piece, in bytes.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// The input lines that previous runs have answered, with a response or with an error.
#[derive(Debug, Default)]
pub struct AnsweredLines {
    /// The checksum of each answered line, and whether its record is in a file of failed lines.
    lines: HashMap<u64, (Checksum, bool)>,
    /// Number of lines answered with a status from 200 to 299.
    pub good: u64,
    /// Number of lines answered with another status or with an error.
    pub failed: u64,
    /// Total number of bytes after the last complete record of each file, which an interrupted run
    /// has left.
    pub torn: u64,
}

/// Why an existing output cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The file cannot be read.
    #[error("cannot be opened or read: {0}")]
    Io(#[from] io::Error),
    /// The line of the output with this number was not written by a run.
    #[error("line {0} was not written by a run; choose another file, or start again with --overwrite")]
    Foreign(u64),
    /// The file was written by a run, but is damaged at this byte offset in a way that an
    /// interrupted run does not cause.
    #[error(
        "the file is damaged at byte {0}, but not by an interrupted run; restore it, or start again with --overwrite"
    )]
    Damaged(u64),
    /// The compressed data are complete, but the last line of the text, which has this number, is
    /// not, because the output of an interrupted run was compressed afterwards.
    #[error(
        "line {0} of the decompressed text is incomplete; decompress the file and resume from the decompressed file, or start again with --overwrite"
    )]
    CompressedWhenTorn(u64),
    /// Two records answer the input line with this number.
    #[error(
        "two records answer input line {0}, because two runs wrote to the file at once; start again with --overwrite"
    )]
    Duplicate(u64),
    /// The file of failed lines contains answers, so it is the output of a run.
    #[error("contains answers, not only failed lines; did you swap --output and --errors?")]
    AnswersInErrors,
    /// The output is a pipe or a device, which cannot be read back.
    #[error(
        "is not a regular file, so no run can be resumed from it; write to a regular file, or start again with --overwrite and without --retry-failed"
    )]
    NotResumable,
}

impl AnsweredLines {
    /// Returns `Some(true)` if previous runs answered the line, `Some(false)` if they answered a
    /// line with the same number but another text, and `None` if they did not answer a line with
    /// this number.
    pub fn matches(&self, line: &Line) -> Option<bool> {
        self.lines.get(&line.number).map(|(sum, _)| *sum == line.sum)
    }

    /// Returns `true` if the record of the line with this number is in a separate file of failed
    /// lines, so that the line can be sent again.
    pub(crate) fn can_retry(&self, line: u64) -> bool {
        self.lines.get(&line).is_some_and(|(_, can_retry)| *can_retry)
    }

    /// Returns the number of answered lines.
    pub fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Returns `true` if no line was answered.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the highest line number among the answered lines, or 0 if none was answered.
    pub fn last(&self) -> u64 {
        self.lines.keys().copied().max().unwrap_or(0)
    }

    /// Adds the input lines that the records in `file` answer. Returns the complete part of the
    /// file. The rest of the file is an incomplete record or zeros.
    pub(crate) fn scan(
        &mut self,
        format: Compression,
        file: &mut impl BufRead,
    ) -> Result<CompletePart, ScanError> {
        let (complete, all) = match format {
            Compression::Plain => self.scan_lines(file)?,
            Compression::Gzip | Compression::Zstd => {
                let (bytes, all) = self.scan_pieces(format, file)?;
                (CompletePart { bytes, lacks_line_end: false }, all)
            }
        };
        self.torn += all - complete.bytes;
        Ok(complete)
    }

    /// Adds the lines that the file of failed lines answers, without those that the output answers,
    /// too: a run without this file has sent them again.
    pub(crate) fn add_failed(&mut self, failed: Self) {
        self.torn += failed.torn;
        for (line, (sum, _)) in failed.lines {
            self.add(ParsedRecord { line, sum, good: false }, true);
        }
    }

    /// Adds a record, unless another one answers the same line. Returns whether it was added.
    fn add(&mut self, record: ParsedRecord, can_retry: bool) -> bool {
        let Entry::Vacant(entry) = self.lines.entry(record.line) else { return false };
        entry.insert((record.sum, can_retry));
        if record.good {
            self.good += 1;
        } else {
            self.failed += 1;
        }
        true
    }

    /// Adds a record of a file.
    fn add_once(&mut self, record: ParsedRecord) -> Result<(), ScanError> {
        if self.add(record, false) { Ok(()) } else { Err(ScanError::Duplicate(record.line)) }
    }

    fn scan_lines(&mut self, file: &mut impl BufRead) -> Result<(CompletePart, u64), ScanError> {
        let (mut at, mut torn, mut number, mut text) = (0u64, None, 0, Vec::new());
        let mut lacks_line_end = false;
        loop {
            text.clear();
            let read = file.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut text)? as u64;
            if read == 0 {
                return Ok((CompletePart { bytes: torn.unwrap_or(at), lacks_line_end }, at));
            }
            number += 1;
            // Only the last line of the file may lack its end, because a kill or an editor removed
            // it.
            lacks_line_end = !text.ends_with(b"\n");
            let complete = output_record::parse(text.strip_suffix(b"\n").unwrap_or(text.as_slice()));
            lacks_line_end &= complete.is_some();
            match (complete, torn) {
                (Some(_), Some(torn)) => return Err(ScanError::Damaged(torn)),
                (Some(read), None) => self.add_once(read)?,
                (None, _) if is_whole_line(&text) || !could_be_torn(&text) => {
                    return Err(ScanError::Foreign(number));
                }
                (None, _) => torn = torn.or(Some(at)),
            }
            at += read;
        }
    }

    fn scan_pieces(&mut self, format: Compression, file: &mut impl BufRead) -> Result<(u64, u64), ScanError> {
        let mut file = CountingReader { file, count: 0, last_byte: 0, is_at_end: false };
        let mut number = 0;
        loop {
            let piece_start = file.count;
            if !format.may_start_with(file.fill_buf()?) {
                return Err(if piece_start == 0 {
                    ScanError::Foreign(1)
                } else {
                    ScanError::Damaged(piece_start)
                });
            }
            let piece = match format.next_piece(&mut file, MAX_RECORD_BYTES) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok((piece_start, piece_start)),
                // Torn, because it is cut or ends in zeros. A gzip member mostly ends in a zero.
                Err(_) if file.is_at_end || file.ends_in_zeros()? => {
                    return Ok((piece_start, file.count));
                }
                Err(_) => return Err(ScanError::Damaged(piece_start)),
            };
            let lines = || piece.split_inclusive(|byte| *byte == b'\n');
            let read: Option<Vec<_>> =
                lines().map(|line| output_record::parse(line.strip_suffix(b"\n")?)).collect();
            match read {
                Some(read) => read.into_iter().try_for_each(|read| self.add_once(read))?,
                None if lines().next().is_some_and(could_be_torn) => {
                    // Zstd frames of earlier versions have no checksum, so one that ends in zeros
                    // may be decoded to garbage.
                    let is_torn = format == Compression::Zstd && file.ends_in_zeros()?;
                    return if is_torn {
                        Ok((piece_start, file.count))
                    } else if !piece.ends_with(b"\n") && only_zeros(&mut file)? {
                        Err(ScanError::CompressedWhenTorn(number + lines().count() as u64))
                    } else {
                        Err(ScanError::Damaged(piece_start))
                    };
                }
                None => return Err(ScanError::Foreign(number + 1)),
            }
            number += lines().count() as u64;
        }
    }
}

/// The part of an output file that the next run keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompletePart {
    /// Length of the part, in bytes.
    pub(crate) bytes: u64,
    /// Whether the last record lacks its line end, which must be written before another record.
    pub(crate) lacks_line_end: bool,
}

/// Returns `true` if `text` may be what remains of a record after a kill or a power failure: the
/// start of a record, which zeros may replace from any byte on.
fn could_be_torn(text: &[u8]) -> bool {
    let prefix = RECORD_PREFIX.as_bytes();
    let start = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let common = prefix.len().min(start.len());
    start.get(..common) == prefix.get(..common)
}

/// Returns `true` if nothing is missing in `text`: it has a line end and no byte is zero, or it is
/// complete JSON.
fn is_whole_line(text: &[u8]) -> bool {
    text.ends_with(b"\n") && !text.contains(&0) || serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Reads to the end of the file. Returns `true` if the rest contains only zeros, or nothing.
fn only_zeros(file: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let chunk = file.fill_buf()?;
        if chunk.is_empty() {
            return Ok(true);
        }
        if chunk.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        let read = chunk.len();
        file.consume(read);
    }
}

/// A reader that counts the bytes read from a file.
struct CountingReader<'a, R> {
    file: &'a mut R,
    count: u64,
    /// The last byte read. 0 if none was read.
    last_byte: u8,
    /// Whether a read has reached the end of the file.
    is_at_end: bool,
}

impl<R: BufRead> CountingReader<'_, R> {
    /// Reads to the end of the file. Returns `true` if the rest contains only zeros, or nothing,
    /// and the last byte of the file is zero.
    fn ends_in_zeros(&mut self) -> io::Result<bool> {
        Ok(only_zeros(self)? && self.last_byte == 0)
    }
}

impl<R: BufRead> Read for CountingReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for CountingReader<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let rest = self.file.fill_buf()?;
        self.is_at_end |= rest.is_empty();
        Ok(rest)
    }

    fn consume(&mut self, amount: usize) {
        // Does not read, because the consumed bytes are in the buffer.
        if let Ok(read) = self.file.fill_buf() {
            self.last_byte =
                amount.checked_sub(1).and_then(|last| read.get(last)).copied().unwrap_or(self.last_byte);
        }
        self.count += amount as u64;
        self.file.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output::{LineOutcome, ProviderResponse, Record, Sink};

    fn record(line: u64) -> Record {
        let body = bytes::Bytes::from(format!("{{\"text\":\"answer {line}\"}}"));
        let status = if line.is_multiple_of(7) { 400 } else { 200 };
        let outcome = LineOutcome::Answered(ProviderResponse::new(status, "", &body));
        Record { line, sum: Checksum(line as u32 * 3), custom_id: format!("id {line}"), outcome }
    }

    /// Returns the content of an output file with one record for each of `lines`. A compressed file
    /// has `every` records per piece.
    fn written(format: Compression, lines: impl Iterator<Item = u64>, every: usize) -> Vec<u8> {
        let file = crate::output::crash_safe_writer::MemoryFile::default();
        let mut sink = Sink::new(format, Box::new(file.clone()), None);
        for (n, line) in lines.enumerate() {
            sink.write_record(&record(line)).unwrap();
            if n % every == every - 1 {
                sink.tick().unwrap();
            }
        }
        sink.finish().unwrap();
        file.bytes()
    }

    fn scan(format: Compression, bytes: &[u8]) -> Result<(AnsweredLines, CompletePart), ScanError> {
        let mut answered = AnsweredLines::default();
        let complete = answered.scan(format, &mut io::BufReader::with_capacity(11, bytes))?;
        Ok((answered, complete))
    }

    proptest! {
        /// The records are written in several runs. Each run but the last crashes, which cuts its
        /// output at any length and may append zeros. In the end, each line has exactly one record.
        #[test]
        fn every_line_is_written_once_after_any_crashes(count in 1u64..40, every in 1usize..8, cuts in prop::collection::vec((0.0f64..1.0, 0usize..30), 0..6)) {
            for format in [Compression::Plain, Compression::Gzip, Compression::Zstd] {
                let mut file = Vec::new();
                for (cut, zeros) in cuts.iter().copied().chain([(1.0, 0)]) {
                    let (answered, complete) = scan(format, &file).unwrap();
                    file.truncate(complete.bytes as usize);
                    if complete.lacks_line_end {
                        file.push(b'\n');
                    }
                    let missing = (1..=count).filter(|line| !answered.lines.contains_key(line));
                    let more = written(format, missing, every);
                    file.extend(&more[..(more.len() as f64 * cut).ceil() as usize]);
                    file.extend(std::iter::repeat_n(0, zeros));
                }
                let (answered, complete) = scan(format, &file).unwrap();
                prop_assert_eq!((answered.len(), answered.last(), complete.bytes, answered.torn), (count, count, file.len() as u64, 0));
                prop_assert!(!complete.lacks_line_end);
                let mut text = String::new();
                format.reader(&file[..]).read_to_string(&mut text).unwrap();
                let mut lines: Vec<u64> = text.lines().map(|line| output_record::parse(line.as_bytes()).unwrap().line).collect();
                lines.sort_unstable();
                prop_assert_eq!(lines, (1..=count).collect::<Vec<_>>());
                prop_assert_eq!(answered.failed, count / 7);
            }
        }
    }

    #[test]
    fn foreign_and_damaged_files_are_left_alone() {
        for format in [Compression::Plain, Compression::Gzip, Compression::Zstd] {
            assert!(matches!(scan(format, b"my notes\n"), Err(ScanError::Foreign(1))), "{format:?}");
            let others = b"{\"id\":\"batch_req_67abc\",\"custom_id\":\"a\"}\n";
            assert!(matches!(scan(format, others), Err(ScanError::Foreign(1))), "{format:?}");
            let utf_16 = b"\xff\xfe{\0\"\0i\0d\0\"\0:\0\n\0";
            assert!(matches!(scan(format, utf_16), Err(ScanError::Foreign(1))), "{format:?}");
            let notes = format.compress_piece(b"my notes".to_vec()).unwrap();
            assert!(matches!(scan(format, &notes), Err(ScanError::Foreign(1))), "{format:?}");
            let one = written(format, 1..3, 1);
            assert!(
                matches!(scan(format, &[one.clone(), one.clone()].concat()), Err(ScanError::Duplicate(1))),
                "{format:?}"
            );
            let mut damaged = [one, written(format, 3..5, 1)].concat();
            damaged[5] = 0;
            damaged[12..20].fill(0);
            let scanned = scan(format, &damaged);
            assert!(matches!(scanned, Err(ScanError::Damaged(0))), "{format:?} {scanned:?}");
        }
    }

    #[test]
    fn complete_last_line_without_a_line_end_is_not_torn() {
        let plain = written(Compression::Plain, 1..3, 1);
        let (answered, complete) = scan(Compression::Plain, &plain[..plain.len() - 1]).unwrap();
        let expected = CompletePart { bytes: plain.len() as u64 - 1, lacks_line_end: true };
        assert_eq!((answered.len(), answered.torn, complete), (2, 0, expected));

        let others = b"{\"id\":\"batch_req_67abc\",\"custom_id\":\"a\"}";
        for before in [&b""[..], &plain] {
            let scanned = scan(Compression::Plain, &[before, others].concat());
            assert!(matches!(scanned, Err(ScanError::Foreign(_))), "{scanned:?}");
        }
    }

    #[test]
    fn complete_piece_with_an_incomplete_record_is_left_alone() {
        let plain = written(Compression::Plain, 1..5, 1);
        let cut = &plain[..plain.len() - 9];
        for format in [Compression::Gzip, Compression::Zstd] {
            let compressed = format.compress_piece(cut.to_vec()).unwrap();
            let scanned = scan(format, &compressed);
            assert!(matches!(scanned, Err(ScanError::CompressedWhenTorn(4))), "{format:?} {scanned:?}");
            let more = [compressed, written(format, 5..7, 1)].concat();
            assert!(matches!(scan(format, &more), Err(ScanError::Damaged(0))), "{format:?}");
        }
        assert_eq!(scan(Compression::Plain, cut).unwrap().0.len(), 3);

        // Damage that decodes to garbage or not at all, in a file that is not cut.
        let mut damaged = written(Compression::Zstd, 1..5, 4);
        damaged[10] ^= 6;
        let scanned = scan(Compression::Zstd, &damaged);
        assert!(matches!(scanned, Err(ScanError::Damaged(0))), "{scanned:?}");
    }
}
