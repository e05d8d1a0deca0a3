//! Experiments behind every figure that Tidegate claims.
fn main() {}
