//! Build script: configures the linker for a native module of Node. Node itself provides the
//! functions of Node-API when it loads the module.

fn main() {
    napi_build::setup();
}
