//! What is read: lines, and the request that stands in each.

mod lines;
mod request;

pub use lines::{Line, Lines, Sum};
pub use request::{PATHS, Request, Wishes, request};
