//! Names the shared library as it is installed, and makes it call its own functions, even if a
//! program replaces them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtransfer_engine.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
