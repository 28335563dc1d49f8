//! The name under which programs look for the shared library: its number changes with the binary
//! interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidegate.so.0");
}
