//! Checks that an event stream is read the same however it is cut, and that no input causes a
//! panic.
//!
//! Run with `cargo +nightly fuzz run sse fuzz/corpus/sse fuzz/seeds/sse`. The first byte is the
//! size of the pieces, and the rest is the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../property.rs"]
mod property;

fuzz_target!(|input: &[u8]| property::same_wherever_it_is_cut(input));
