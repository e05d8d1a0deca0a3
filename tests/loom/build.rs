//! Compiles this package, and no other, under `cfg(loom)`: a flag for the whole build would reach tokio as well.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
