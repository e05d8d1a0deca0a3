//! The input of a batch: splits it into lines, and parses each line as a request.

mod lines;
mod request;

pub use lines::{Checksum, Line, Lines};
pub use request::{ENDPOINT_PATHS, Request, RequestOverrides, parse_request};
