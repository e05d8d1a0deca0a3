//! The native half of the Node package: a bridge between Node's event loops and tokio, in front of
//! the core.
//!
//! JavaScript handles fetch, signals, streams and promises. Native code handles bytes, headers and
//! the core. A call is passed between the languages once, and so is each chunk. Results are
//! returned to JavaScript in batches, each with the number that JavaScript gave to its call.
#![allow(unreachable_pub, reason = "napi exports what is pub, in private modules too")]
// napi exports nothing to a test binary, which `--all-targets` builds nevertheless.
#![cfg_attr(test, allow(dead_code))]

mod body_upload;
mod bridge;
mod context;
mod custom_transport;
mod errors;
mod fake_target;
mod gate;
mod item_window;
mod logging;
mod request;
mod response;
mod target_slot;
mod tool_slot;
mod values;
