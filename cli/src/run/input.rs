//! The input of a run: a file or standard input.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tidegate_batch::{Compression, Lines};

use super::is_stdio;
use crate::Failure;

/// Maximum length of an input line, in bytes.
const MAX_LINE_BYTES: usize = 32 << 20;

/// The input: a file, or standard input.
pub(super) struct Input {
    path: PathBuf,
    /// The file, at its start. `None` is standard input.
    ///
    /// A pipe is opened only once: its writer would fail when the first reader closes it.
    file: Option<File>,
}

/// A reader of the lines of a file or of standard input.
pub(super) type Reader = Lines<Box<dyn BufRead + Send>>;

impl Input {
    /// Opens the input. The path `-` is standard input.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let file = if is_stdio(path) { None } else { Some(open(path)?) };
        if file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|metadata| metadata.is_dir())) {
            return Err(Failure::usage(format!("{}: is a directory, not a file", path.display())));
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Returns a reader of the lines of the input. Decompresses `.gz` and `.zst` files.
    pub(super) fn lines(self) -> Reader {
        match self.file {
            Some(file) => read(&self.path, file),
            None => {
                let text: Box<dyn BufRead + Send> =
                    Box::new(BufReader::with_capacity(1 << 16, std::io::stdin()));
                Lines::new(text, MAX_LINE_BYTES)
            }
        }
    }

    /// Opens the input again, and returns a reader from its start. Returns `None` if the input is
    /// not a regular file, because it can then be read only once.
    pub(super) fn reopen(&self) -> Result<Option<Reader>, Failure> {
        let metadata = self.file.as_ref().map(File::metadata);
        if metadata.is_some_and(|file| file.is_ok_and(|file| file.is_file())) {
            return Ok(Some(read(&self.path, open(&self.path)?)));
        }
        Ok(None)
    }
}

/// Returns a reader of the lines of a file. The name in `path` tells how the file is compressed.
fn read(path: &Path, file: File) -> Reader {
    let file = BufReader::with_capacity(1 << 16, file);
    let text: Box<dyn Read + Send> = Compression::from_path(path).reader(file);
    Lines::new(Box::new(BufReader::with_capacity(1 << 16, text)), MAX_LINE_BYTES)
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|e| Failure::usage(format!("{}: cannot be read: {e}", path.display())))
}
