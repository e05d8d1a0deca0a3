//! Everything found wrong, gathered so that one run over a file tells all of it.

use std::cell::RefCell;
use std::fmt::Write;

use crate::Error;

#[derive(Default)]
pub(super) struct Problems(RefCell<Vec<(Option<usize>, String)>>);

impl Problems {
    pub(super) fn add(&self, line: Option<usize>, text: String) {
        self.0.borrow_mut().push((line, text));
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// One error with a problem a line, in the order of the file; `Ok` where there was none.
    ///
    /// `file` prefixes each line as compilers do (`tidegate.toml:3: ...`); without it the text says `line 3: ...`.
    pub(super) fn into_result(self, file: Option<&str>) -> Result<(), Error> {
        let mut problems = self.0.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        // Stable: problems on one line, and those of a tree without lines, stay in the order they were found.
        problems.sort_by_key(|(line, _)| *line);
        let mut message = String::new();
        for (line, text) in problems {
            let separator = if message.is_empty() { "" } else { "\n" };
            // Writing to a String cannot fail.
            let _ = match (file, line) {
                (Some(file), Some(line)) => write!(message, "{separator}{file}:{line}: {text}"),
                (Some(file), None) => write!(message, "{separator}{file}: {text}"),
                (None, Some(line)) => write!(message, "{separator}line {line}: {text}"),
                (None, None) => write!(message, "{separator}{text}"),
            };
        }
        Err(Error::config(message))
    }
}
