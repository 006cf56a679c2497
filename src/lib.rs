//! Slipring: libxdp's C interface for AF_XDP sockets over two providers of one thing.
//!
//! ```text
//! C program --+- xsk_*   -> abi -> xsk -> uapi (trait) -+-> direct  -> kernel AF_XDP
//!             +- inline ring helpers -> ring memory     +-> engine  -> device -> wire, loop, null
//!             +- sendto, poll, ...   -> interpose --(ours?)--> engine, else libc
//! ```
//!
//! The crate is a C library first: `abi` and `interpose` hold every exported function and nothing else does.
//! Everything below them is ordinary Rust and is what the `slipring` program, the benches and the tests use.

pub mod abi;
pub mod config;
pub mod device;
pub mod direct;
pub mod engine;
pub mod errno;
pub mod interpose;
pub mod log;
pub mod ring;
pub mod sync;
pub mod sys;
pub mod uapi;
pub mod xsk;
