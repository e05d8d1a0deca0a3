//! The input: its lines, and the request in each line.

mod lines;
mod request;

pub use lines::{Checksum, Line, Lines};
pub use request::{ENDPOINT_PATHS, Request, RequestOverrides, parse_request};
