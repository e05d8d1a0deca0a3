//! What is read: lines, and the request that stands in each.

mod lines;
mod request;

pub use lines::{Checksum, Line, Lines};
pub use request::{ENDPOINT_PATHS, Request, RequestOverrides, parse_request};
