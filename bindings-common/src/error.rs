//! Errors that the bindings create themselves, instead of the core.

use tidegate::{Error, ErrorKind, Reason};

use crate::argument::{InvalidArgument, seconds};

/// Returns the error for a read from a response that was closed before its end.
pub fn response_closed() -> Error {
    Error::new(ErrorKind::Transport, "this response was closed before it was read to the end")
}

/// Returns the error for a forked child process that uses a response or a slot of its parent.
pub fn used_after_fork() -> Error {
    Error::new(
        ErrorKind::Transport,
        "this response or slot belongs to the parent process: it cannot be used after a fork; make the call again",
    )
}

/// Creates an error from its parts. Conformance tests (`tests/vectors/errors.json`) need this,
/// because they cannot provoke every error. Returns `None` if the core has no error of this `kind`
/// with this `reason`.
///
/// `retry_after` is in seconds. If an optional part is `None`, the error does not have it.
///
/// # Errors
///
/// If `retry_after` is negative or not finite.
pub fn error_from_parts(
    kind: &str,
    message: String,
    reason: Option<&str>,
    target: Option<&str>,
    retry_after: Option<f64>,
    queue_position: Option<usize>,
) -> Result<Option<Error>, InvalidArgument> {
    let matches = |known: &ErrorKind| known.as_str() == kind && known.reason().map(Reason::as_str) == reason;
    let Some(kind) = ErrorKind::all().find(matches) else { return Ok(None) };
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
