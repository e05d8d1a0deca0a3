//! Server-sent events out of bytes that arrive in any pieces.
//!
//! Follows the WHATWG rules: lines end in LF, CR or CRLF, wherever a chunk was cut; one BOM at the start; comments; `data` lines
//! joined by LF; an event ends at an empty line and is nothing without data. `id` and `retry` are passed over.
//!
//! One thing more than those rules: a bare JSON document between events, over any number of lines, is reported as an event. Google
//! writes its errors so in the middle of a stream.
//!
//! The scanner only observes: the bytes themselves go their own way, untouched. So it may be strict about memory (an event or
//! line over the limit is counted and skipped, never kept) and lenient about content (invalid UTF-8 is the reader's business).
//!
//! An event that lies whole inside one chunk is not copied.

use std::{fmt, mem};

use memchr::{memchr, memchr2};

/// The longest line, and the most data in one event, that is kept by default: 1 MiB.
pub const MAX_EVENT: usize = 1 << 20;

/// Buffers above this are given back after the event that needed them.
const MAX_KEPT_BUFFER: usize = 64 << 10;

/// What a line is shows within its first bytes, a BOM included; no limit is lower.
const MIN_LIMIT: usize = 16;

/// One event. Its `Debug` shows sizes, not content: answers do not belong in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty where there was none, which means "message".
    pub name: &'a [u8],
    /// The `data` lines, joined by LF; empty where `oversized`.
    pub data: &'a [u8],
    /// Whether a line or the data went over the limit and was let go.
    pub oversized: bool,
}

/// The incremental parser. Holds at most one line and one event, each bounded by the limit.
pub struct Scanner {
    limit: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// That line is over the limit and being skipped.
    skipping: bool,
    /// The last byte was a CR: an LF now belongs to it.
    after_cr: bool,
    /// No line has ended yet, so a BOM may stand in front.
    first_line: bool,
    event: Pending,
}

/// The event being gathered.
#[derive(Default)]
struct Pending {
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    oversized: bool,
    /// What is gathered is a bare JSON document: each line is a part of it, up to the empty one.
    is_bare_json: bool,
}

/// The part of the pending event that still lies in the chunk at hand.
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
            .field("limit", &self.limit)
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
    /// A scanner with the default limit, [`MAX_EVENT`].
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT)
    }

    /// A scanner that keeps lines and events of up to `limit` bytes, at least 16.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit: limit.max(MIN_LIMIT),
            line: Vec::new(),
            skipping: false,
            after_cr: false,
            first_line: true,
            event: Pending::default(),
        }
    }

    /// Takes the next bytes of the body and reports each event that they complete.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let mut borrowed = Borrowed::default();
        let mut rest = chunk;
        if mem::take(&mut self.after_cr) {
            match rest {
                [b'\n', tail @ ..] => rest = tail,
                // Nothing came: the LF may still.
                [] => self.after_cr = true,
                _ => {}
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            rest = match tail {
                [b'\r', b'\n', tail @ ..] => tail,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, tail @ ..] => tail,
                [] => &[],
            };
            self.end_line(line, &mut borrowed, &mut on_event);
        }
        self.buffer(rest);
        self.event.copy_borrowed(&mut borrowed, self.limit);
    }

    /// Ends the body. Reports an event whose closing empty line never came.
    ///
    /// A browser would drop that event. We report it because some servers end `data: [DONE]` with the connection, and because
    /// half an event cannot be mistaken for a whole one: its JSON does not parse.
    pub fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        let mut borrowed = Borrowed::default();
        if self.skipping || !self.line.is_empty() {
            self.end_line(b"", &mut borrowed, &mut on_event);
        }
        self.event.dispatch(&mut borrowed, &mut on_event);
    }

    /// Keeps the beginning of a line for the next chunk, or lets it go where it is too long.
    fn buffer(&mut self, part: &[u8]) {
        if self.skipping || part.is_empty() {
            return;
        }
        if self.line.len() + part.len() <= self.limit {
            self.line.extend_from_slice(part);
            return;
        }
        if self.line.len() < MIN_LIMIT {
            self.line.extend_from_slice(part.get(..MIN_LIMIT).unwrap_or(part));
        }
        self.skip_line();
    }

    /// Lets the line in the buffer go. Only a field that makes part of an event makes that event oversized.
    fn skip_line(&mut self) {
        self.skipping = true;
        let line = mem::take(&mut self.line);
        self.event.overflow(strip_bom(&line, self.first_line));
    }

    fn end_line<'a>(
        &mut self,
        tail: &'a [u8],
        borrowed: &mut Borrowed<'a>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        if self.line.is_empty() && !self.skipping {
            let line = tail;
            if line.len() > self.limit {
                self.event.overflow(strip_bom(line, self.first_line));
            } else {
                let line = strip_bom(line, self.first_line);
                if line.is_empty() {
                    self.event.dispatch(borrowed, on_event);
                } else {
                    self.event.field(line, borrowed, self.limit);
                }
            }
        } else {
            self.buffer(tail);
            if !mem::take(&mut self.skipping) {
                let line = mem::take(&mut self.line);
                let whole = strip_bom(&line, self.first_line);
                if !whole.is_empty() {
                    let mut carried = Borrowed::default();
                    self.event.field(whole, &mut carried, self.limit);
                    self.event.copy_borrowed(&mut carried, self.limit);
                }
                self.line = reuse(line);
            }
        }
        self.first_line = false;
    }
}

impl Pending {
    /// Takes one line that is neither empty nor too long.
    fn field<'a>(&mut self, line: &'a [u8], borrowed: &mut Borrowed<'a>, limit: usize) {
        // No field begins so.
        if self.is_bare_json || line.first() == Some(&b'{') && !self.has_data && borrowed.data.is_none() {
            self.is_bare_json = true;
            return self.append(line, limit);
        }
        let (name, value) = match memchr(b':', line) {
            Some(colon) => {
                let (name, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match name {
            b"data" => {
                if self.has_data || borrowed.data.is_some() {
                    self.copy_borrowed(borrowed, limit);
                    self.append(value, limit);
                } else {
                    borrowed.data = Some(value);
                }
            }
            b"event" => {
                self.name.clear();
                borrowed.name = Some(value);
            }
            // Comments (an empty name), `id`, `retry`, and what nobody has defined.
            _ => {}
        }
    }

    /// A line that was too long to keep.
    fn overflow(&mut self, beginning: &[u8]) {
        let name = memchr(b':', beginning).and_then(|colon| beginning.get(..colon)).unwrap_or(beginning);
        if name == b"data" || name == b"event" {
            self.oversized = true;
            self.data = Vec::new();
        }
    }

    /// Moves what lies in the chunk into our own memory, before the chunk goes away.
    fn copy_borrowed(&mut self, borrowed: &mut Borrowed<'_>, limit: usize) {
        if let Some(name) = borrowed.name.take() {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
        if let Some(data) = borrowed.data.take() {
            self.append(data, limit);
        }
    }

    fn append(&mut self, value: &[u8], limit: usize) {
        if self.oversized {
            // Data all the same: what follows in this event is no bare document.
            self.has_data = true;
            return;
        }
        let joint = usize::from(self.has_data);
        if self.data.len() + joint + value.len() > limit {
            self.oversized = true;
            self.data = Vec::new();
            return;
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
    }

    /// The empty line: reports the event, if there is one, and starts the next.
    fn dispatch(&mut self, borrowed: &mut Borrowed<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        let name = borrowed.name.take().unwrap_or(&self.name);
        let data = borrowed.data.take();
        if self.oversized {
            on_event(Event { name, data: b"", oversized: true });
        } else if let Some(data) = data {
            on_event(Event { name, data, oversized: false });
        } else if self.has_data {
            on_event(Event { name, data: &self.data, oversized: false });
        }
        self.name.clear();
        self.data = reuse(mem::take(&mut self.data));
        self.has_data = false;
        self.oversized = false;
        self.is_bare_json = false;
    }
}

fn strip_bom(line: &[u8], first: bool) -> &[u8] {
    if first { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line }
}

/// An emptied buffer, or a fresh one where it has grown large.
fn reuse(mut buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > MAX_KEPT_BUFFER {
        return Vec::new();
    }
    buffer.clear();
    buffer
}

#[cfg(test)]
mod tests;
