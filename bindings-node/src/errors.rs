//! Errors in the form that JavaScript receives. Their kind, and never their text, determines the
//! class in JavaScript.

use std::error::Error as _;

use napi::{Error as JsError, Status};
use napi_derive::napi;
use tidegate::Error;
use tidegate::explain::Obstacle;
use tidegate_bindings::InvalidArgument;

/// The index of a value that the caller's own fetch threw. JavaScript stores the value in a list at
/// this index, so that the caller gets the same value back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrownIndex(pub(crate) u32);

impl std::fmt::Display for ThrownIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the caller's own fetch threw")
    }
}

impl std::error::Error for ThrownIndex {}

/// The parts of an error, from which `ts/errors.ts` creates the JavaScript error.
#[napi(object, object_from_js = false)]
pub struct Failure {
    pub kind: &'static str,
    pub message: String,
    pub reason: Option<&'static str>,
    pub target: Option<String>,
    pub status: u16,
    /// `true` if the host refused or reset the connection.
    pub connect_refused: bool,
    /// The seconds after which a retry may succeed; undefined if that time is not known.
    pub retry_after: Option<f64>,
    pub queue_position: Option<u32>,
    pub retryable: bool,
    /// The index of the value that the caller's own fetch threw; undefined if the gate itself
    /// failed.
    pub thrown: Option<u32>,
    /// The number of the call; undefined if the error belongs to no call.
    pub call: Option<f64>,
    pub why: Option<Why>,
}

/// The rule that blocked a rejected call. At the rejection, the rule had blocked the call for
/// `since` seconds, and the call had waited for `waited` seconds in total. `expected` is the number
/// of seconds for which the call would probably still have waited; undefined if that time is not
/// known. `ahead` is the number of calls that were ahead in the queue.
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
            connect_refused: error.is_connect_refused(),
            retry_after: error.retry_after().map(|after| after.as_secs_f64()),
            queue_position: error.queue_position().and_then(|position| u32::try_from(position).ok()),
            retryable: error.retryable(),
            thrown: error
                .source()
                .and_then(|source| source.downcast_ref::<ThrownIndex>())
                .map(|thrown| thrown.0),
            call: error.call().map(|call| call as f64),
            why: error.why().map(|why| Obstacle::from(why).into()),
        }
    }
}

/// Converts an invalid argument into an exception for JavaScript.
pub(crate) fn argument_error(argument: InvalidArgument) -> JsError {
    JsError::new(Status::InvalidArg, argument.to_string())
}
