//! The gate's errors as JavaScript sees them. It maps the kind to a class, never the text.

use std::error::Error as _;

use napi_derive::napi;
use tidegate::explain::Obstacle;
use tidegate::{Error, ErrorKind, Reason, duration};

use crate::kept::Thrown;

/// The parts of an error, for `ts/errors.ts`.
#[napi(object, object_from_js = false)]
pub struct Failure {
    pub kind: &'static str,
    pub message: String,
    pub reason: Option<&'static str>,
    pub target: Option<String>,
    pub status: u16,
    /// Seconds.
    pub retry_after: Option<f64>,
    pub queue_position: Option<u32>,
    pub retryable: bool,
    /// Where what the caller's own fetch threw is kept, if that is what failed.
    pub thrown: Option<u32>,
    /// The number of the call that it ended.
    pub call: Option<f64>,
    pub why: Option<Why>,
}

/// What stood in a refused call's way.
#[napi(object, object_from_js = false)]
pub struct Why {
    pub rule: &'static str,
    pub text: &'static str,
    pub since: f64,
    pub waited: f64,
    pub expected: Option<f64>,
    pub ahead: u32,
}

impl From<Obstacle> for Why {
    fn from(why: Obstacle) -> Self {
        let Obstacle { rule, text, since, waited, expected, ahead } = why;
        Self { rule, text, since, waited, expected, ahead: u32::try_from(ahead).unwrap_or(u32::MAX) }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().as_str(),
            message: error.to_string(),
            reason: error.reason().map(|reason| reason.as_str()),
            target: error.target().map(str::to_owned),
            status: error.status().as_u16(),
            retry_after: error.come_back().map(|after| after.as_secs_f64()),
            queue_position: error.position().and_then(|position| u32::try_from(position).ok()),
            retryable: error.retryable(),
            thrown: error.source().and_then(|source| source.downcast_ref::<Thrown>()).map(|thrown| thrown.0),
            call: error.call().map(|call| call as f64),
            why: error.why().map(|why| Obstacle::from(why).into()),
        }
    }
}

/// The parts of an error of the core that is made of these. `None` for a kind or reason that the core does not have, or no time to come back.
pub(crate) fn made(
    kind: &str,
    message: String,
    reason: Option<&str>,
    target: Option<String>,
    retry_after: Option<f64>,
    queue_position: Option<u32>,
) -> Option<Failure> {
    let named = |known: &ErrorKind| known.as_str() == kind && known.reason().map(Reason::as_str) == reason;
    let kind = ErrorKind::ALL.into_iter().find(named)?;
    let after = match retry_after {
        Some(seconds) => Some(duration::from_secs(seconds)?),
        None => None,
    };
    let mut error = Error::new(kind, message).retry_after(after);
    if let Some(target) = target {
        error = error.at(&target.into());
    }
    if let Some(position) = queue_position {
        error = error.queue_position(position as usize);
    }
    Some(Failure::from(&error))
}

/// What a reader finds when somebody else closed the response.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Transport, "this response was closed before it was read to the end")
}
