//! Link arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libslipring.so.0");
}
