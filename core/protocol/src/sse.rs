//! Incremental parser of server-sent events.
//!
//! # Algorithm
//!
//! The parser follows the WHATWG HTML specification: lines end in LF, CR or CRLF, also across
//! chunks; one BOM at the start is skipped; comments are ignored; `data` lines are joined by LF; an
//! event ends at an empty line and needs data. `id` and `retry` are ignored.
//!
//! In addition, a bare JSON document between events, over any number of lines, is reported as an
//! event, because Google writes errors that way within a stream.
//!
//! # Guarantees
//!
//! The scanner only observes, and the bytes are forwarded unchanged. It is strict about memory (an
//! event or line beyond the limit is reported as oversized and not kept) and lenient about content
//! (invalid UTF-8 is left to the reader). An event within one chunk is not copied.

use std::{fmt, mem};

use memchr::{memchr, memchr2};

/// Default limit for the length of a line, and of the data of one event: 1 MiB.
pub const MAX_EVENT: usize = 1 << 20;

/// Capacity in bytes above which a buffer is freed after the event that needed it.
const MAX_KEPT_BUFFER: usize = 64 << 10;

/// Minimum of the limit of [`Scanner::with_limit`], in bytes. The start of a line, with a byte
/// order mark before it, must be long enough to show which field it is.
const MIN_LIMIT: usize = 16;

/// A server-sent event. Its `Debug` output contains the name and the length of the data, but not
/// the data, because answers must not be logged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field. Empty if there is none.
    pub name: &'a [u8],
    /// The `data` lines, joined by LF. Empty if `oversized` is `true`.
    pub data: &'a [u8],
    /// Whether a line or the data exceeded the limit, so that the data was dropped.
    pub oversized: bool,
}

/// An incremental parser of server-sent events. Holds at most one line and one event, each within
/// the limit.
///
/// # Examples
///
/// ```
/// use tidegate_protocol::Scanner;
///
/// let mut scanner = Scanner::new();
/// let mut events = Vec::new();
/// for chunk in [&b"data: hel"[..], b"lo\n\n"] {
///     scanner.push(chunk, |event| events.push(event.data.to_vec()));
/// }
/// assert_eq!(events, [b"hello"]);
/// ```
pub struct Scanner {
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Whether the current line exceeds the limit, so that the rest of it is skipped.
    skipping: bool,
    /// Whether the last byte was a CR. A following LF then belongs to the same line end.
    after_cr: bool,
    /// Whether no line has ended yet. A byte order mark may come first.
    first_line: bool,
    event: Pending,
}

/// The event that is being assembled.
#[derive(Default)]
struct Pending {
    /// Maximum length in bytes of a line, and of the data of the event.
    limit: usize,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    oversized: bool,
    /// Whether the event is a bare JSON document. All lines up to the next empty line then belong
    /// to it.
    is_bare_json: bool,
}

/// Fields of the pending event that lie in the current chunk and have not been copied.
#[derive(Default)]
struct Borrowed<'a> {
    name: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("name", &String::from_utf8_lossy(self.name))
            .field("bytes", &self.data.len())
            .field("oversized", &self.oversized)
            .finish()
    }
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner")
            .field("limit", &self.event.limit)
            .field("held", &(self.line.len() + self.event.data.len()))
            .finish_non_exhaustive()
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Creates a scanner with the default limit, [`MAX_EVENT`].
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT)
    }

    /// Creates a scanner whose limit for a line, and for the data of one event, is `limit` bytes. A
    /// limit below 16 is raised to 16.
    pub fn with_limit(limit: usize) -> Self {
        let event = Pending { limit: limit.max(MIN_LIMIT), ..Pending::default() };
        Self { line: Vec::new(), skipping: false, after_cr: false, first_line: true, event }
    }

    /// Parses the next bytes of the body. Calls `on_event` for each event that they complete.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let mut borrowed = Borrowed::default();
        let mut rest = chunk;
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            rest = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            self.after_cr = matches!(tail, [b'\r']);
            rest = match tail {
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => &[],
            };
            self.end_line(line, &mut borrowed, &mut on_event);
        }
        self.buffer(rest);
        self.event.copy_borrowed(&mut borrowed);
    }

    /// Ends the body. Reports an event even if its closing empty line is missing.
    ///
    /// Browsers drop such an event. It is reported here because some servers end `data: [DONE]`
    /// with the connection. The event may be cut off. Its name does not show this, but its data
    /// does: incomplete JSON does not parse. For an oversized event, nothing shows it.
    pub fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        let mut borrowed = Borrowed::default();
        if self.skipping || !self.line.is_empty() {
            self.end_line(b"", &mut borrowed, &mut on_event);
        }
        self.event.dispatch(&mut borrowed, &mut on_event);
    }

    /// Buffers the start of a line for the next chunk. If the line exceeds the limit, drops it and
    /// skips the rest of it.
    fn buffer(&mut self, part: &[u8]) {
        if self.skipping || part.is_empty() {
            return;
        }
        if self.line.len() + part.len() <= self.event.limit {
            return self.line.extend_from_slice(part);
        }
        if self.line.len() < MIN_LIMIT {
            self.line.extend_from_slice(part.get(..MIN_LIMIT).unwrap_or(part));
        }
        self.skipping = true;
        self.event.overflow(strip_bom(&mem::take(&mut self.line), self.first_line));
    }

    /// Processes a line whose end has arrived: adds its field to the event or, if it is empty,
    /// reports the event. `tail` is the part of the line that lies in the current chunk.
    fn end_line<'a>(&mut self, tail: &'a [u8], borrowed: &mut Borrowed<'a>, on: &mut impl FnMut(Event<'_>)) {
        if self.line.is_empty() && !self.skipping {
            let line = strip_bom(tail, self.first_line);
            if tail.len() > self.event.limit {
                self.event.overflow(line);
            } else if line.is_empty() {
                self.event.dispatch(borrowed, on);
            } else {
                self.event.add_field(line, borrowed);
            }
        } else {
            self.buffer(tail);
            if !mem::take(&mut self.skipping) {
                let line = mem::take(&mut self.line);
                let mut carried = Borrowed::default();
                self.event.add_field(strip_bom(&line, self.first_line), &mut carried);
                self.event.copy_borrowed(&mut carried);
                self.line = reuse(line);
            }
        }
        self.first_line = false;
    }
}

impl Pending {
    /// Adds the field in a line to the event. The line is within the limit.
    fn add_field<'a>(&mut self, line: &'a [u8], borrowed: &mut Borrowed<'a>) {
        let is_continued = self.has_data || borrowed.data.is_some();
        // No field begins with a brace.
        self.is_bare_json |= line.starts_with(b"{") && !is_continued;
        if self.is_bare_json {
            return self.append(line);
        }
        let colon = memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" if is_continued => {
                self.copy_borrowed(borrowed);
                self.append(value);
            }
            b"data" => borrowed.data = Some(value),
            b"event" => borrowed.name = Some(value),
            // Comments (an empty name), `id`, `retry` and unknown fields.
            _ => {}
        }
    }

    /// Marks the event as oversized if a line that is too long is a `data` or `event` field. `line`
    /// is the start of that line. Other lines are ignored.
    fn overflow(&mut self, line: &[u8]) {
        let name = memchr(b':', line).and_then(|colon| line.get(..colon)).unwrap_or(line);
        if name == b"data" || name == b"event" {
            self.oversized = true;
            self.data = Vec::new();
        }
    }

    /// Copies the borrowed fields, before the chunk is released.
    fn copy_borrowed(&mut self, borrowed: &mut Borrowed<'_>) {
        if let Some(name) = borrowed.name.take() {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
        if let Some(data) = borrowed.data.take() {
            self.append(data);
        }
    }

    /// Appends a line to the data, or drops the data if it exceeds the limit.
    fn append(&mut self, value: &[u8]) {
        let joint: &[u8] = if self.has_data { b"\n" } else { b"" };
        // An oversized event counts as having data, so its next lines are not read as a bare
        // document.
        self.has_data = true;
        self.oversized |= self.data.len() + joint.len() + value.len() > self.limit;
        if self.oversized {
            self.data = Vec::new();
        } else {
            self.data.extend_from_slice(joint);
            self.data.extend_from_slice(value);
        }
    }

    /// Reports the pending event, if it has data, and starts the next one.
    fn dispatch(&mut self, borrowed: &mut Borrowed<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        let name = borrowed.name.take().unwrap_or(&self.name);
        let data = borrowed.data.take();
        if self.oversized {
            on_event(Event { name, data: b"", oversized: true });
        } else if data.is_some() || self.has_data {
            on_event(Event { name, data: data.unwrap_or(&self.data), oversized: false });
        }
        self.name.clear();
        self.data = reuse(mem::take(&mut self.data));
        (self.has_data, self.oversized, self.is_bare_json) = (false, false, false);
    }
}

/// Returns the line without a byte order mark, which only the first line may have.
fn strip_bom(line: &[u8], first: bool) -> &[u8] {
    if first { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line }
}

/// Returns the buffer emptied, or a new one if its capacity exceeds [`MAX_KEPT_BUFFER`].
fn reuse(mut buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > MAX_KEPT_BUFFER {
        return Vec::new();
    }
    buffer.clear();
    buffer
}

#[cfg(test)]
mod tests;
