//! Makes the shared library call its own functions, even if a program replaces them. A profile's
//! `ARMCI_Put` calls `PARMCI_Put`, which calls the library's `ARMCI_Put`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
