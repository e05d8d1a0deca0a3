//! Errors of calls that the bindings make themselves.

use tidegate::{Error, ErrorKind, Reason};

use crate::argument::{InvalidArgument, seconds};

/// Returns the error of a read from a response that was closed.
pub fn response_closed() -> Error {
    Error::new(ErrorKind::Transport, "this response was closed before it was read to the end")
}

/// Returns the error of using a response, in the child of a fork, that the parent received.
pub fn forked() -> Error {
    Error::new(
        ErrorKind::Transport,
        "this response belongs to the parent process: it cannot be read after a fork",
    )
}

/// Returns the error with these parts, for conformance tests (`tests/vectors/errors.json`), because
/// not every error can be provoked. `None` if the core has no such kind with that reason.
///
/// # Errors
///
/// If `retry_after` is not a number of seconds.
pub fn error_from_parts(
    kind: &str,
    message: String,
    reason: Option<&str>,
    target: Option<&str>,
    retry_after: Option<f64>,
    queue_position: Option<usize>,
) -> Result<Option<Error>, InvalidArgument> {
    let is_it = |known: &ErrorKind| known.as_str() == kind && known.reason().map(Reason::as_str) == reason;
    let Some(kind) = ErrorKind::all().find(is_it) else { return Ok(None) };
    let retry_after = retry_after.map(|after| seconds("retry_after", after)).transpose()?;
    let mut error = Error::new(kind, message).with_retry_after(retry_after);
    if let Some(target) = target {
        error = error.at(&target.into());
    }
    if let Some(position) = queue_position {
        error = error.with_queue_position(position);
    }
    Ok(Some(error))
}
