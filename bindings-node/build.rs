//! Tells the linker that Node provides what is missing.

fn main() {
    napi_build::setup();
}
