//! Socket options and the other questions that a program asks of a descriptor; `socket` and `bind` of programs that speak
//! the kernel's AF_XDP interface without libxdp.
//!
//! Lengths, error numbers and the order of checks are what the kernel answers on its own AF_XDP sockets.

use core::{
    ffi::{c_int, c_ulong, c_void},
    mem::size_of,
    ptr,
};

use libc::{sockaddr, socklen_t};

use super::{Answer, next, on_our_descriptor, sock, user};
use crate::{
    config, engine,
    engine::BusyPoll,
    errno::{Errno, Result},
    sys,
    uapi::{
        self, MmapOffsets, Ring, SockaddrXdp, Socket as _, Statistics, UmemReg,
        select::{self, Side},
        switch,
    },
};

const SO_BUSY_POLL_BUDGET: c_int = 70;
const SO_PREFER_BUSY_POLL: c_int = 69;
/// Largest value of `SO_BUSY_POLL_BUDGET`.
const BUDGET_MAX: i32 = 0xffff;

/// Bytes of `struct xdp_mmap_offsets` before it had flags: 4 rings of 3 offsets.
const OLD_OFFSETS: usize = 96;
/// Bytes of `struct xdp_statistics` before it had the ring counters.
const OLD_STATISTICS: usize = 24;
/// Bytes of `struct xdp_umem_reg` before it had flags.
const OLD_UMEM_REG: usize = 24;

/// How many bytes `getsockopt(SOL_XDP)` gives for an option when there is room for `room`.
fn xdp_answer_len(option: c_int, room: usize) -> Result<usize> {
    let steps: &[usize] = match option {
        uapi::XDP_MMAP_OFFSETS => &[size_of::<MmapOffsets>(), OLD_OFFSETS],
        uapi::XDP_STATISTICS => &[size_of::<Statistics>(), OLD_STATISTICS],
        uapi::XDP_OPTIONS => &[size_of::<u32>()],
        _ => return Err(Errno::EOPNOTSUPP),
    };
    steps.iter().copied().find(|&n| n <= room).ok_or(Errno::EINVAL)
}

/// The offsets without the flags, as kernels before 5.4 give them.
fn old_offsets(offsets: &MmapOffsets) -> [u64; OLD_OFFSETS / 8] {
    let mut old = [0; OLD_OFFSETS / 8];
    for (place, ring) in old.chunks_exact_mut(3).zip(Ring::ALL) {
        let of = offsets.of(ring);
        place.copy_from_slice(&[of.producer, of.consumer, of.desc]);
    }
    old
}

/// Where `getsockopt` puts its answer.
struct Out {
    value: *mut c_void,
    len: *mut socklen_t,
    room: usize,
}

impl Out {
    /// EFAULT, EINVAL as the kernel checks them.
    fn new(value: *mut c_void, len: *mut socklen_t) -> Result<Out> {
        let given: i32 = user::take(len.cast())?;
        let room = usize::try_from(given).map_err(|_| Errno::EINVAL)?;
        Ok(Out { value, len, room })
    }

    /// Give the first `len` bytes of a plain value, as far as there is room.
    fn put<T: Copy>(&self, value: &T, len: usize) -> Result<usize> {
        let len = len.min(size_of::<T>()).min(self.room);
        let from = ptr::from_ref(value).cast::<u8>();
        // SAFETY: `value` has `len` bytes.
        user::copy_out(self.value.cast(), unsafe { core::slice::from_raw_parts(from, len) })?;
        let len = socklen_t::try_from(len).map_err(|_| Errno::EINVAL)?;
        user::copy_out(self.len.cast(), &len.to_ne_bytes())?;
        Ok(0)
    }

    fn put_int(&self, value: i32) -> Result<usize> {
        self.put(&value, size_of::<i32>())
    }
}

fn get_xdp(socket: &engine::Socket, option: c_int, out: &Out) -> Result<usize> {
    let len = xdp_answer_len(option, out.room)?;
    match option {
        uapi::XDP_MMAP_OFFSETS if len == OLD_OFFSETS => out.put(&old_offsets(&socket.mmap_offsets()?), len),
        uapi::XDP_MMAP_OFFSETS => out.put(&socket.mmap_offsets()?, len),
        uapi::XDP_STATISTICS => out.put(&socket.statistics()?, len),
        _ => out.put(&socket.options()?, len),
    }
}

/// Level SOL_SOCKET. `None`: the descriptor's own answer is as good.
fn get_socket(socket: &engine::Socket, option: c_int, out: &Out) -> Option<Result<usize>> {
    Some(match option {
        libc::SO_TYPE => out.put_int(libc::SOCK_RAW),
        libc::SO_DOMAIN => out.put_int(uapi::AF_XDP),
        libc::SO_PROTOCOL => out.put_int(0),
        libc::SO_ERROR => socket.take_error().and_then(|e| out.put_int(e)),
        uapi::SO_NETNS_COOKIE if out.room != size_of::<u64>() => Err(Errno::EINVAL),
        uapi::SO_NETNS_COOKIE => socket.netns_cookie().and_then(|c| out.put(&c, size_of::<u64>())),
        libc::SO_BUSY_POLL => out.put_int(socket.busy_poll(BusyPoll::Time)),
        SO_PREFER_BUSY_POLL => out.put_int(socket.busy_poll(BusyPoll::Prefer)),
        // The kernel's can be set, not read.
        SO_BUSY_POLL_BUDGET => Err(Errno::ENOPROTOOPT),
        _ => return None,
    })
}

/// A plain value that `setsockopt` was given: `len` bytes at `value`, of which there must be enough for it.
fn taken<T: Copy>(value: *const c_void, len: usize) -> Result<T> {
    if len < size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    user::take(value)
}

/// `struct xdp_umem_reg` of any age.
fn umem_reg(value: *const c_void, len: usize) -> Result<UmemReg> {
    if len >= size_of::<UmemReg>() {
        return taken(value, len);
    }
    let old: [u64; OLD_UMEM_REG / 8] = taken(value, len)?;
    let sizes = old[2].to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]]);
    Ok(UmemReg { addr: old[0], len: old[1], chunk_size: half(0), headroom: half(4), ..UmemReg::default() })
}

fn set_xdp(socket: &engine::Socket, option: c_int, value: *const c_void, len: usize) -> Result<usize> {
    let ring = Ring::ALL.into_iter().find(|r| r.option() == option);
    if let Some(ring) = ring {
        socket.set_ring_size(ring, taken(value, len)?)?;
    } else if option == uapi::XDP_UMEM_REG {
        socket.register_umem(&umem_reg(value, len)?)?;
    } else if option == uapi::XDP_MAX_TX_SKB_BUDGET {
        if len != size_of::<u32>() {
            return Err(Errno::EINVAL);
        }
        socket.set_budget(taken(value, len)?)?;
    } else {
        return Err(Errno::ENOPROTOOPT);
    }
    Ok(0)
}

/// Level SOL_SOCKET. `None`: the descriptor may have it.
///
/// The busy-poll options are accepted without the capability that the kernel wants for raising them: they cost nobody
/// anything here, and programs give up when they fail.
fn set_socket(socket: &engine::Socket, option: c_int, value: *const c_void, len: usize) -> Option<Result<usize>> {
    let int = || taken::<i32>(value, len);
    Some(match option {
        libc::SO_BUSY_POLL => int().and_then(|v| {
            if v < 0 {
                return Err(Errno::EINVAL);
            }
            socket.set_busy_poll(BusyPoll::Time, v);
            Ok(0)
        }),
        SO_PREFER_BUSY_POLL => int().map(|v| {
            socket.set_busy_poll(BusyPoll::Prefer, i32::from(v != 0));
            0
        }),
        SO_BUSY_POLL_BUDGET => {
            int().and_then(|v| if (0..=BUDGET_MAX).contains(&v) { Ok(0) } else { Err(Errno::EINVAL) })
        }
        libc::SO_TYPE | libc::SO_DOMAIN | libc::SO_PROTOCOL | libc::SO_ERROR | uapi::SO_NETNS_COOKIE => {
            Err(Errno::ENOPROTOOPT)
        }
        _ => return None,
    })
}

/// Whether the kernel answers an ioctl for every file or socket, without asking AF_XDP.
fn is_general_ioctl(request: c_ulong) -> bool {
    const FIOSETOWN: c_ulong = 0x8901;
    const SIOCSPGRP: c_ulong = 0x8902;
    const FIOGETOWN: c_ulong = 0x8903;
    const SIOCGPGRP: c_ulong = 0x8904;
    const SIOCGSKNS: c_ulong = 0x894c;
    let general = [libc::FIOCLEX, libc::FIONCLEX, libc::FIONBIO, libc::FIOASYNC, libc::FIOQSIZE];
    let general = general.into_iter().chain([FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCGSKNS]);
    general.into_iter().any(|r| r == request)
}

/// An ioctl on our own descriptor.
pub(super) fn ioctl(fd: c_int, request: c_ulong) -> Option<Result<usize>> {
    const SIOCGSTAMP: c_ulong = 0x8906;
    const SIOCGSTAMPNS: c_ulong = 0x8907;
    engine::lookup_verified(fd)?;
    match request {
        _ if is_general_ioctl(request) => None,
        SIOCGSTAMP | SIOCGSTAMPNS => Some(Err(Errno::new(libc::ENOTTY))),
        _ => Some(Err(Errno::EOPNOTSUPP)),
    }
}

fn unsupported(fd: c_int) -> Option<Result<usize>> {
    engine::lookup_verified(fd).map(|_| Err(Errno::EOPNOTSUPP))
}

on_our_descriptor! {
    fn getsockopt(fd: c_int, level: c_int, option: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        let socket = engine::lookup_verified(fd)?;
        if level != uapi::SOL_XDP && level != libc::SOL_SOCKET {
            return Some(Err(Errno::ENOPROTOOPT));
        }
        match Out::new(value, len) {
            Err(error) => Some(Err(error)),
            Ok(out) if level == uapi::SOL_XDP => Some(get_xdp(&socket, option, &out)),
            Ok(out) => get_socket(&socket, option, &out),
        }
    }

    fn setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, len: socklen_t) -> c_int {
        let socket = engine::lookup_verified(fd)?;
        match (level, usize::try_from(len.cast_signed())) {
            (_, Err(_)) => Some(Err(Errno::EINVAL)),
            (uapi::SOL_XDP, Ok(len)) => Some(set_xdp(&socket, option, value, len)),
            (libc::SOL_SOCKET, Ok(len)) => set_socket(&socket, option, value, len),
            _ => Some(Err(Errno::ENOPROTOOPT)),
        }
    }

    // AF_XDP has no names, no connections and nothing to shut down. The socket pair behind the descriptor has.
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let _ = (addr, len);
        unsupported(fd)
    }

    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let _ = (addr, len);
        unsupported(fd)
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        let _ = how;
        unsupported(fd)
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        let _ = backlog;
        unsupported(fd)
    }

    @cancellation_point fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        let _ = (addr, len);
        unsupported(fd)
    }

    @cancellation_point fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let _ = (addr, len);
        unsupported(fd)
    }

    @cancellation_point fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        let _ = (addr, len, flags);
        unsupported(fd)
    }

    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        let socket = engine::lookup_verified(fd)?;
        let addr = match address(addr, len) {
            Ok(addr) => addr,
            Err(error) => return Some(Err(error)),
        };
        if stays(&addr) {
            return Some(socket.bind(&addr).map(|()| 0));
        }
        // The socket turns out to be for an interface that is not on the engine: put a kernel socket, set up alike, under the
        // number. From then on it is the kernel's, and so is this call.
        let nonblocking = sock::is_nonblocking(fd);
        match switch::switch(&*socket, Side::Direct.provider()) {
            Ok(kernel) => {
                // The number is the program's alone.
                core::mem::forget(kernel);
                if nonblocking {
                    // SAFETY: no pointers.
                    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_NONBLOCK) };
                }
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// The address of `bind`, checked as the kernel does.
fn address(addr: *const sockaddr, len: socklen_t) -> Result<SockaddrXdp> {
    const LONGEST: usize = 128;
    let len = usize::try_from(len.cast_signed()).map_err(|_| Errno::EINVAL)?;
    if len > LONGEST {
        return Err(Errno::EINVAL);
    }
    let addr: SockaddrXdp = taken(addr.cast(), len)?;
    if c_int::from(addr.family) != uapi::AF_XDP { Err(Errno::EINVAL) } else { Ok(addr) }
}

/// Whether a socket that a program binds to this address stays on the engine.
fn stays(addr: &SockaddrXdp) -> bool {
    if addr.flags & uapi::XDP_SHARED_UMEM != 0 {
        // The UMEM is where the socket must be. What is no AF_XDP socket is the engine's to refuse.
        let fd = addr.shared_umem_fd.cast_signed();
        return engine::lookup_verified(fd).is_some() || !select::is_xdp_socket(fd);
    }
    // A number that no interface has is the engine's to refuse: the socket need not move for that.
    engine::interface_numbered(addr.ifindex).is_some() || sys::interface_name(addr.ifindex).is_err()
}

/// What `socket(AF_XDP, kind, protocol)` is told before it makes one.
fn check_kind(kind: c_int, protocol: c_int) -> Result<()> {
    const KINDS: c_int = 11;
    const MASK: c_int = 0xf;
    if kind & !MASK & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 || kind & MASK >= KINDS {
        return Err(Errno::EINVAL);
    }
    if kind & MASK != libc::SOCK_RAW {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    if protocol != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    #[cold]
    #[inline(never)]
    extern "C" fn ours(kind: c_int, protocol: c_int) -> Answer {
        super::guarded(|| {
            super::rival::tell();
            if !config::engine_first() {
                return None;
            }
            let cloexec = kind & libc::SOCK_CLOEXEC != 0;
            let nonblock = kind & libc::SOCK_NONBLOCK != 0;
            Some(check_kind(kind, protocol).and_then(|()| {
                engine::raw_socket(cloexec, nonblock).and_then(|fd| usize::try_from(fd).map_err(|_| Errno::EIO))
            }))
        })
    }
    if domain == uapi::AF_XDP {
        let answer = ours(kind, protocol);
        if answer.ours != 0 {
            return answer.int();
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::socket(domain, kind, protocol) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c57_lengths_of_answers_are_the_kernels() {
        let table = [
            (uapi::XDP_MMAP_OFFSETS, [(0, 0), (95, 0), (96, 96), (127, 96), (128, 128), (512, 128)]),
            (uapi::XDP_STATISTICS, [(16, 0), (23, 0), (24, 24), (47, 24), (48, 48), (200, 48)]),
            (uapi::XDP_OPTIONS, [(0, 0), (3, 0), (4, 4), (5, 4), (8, 4), (64, 4)]),
        ];
        for (option, lengths) in table {
            for (room, len) in lengths {
                let want = if len == 0 { Err(Errno::EINVAL) } else { Ok(len) };
                assert_eq!(xdp_answer_len(option, room), want, "option {option}, {room} bytes");
            }
        }
        assert_eq!(xdp_answer_len(uapi::XDP_RX_RING, 4), Err(Errno::EOPNOTSUPP));
        assert_eq!(xdp_answer_len(0, 4), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn old_offsets_have_no_flags() {
        let of = |n| uapi::RingOffset { producer: n, consumer: n + 1, desc: n + 2, flags: 99 };
        let offsets = MmapOffsets { rx: of(0), tx: of(10), fr: of(20), cr: of(30) };
        assert_eq!(old_offsets(&offsets), [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]);
    }

    #[test]
    fn umem_registrations_of_every_age_are_read() {
        let reg = UmemReg { addr: 0x1000, len: 0x2000, chunk_size: 2048, headroom: 7, flags: 1, tx_metadata_len: 8 };
        let old = UmemReg { flags: 0, tx_metadata_len: 0, ..reg };
        let mut longer = [0xff_u8; 64];
        // SAFETY: 32 bytes into an array of 64.
        unsafe { longer.as_mut_ptr().cast::<UmemReg>().write_unaligned(reg) };
        let at = longer.as_ptr().cast();
        assert_eq!(umem_reg(at, 23), Err(Errno::EINVAL));
        assert_eq!(umem_reg(at, 24), Ok(old));
        assert_eq!(umem_reg(at, 28), Ok(old), "the flags count only in the whole struct");
        assert_eq!(umem_reg(at, 32), Ok(reg));
        assert_eq!(umem_reg(at, 64), Ok(reg));
        assert_eq!(umem_reg(ptr::null(), 32), Err(Errno::EFAULT));
    }

    #[test]
    fn kinds_of_socket_are_refused_as_by_the_kernel() {
        assert_eq!(check_kind(libc::SOCK_RAW, 0), Ok(()));
        assert_eq!(check_kind(libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0), Ok(()));
        assert_eq!(check_kind(libc::SOCK_DGRAM, 0), Err(Errno::ESOCKTNOSUPPORT));
        assert_eq!(check_kind(0, 0), Err(Errno::ESOCKTNOSUPPORT));
        assert_eq!(check_kind(libc::SOCK_DGRAM, 1), Err(Errno::ESOCKTNOSUPPORT));
        assert_eq!(check_kind(libc::SOCK_RAW, 1), Err(Errno::EPROTONOSUPPORT));
        assert_eq!(check_kind(libc::SOCK_RAW | 0x40, 0), Err(Errno::EINVAL));
        assert_eq!(check_kind(11, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn addresses_are_checked_before_anything_is_bound() {
        let good = SockaddrXdp { family: 44, flags: 0, ifindex: 3, queue_id: 1, shared_umem_fd: 0 };
        let room = [good; 16];
        let at = room.as_ptr().cast();
        assert_eq!(address(at, 16), Ok(good));
        assert_eq!(address(at, 128), Ok(good));
        assert_eq!(address(at, 15), Err(Errno::EINVAL));
        assert_eq!(address(at, 129), Err(Errno::EINVAL));
        assert_eq!(address(at, u32::MAX), Err(Errno::EINVAL));
        assert_eq!(address(ptr::null(), 16), Err(Errno::EFAULT));
        let other = SockaddrXdp { family: 2, ..good };
        assert_eq!(address(ptr::from_ref(&other).cast(), 16), Err(Errno::EINVAL));
    }
}
