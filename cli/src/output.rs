//! Output of the subcommands. A subcommand does not end because the reader of its output did.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use crate::Failure;

/// Writes `text` to standard output. If nobody reads standard output any more, the text is dropped.
///
/// # Errors
///
/// Returns a runtime error if the text cannot be written for another reason, such as a full disk.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard output. See [`print`].
pub(crate) fn print_line(line: impl Display) -> Result<(), Failure> {
    print(format_args!("{line}\n"))
}

/// Writes a line to standard error. If it cannot be written, it is dropped.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
