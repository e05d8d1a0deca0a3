//! The input of a run: a file or standard input.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tidegate_batch::{Compression, Lines};

use super::is_stdio;
use crate::Failure;

/// Maximum length of an input line, in bytes.
const MAX_LINE_BYTES: usize = 32 << 20;

/// The input: a path, where `-` means standard input.
#[derive(Clone)]
pub(super) struct Input(PathBuf);

/// A reader of the lines of a file or of standard input.
pub(super) type Reader = Lines<Box<dyn BufRead + Send>>;

impl Input {
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let input = Self(path.to_owned());
        if !is_stdio(path) {
            input.open()?;
        }
        Ok(input)
    }

    /// Opens the input, and returns a reader of its lines. Decompresses `.gz` and `.zst` files.
    pub(super) fn lines(self) -> Result<Reader, Failure> {
        if is_stdio(&self.0) {
            let text: Box<dyn BufRead + Send> = Box::new(BufReader::with_capacity(1 << 16, std::io::stdin()));
            return Ok(Lines::new(text, MAX_LINE_BYTES));
        }
        self.read()
    }

    /// Opens the input again, and returns a reader from its start. Returns `None` if the input is
    /// not a regular file, because it can then be read only once.
    pub(super) fn reopen(&self) -> Result<Option<Reader>, Failure> {
        let is_file = !is_stdio(&self.0) && std::fs::metadata(&self.0).is_ok_and(|file| file.is_file());
        if is_file { self.read().map(Some) } else { Ok(None) }
    }

    fn read(&self) -> Result<Reader, Failure> {
        let file = BufReader::with_capacity(1 << 16, self.open()?);
        let text: Box<dyn Read + Send> = Compression::from_path(&self.0).reader(file);
        Ok(Lines::new(Box::new(BufReader::with_capacity(1 << 16, text)), MAX_LINE_BYTES))
    }

    fn open(&self) -> Result<File, Failure> {
        File::open(&self.0).map_err(|e| Failure::usage(format!("{}: cannot be read: {e}", self.0.display())))
    }
}
