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
//!
//! Under `--cfg loom` only what the model checker runs on is compiled: the rings and what they stand on. The rest keeps
//! atomics in statics, which loom's types cannot be.

#[cfg(not(loom))]
pub mod abi;
#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod device;
#[cfg(not(loom))]
pub mod direct;
#[cfg(not(loom))]
pub mod engine;
pub mod errno;
#[cfg(not(loom))]
pub mod interpose;
#[cfg(not(loom))]
mod loaded;
#[cfg(not(loom))]
pub mod log;
pub mod ring;
pub mod sync;
pub mod sys;
pub mod uapi;
#[cfg(not(loom))]
pub mod xsk;
