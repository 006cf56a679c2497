//! The default XDP program.
use crate::{
    errno::{Errno, Result},
    uapi::Program,
};
use std::os::fd::RawFd;
pub(super) fn join(_: u32, _: u32) -> Result<Box<dyn Program>> {
    Err(Errno::EOPNOTSUPP)
}
pub(super) fn permanent(_: u32) -> Result<RawFd> {
    Err(Errno::EOPNOTSUPP)
}
