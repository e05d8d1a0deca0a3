//! The native half of the Node package: a bridge between Node's event loops and tokio, and the core behind it.
//!
//! What is JavaScript's and what is native: JavaScript knows fetch, signals, streams and promises; native code knows bytes, headers and the
//! core. They meet in one crossing a call and one a chunk, and every result comes back in a batch, by number.
#![allow(unreachable_pub, reason = "napi exports what is pub, wherever it is")]
// napi exports nothing to a test binary, which `--all-targets` makes all the same.
#![cfg_attr(test, allow(dead_code))]

mod bridge;
mod context;
mod failure;
mod fake;
mod gate;
mod kept;
mod reply;
mod request;
mod slot;
mod stream;
mod tool;
mod upload;
mod values;
mod window;
