//! What programs ask about an interface: names, numbers, and the ioctls for flags, MTU, address and ethtool's basics.
//!
//! Answers are given for interfaces on the engine, whether or not the kernel has one of that name. What an engine interface
//! looks like is the device's (`Facts`). Setting flags or an MTU is accepted and changes nothing, least of all on the real
//! interface that a mapping may hide.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void},
    mem::{offset_of, size_of},
    ptr,
};

use libc::ifreq;

use super::{Answer, guard, guarded, next, options};
use crate::{
    engine::{self, Interface},
    errno::{Errno, Result, check},
    sync::Arc,
    sys,
};

const SIOCGIFNAME: c_ulong = 0x8910;
const SIOCGIFFLAGS: c_ulong = 0x8913;
const SIOCSIFFLAGS: c_ulong = 0x8914;
const SIOCGIFMTU: c_ulong = 0x8921;
const SIOCSIFMTU: c_ulong = 0x8922;
const SIOCGIFHWADDR: c_ulong = 0x8927;
const SIOCGIFINDEX: c_ulong = 0x8933;
const SIOCETHTOOL: c_ulong = 0x8946;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DrvInfo {
    cmd: u32,
    driver: [u8; 32],
    version: [u8; 32],
    fw_version: [u8; 32],
    bus_info: [u8; 32],
    erom_version: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// `struct ethtool_channels`.
#[repr(C)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// The beginning of `struct ethtool_rxnfc`.
#[repr(C)]
struct RxNfc {
    cmd: u32,
    flow_type: u32,
    data: u64,
}

const _: () = assert!(size_of::<DrvInfo>() == 196 && size_of::<Channels>() == 36 && offset_of!(RxNfc, data) == 8);

fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

/// SIOCETHTOOL. Other commands: EOPNOTSUPP, as a driver without them has it.
fn ethtool(interface: &Interface, command: *mut c_void) -> Result<usize> {
    if command.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: every ethtool command begins with its number.
    let number = unsafe { command.cast::<u32>().read_unaligned() };
    let queues = interface.facts().queues;
    match number {
        ETHTOOL_GDRVINFO => {
            let info = DrvInfo {
                cmd: number,
                driver: text("slipring"),
                version: text(env!("CARGO_PKG_VERSION")),
                fw_version: [0; 32],
                bus_info: [0; 32],
                erom_version: [0; 32],
                reserved: [0; 12],
                counts: [0; 5],
            };
            // SAFETY: the command's struct is the program's.
            unsafe { command.cast::<DrvInfo>().write_unaligned(info) };
        }
        ETHTOOL_GLINK => {
            // SAFETY: the command's struct is the program's.
            unsafe { command.cast::<Value>().write_unaligned(Value { cmd: number, data: 1 }) };
        }
        ETHTOOL_GRXRINGS => {
            let data = command.cast::<u8>().wrapping_add(offset_of!(RxNfc, data));
            // SAFETY: a member of the command's struct, which is the program's.
            unsafe { data.cast::<u64>().write_unaligned(queues.into()) };
        }
        ETHTOOL_GCHANNELS => {
            let channels = Channels {
                cmd: number,
                max_rx: 0,
                max_tx: 0,
                max_other: 0,
                max_combined: queues,
                rx: 0,
                tx: 0,
                other: 0,
                combined: queues,
            };
            // SAFETY: the command's struct is the program's.
            unsafe { command.cast::<Channels>().write_unaligned(channels) };
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(0)
}

/// Answer for an interface on the engine.
fn answer(interface: &Interface, request: c_ulong, argument: &mut ifreq) -> Result<usize> {
    let facts = interface.facts();
    match request {
        SIOCGIFINDEX => {
            argument.ifr_ifru.ifru_ifindex = c_int::try_from(interface.ifindex).map_err(|_| Errno::ENODEV)?;
        }
        SIOCGIFFLAGS => {
            let flags = libc::IFF_UP | libc::IFF_BROADCAST | libc::IFF_RUNNING | libc::IFF_MULTICAST;
            argument.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(|_| Errno::EIO)?;
        }
        SIOCGIFMTU => argument.ifr_ifru.ifru_mtu = c_int::try_from(facts.mtu).unwrap_or(c_int::MAX),
        SIOCGIFHWADDR => {
            let mut addr = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
            for (to, from) in addr.sa_data.iter_mut().zip(facts.mac) {
                *to = from.cast_signed();
            }
            argument.ifr_ifru.ifru_hwaddr = addr;
        }
        SIOCETHTOOL => {
            // SAFETY: the member that this request has; any bits are a pointer.
            let command = unsafe { argument.ifr_ifru.ifru_data };
            return ethtool(interface, command.cast());
        }
        // SIOCSIFFLAGS, SIOCSIFMTU.
        _ => {}
    }
    Ok(0)
}

/// The interface that an ioctl names, if it is on the engine.
fn named(name: &[c_char; libc::IFNAMSIZ]) -> Result<Option<Arc<Interface>>> {
    let bytes = name.map(c_char::cast_unsigned);
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(name) => engine::interface_named(name),
        Err(_) => Ok(None),
    }
}

fn interface_ioctl(request: c_ulong, argument: *mut c_void) -> Option<Result<usize>> {
    // SAFETY: null, or the program's own `struct ifreq`, which all these requests take.
    let argument = unsafe { argument.cast::<ifreq>().as_mut() }?;
    if request == SIOCGIFNAME {
        // SAFETY: the member that this request has; any bits are an int.
        let index = unsafe { argument.ifr_ifru.ifru_ifindex };
        let interface = engine::interface_numbered(u32::try_from(index).ok()?)?;
        return Some(put_name(&interface.name, &mut argument.ifr_name).map(|()| 0));
    }
    match named(&argument.ifr_name) {
        Ok(interface) => interface.map(|i| answer(&i, request, argument)),
        Err(error) => Some(Err(error)),
    }
}

/// A name as C has it. ENODEV: longer than the room that the program has.
fn put_name(name: &str, room: &mut [c_char; libc::IFNAMSIZ]) -> Result<()> {
    if name.len() >= room.len() {
        return Err(Errno::ENODEV);
    }
    room.fill(0);
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(())
}

/// Whether a request is one of those answered here.
#[inline]
extern "C" fn asks_about_interface(request: c_ulong) -> bool {
    // One compare for all other requests.
    request.wrapping_sub(SIOCGIFNAME) <= SIOCETHTOOL - SIOCGIFNAME
        && matches!(
            request,
            SIOCGIFNAME
                | SIOCGIFFLAGS
                | SIOCSIFFLAGS
                | SIOCGIFMTU
                | SIOCSIFMTU
                | SIOCGIFHWADDR
                | SIOCGIFINDEX
                | SIOCETHTOOL
        )
}

// `ioctl` is variadic in C; see `fcntl`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    #[cold]
    #[inline(never)]
    extern "C" fn ours(fd: c_int, request: c_ulong, argument: *mut c_void) -> Answer {
        guarded(|| {
            if engine::maybe_ours(fd)
                && let Some(result) = options::ioctl(fd, request)
            {
                return Some(result);
            }
            if asks_about_interface(request) { interface_ioctl(request, argument) } else { None }
        })
    }
    if super::suspect(fd) || asks_about_interface(request) {
        let answer = ours(fd, request, argument);
        if answer.ours != 0 {
            return answer.int();
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::ioctl(fd, request, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    #[cold]
    #[inline(never)]
    extern "C" fn ours(name: *const c_char) -> c_uint {
        guard(0, || {
            if name.is_null() {
                return 0;
            }
            // SAFETY: the program's own string.
            match engine::interface_named(unsafe { CStr::from_ptr(name) }) {
                Ok(found) => found.map_or(0, |i| i.ifindex),
                // A bad specification has been complained about; the kernel has no interface of that name.
                Err(_) => 0,
            }
        })
    }
    match ours(name) {
        // SAFETY: the program's own string.
        0 => unsafe { next::if_nametoindex(name) },
        index => index,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char {
    /// Whether it was answered.
    #[cold]
    #[inline(never)]
    extern "C" fn ours(index: c_uint, name: *mut c_char) -> bool {
        guard(false, || {
            let (Some(interface), false) = (engine::interface_numbered(index), name.is_null()) else { return false };
            let mut room = [0; libc::IFNAMSIZ];
            if put_name(&interface.name, &mut room).is_err() {
                return false;
            }
            // SAFETY: the program gives room for IF_NAMESIZE bytes.
            unsafe { ptr::copy_nonoverlapping(room.as_ptr(), name, room.len()) };
            true
        })
    }
    if ours(index, name) {
        return name;
    }
    // SAFETY: the program's own arguments.
    unsafe { next::if_indextoname(index, name) }
}

/// One interface ioctl to the kernel, on a socket of its own.
fn ask_kernel(request: c_ulong, argument: &mut ifreq) -> Result<()> {
    let fd = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    // SAFETY: the request takes a `struct ifreq`.
    let result = check(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, ptr::from_mut(argument)) });
    sys::close(fd);
    result.map(drop)
}

fn blank() -> ifreq {
    // SAFETY: integers, and a union of integers and pointers: zero is valid.
    unsafe { core::mem::zeroed() }
}

/// `if_nametoindex` of programs that have no next definition.
pub(super) fn kernel_index(name: &CStr) -> c_uint {
    let mut argument = blank();
    let result = match name.to_str() {
        Ok(name) => put_name(name, &mut argument.ifr_name),
        Err(_) => Err(Errno::ENODEV),
    };
    match result.and_then(|()| ask_kernel(SIOCGIFINDEX, &mut argument)) {
        // SAFETY: the member that the request has filled.
        Ok(()) => c_uint::try_from(unsafe { argument.ifr_ifru.ifru_ifindex }).unwrap_or(0),
        Err(error) => {
            error.set();
            0
        }
    }
}

/// `if_indextoname` of programs that have no next definition.
///
/// # Safety
/// `name` has room for IF_NAMESIZE bytes.
pub(super) unsafe fn kernel_name(index: c_uint, name: *mut c_char) -> *mut c_char {
    let mut argument = blank();
    argument.ifr_ifru.ifru_ifindex = index.cast_signed();
    match ask_kernel(SIOCGIFNAME, &mut argument) {
        Ok(()) => {
            // SAFETY: the caller gives the room.
            unsafe { ptr::copy_nonoverlapping(argument.ifr_name.as_ptr(), name, libc::IFNAMSIZ) };
            name
        }
        Err(error) => {
            // What libc says.
            if error == Errno::ENODEV { Errno::ENXIO } else { error }.set();
            ptr::null_mut()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_or_are_refused() {
        let mut room = [1; libc::IFNAMSIZ];
        assert_eq!(put_name("wire0", &mut room), Ok(()));
        assert_eq!(&room[..6], &b"wire0\0".map(u8::cast_signed));
        assert_eq!(put_name("fifteen-letters", &mut room), Ok(()));
        assert_eq!(put_name("sixteen-letters!", &mut room), Err(Errno::ENODEV));
        assert_eq!(text::<4>("abcdef"), *b"abc\0");
    }

    #[test]
    fn without_libc_the_kernel_is_asked() {
        let index = kernel_index(c"lo");
        assert_ne!(index, 0);
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: an array of IF_NAMESIZE bytes.
        assert!(!unsafe { kernel_name(index, name.as_mut_ptr()) }.is_null());
        assert_eq!(&name[..3], &b"lo\0".map(u8::cast_signed));
        assert_eq!(kernel_index(c"no-such-if"), 0);
        assert_eq!(Errno::last(), Errno::ENODEV);
        // SAFETY: as above.
        assert!(unsafe { kernel_name(0x7fff_fff0, name.as_mut_ptr()) }.is_null());
        assert_eq!(Errno::last(), Errno::ENXIO);
    }

    #[test]
    fn other_requests_are_not_looked_at() {
        assert!(asks_about_interface(SIOCETHTOOL) && asks_about_interface(SIOCGIFNAME));
        for request in [0x5401, 0x890b, 0x8912, 0x8915, 0x8947, c_ulong::MAX] {
            assert!(!asks_about_interface(request), "{request:#x}");
        }
    }
}
