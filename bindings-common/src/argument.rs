//! Checks and converts arguments that a program in the host language (Python or JavaScript) passes.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate::duration;

/// The error for an invalid argument. Its message tells the programmer what is wrong with the
/// value.
#[derive(Debug)]
pub struct InvalidArgument(pub(crate) String);

impl fmt::Display for InvalidArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidArgument {}

/// Converts an argument in seconds into a duration. `name` is the name of the argument in the error
/// message.
///
/// # Errors
///
/// If the number is negative, infinite or not a number.
pub fn seconds(name: &str, seconds: f64) -> Result<Duration, InvalidArgument> {
    duration::from_secs(seconds).ok_or_else(|| {
        InvalidArgument(format!("{name}: {seconds} is not valid; give a finite number of seconds, 0 or more"))
    })
}

/// Converts the argument `status` into an HTTP status.
///
/// # Errors
///
/// If the number is not from 100 to 999.
pub fn status_code(status: u32) -> Result<StatusCode, InvalidArgument> {
    let code = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    code.ok_or_else(|| InvalidArgument(format!("status: {status} is not an HTTP status; give 100 to 999")))
}

/// Deserializes a value from a JSON text.
///
/// # Errors
///
/// If the text is not JSON, or does not describe a `T`.
pub fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, InvalidArgument> {
    serde_json::from_str(json).map_err(|error| InvalidArgument(format!("not JSON: {error}")))
}

/// Serializes a value to a JSON text.
///
/// # Errors
///
/// If the value cannot be represented in JSON.
pub fn to_json(value: &impl Serialize) -> Result<String, InvalidArgument> {
    serde_json::to_string(value).map_err(|error| InvalidArgument(error.to_string()))
}
