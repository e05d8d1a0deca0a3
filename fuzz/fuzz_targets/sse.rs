//! Checks that a stream of server-sent events is parsed the same in chunks of any size, and that no
//! input causes a panic.
//!
//! Run with `cargo +nightly fuzz run sse fuzz/corpus/sse fuzz/seeds/sse`. The first byte of an
//! input is the size of the chunks in bytes, and the rest is the body of the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../property.rs"]
mod property;

fuzz_target!(|input: &[u8]| property::same_in_any_chunks(input));
