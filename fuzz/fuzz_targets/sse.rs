//! An event stream means the same wherever it is cut, and nothing in it panics.
//!
//! Run with `cargo +nightly fuzz run sse fuzz/corpus/sse fuzz/seeds/sse`. The first byte chooses the size of the pieces, the
//! rest is the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../property.rs"]
mod property;

fuzz_target!(|input: &[u8]| property::same_wherever_it_is_cut(input));
