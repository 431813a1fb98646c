//! Has the shared library call its own functions, and not those that a program puts in their place: a
//! profile's `ARMCI_Put` calls `PARMCI_Put`, and that the library's.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
