//! Sets `cfg(loom)` for this package only, because a flag for the whole build would also apply to
//! tokio.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
