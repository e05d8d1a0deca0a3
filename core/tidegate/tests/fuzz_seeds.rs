//! Checks on the seed inputs of the fuzz target that event streams are parsed equally however they
//! are split into chunks. Runs without a fuzzer.

#[path = "../../../fuzz/property.rs"]
mod property;

use std::path::Path;

#[test]
fn fuzz_seeds_parse_equally_at_any_chunking() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/sse");
    let mut count = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        let mut input = std::fs::read(entry.unwrap().path()).unwrap();
        // The first byte is the size of the pieces. All sizes are tried for each seed.
        for size in 1..=64 {
            input[0] = size;
            property::same_in_any_chunks(&input);
        }
        count += 1;
    }
    assert!(count > 0, "no seeds");
}
