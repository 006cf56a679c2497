//! What to tell a person when a call fails: which parameter, which value, what is allowed.
//!
//! The kernel answers most mistakes with EINVAL and no word more. These functions look at the parameters again, after the
//! failure, and name the one that breaks a known rule. They run on failures only and change no result.

use crate::{
    errno::Errno,
    info,
    sys::PAGE,
    uapi::{
        Ring, UmemReg, XDP_COPY, XDP_SHARED_UMEM, XDP_UMEM_TX_METADATA_LEN, XDP_UMEM_TX_SW_CSUM,
        XDP_UMEM_UNALIGNED_CHUNK_FLAG, XDP_USE_NEED_WAKEUP, XDP_USE_SG, XDP_ZEROCOPY, select::Side,
    },
    warn,
};

/// Smallest chunk that the kernel takes.
const LEAST_FRAME: u32 = 2048;
/// What recent kernels keep of a chunk besides the head room that was asked for: 256 bytes before the data, the rest behind.
const KEPT_OF_FRAME: u32 = 704;

/// A socket could not be made.
pub(super) fn socket(side: Side, error: Errno) {
    match (side, error) {
        (Side::Direct, Errno::EPERM) => warn!(
            "cannot make an AF_XDP socket: {error}: it needs CAP_NET_RAW, or a socket handed over by \
             xsk_umem__create_with_fd"
        ),
        (Side::Direct, Errno::EAFNOSUPPORT) => warn!(
            "cannot make an AF_XDP socket: {error}: this kernel was built without CONFIG_XDP_SOCKETS, or a sandbox \
             (systemd RestrictAddressFamilies=, seccomp) forbids the family; SLIPRING_DEVICES can put the interface on \
             the engine, which needs neither"
        ),
        _ => warn!("cannot make an AF_XDP socket: {error}"),
    }
}

/// `XDP_UMEM_REG` failed. `given_fd`: the descriptor came from the program.
pub(super) fn umem(reg: &UmemReg, given_fd: Option<i32>, error: Errno) {
    match (error, given_fd) {
        (Errno::EINVAL, _) => match umem_rule(reg) {
            Some(rule) => warn!("xsk_umem__create: {rule}"),
            None => warn!("xsk_umem__create: {error}: the kernel refuses {}", described(reg)),
        },
        (Errno::ENOBUFS, _) => warn!("xsk_umem__create: {error}: {}", memlock(reg.len)),
        (Errno::EFAULT, _) => {
            warn!("xsk_umem__create: {error}: {} bytes from {:#x} are not all mapped memory", reg.len, reg.addr);
        }
        (Errno::EBADF | Errno::ENOTSOCK | Errno::ENOPROTOOPT, Some(fd)) => {
            warn!("xsk_umem__create_with_fd: {error}: descriptor {fd} is not an AF_XDP socket");
        }
        (Errno::EBUSY, Some(fd)) => {
            warn!("xsk_umem__create_with_fd: {error}: descriptor {fd} has a UMEM already");
        }
        _ => warn!("xsk_umem__create: {error} for {}", described(reg)),
    }
}

/// A UMEM in the words of the call that asked for it.
fn described(reg: &UmemReg) -> String {
    let UmemReg { addr, len, chunk_size, headroom, flags, tx_metadata_len } = *reg;
    format!(
        "umem_area {addr:#x}, size {len}, frame_size {chunk_size}, frame_headroom {headroom}, flags {flags:#x}, \
         tx_metadata_len {tx_metadata_len}"
    )
}

/// The rule that a UMEM breaks, if it is a known one.
fn umem_rule(reg: &UmemReg) -> Option<String> {
    let page = PAGE as u64;
    let largest = PAGE;
    let frame = reg.chunk_size;
    let unaligned = reg.flags & XDP_UMEM_UNALIGNED_CHUNK_FLAG != 0;
    let known = XDP_UMEM_UNALIGNED_CHUNK_FLAG | XDP_UMEM_TX_SW_CSUM | XDP_UMEM_TX_METADATA_LEN;
    if reg.len == 0 {
        return Some("size is 0; give the bytes of umem_area".to_string());
    }
    if !reg.addr.is_multiple_of(page) {
        return Some(format!("umem_area {:#x} is not aligned to a page of {page} bytes", reg.addr));
    }
    if frame < LEAST_FRAME || frame as usize > largest {
        return Some(format!("frame_size {frame} is out of range; {LEAST_FRAME} is the least and {largest} the most"));
    }
    if !unaligned && !frame.is_power_of_two() {
        return Some(format!(
            "frame_size {frame} is not a power of two; {LEAST_FRAME} and {largest} are possible, or any size between \
             with XDP_UMEM_UNALIGNED_CHUNK_FLAG"
        ));
    }
    if !unaligned && !reg.len.is_multiple_of(u64::from(frame)) {
        return Some(format!("size {} is not a multiple of frame_size {frame}", reg.len));
    }
    if reg.len < u64::from(frame) {
        return Some(format!("size {} is less than one frame_size {frame}", reg.len));
    }
    if reg.headroom > frame - KEPT_OF_FRAME {
        return Some(format!(
            "frame_headroom {} is too large for frame_size {frame}; {} is the most",
            reg.headroom,
            frame - KEPT_OF_FRAME
        ));
    }
    if reg.flags & !known != 0 {
        return Some(format!("flags {:#x} has unknown bits; known are {known:#x}", reg.flags));
    }
    let metadata = reg.tx_metadata_len;
    if reg.flags & XDP_UMEM_TX_METADATA_LEN != 0 && (metadata >= 256 || !metadata.is_multiple_of(8)) {
        return Some(format!("tx_metadata_len {metadata} must be a multiple of 8 and less than 256"));
    }
    None
}

/// TX metadata without the flag that makes the kernel look at it.
pub(super) fn metadata_ignored(reg: &UmemReg) {
    if reg.tx_metadata_len != 0 && reg.flags & XDP_UMEM_TX_METADATA_LEN == 0 {
        warn!(
            "xsk_umem__create_opts: tx_metadata_len {} has no effect without XDP_UMEM_TX_METADATA_LEN ({:#x}) in flags",
            reg.tx_metadata_len, XDP_UMEM_TX_METADATA_LEN
        );
    }
}

fn memlock(needed: u64) -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the C library writes one struct.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let allowed = if known { limit.rlim_cur.to_string() } else { "an unknown number of".to_string() };
    format!(
        "the UMEM locks {needed} bytes of memory and RLIMIT_MEMLOCK allows {allowed} bytes for this user's processes \
         together; raise it (ulimit -l, LimitMEMLOCK=) or give the process CAP_IPC_LOCK"
    )
}

/// A ring's size could not be set.
pub(super) fn ring_size(ring: Ring, entries: u32, error: Errno) {
    let parameter = match ring {
        Ring::Rx => "rx_size",
        Ring::Tx => "tx_size",
        Ring::Fill => "fill_size",
        Ring::Completion => "comp_size",
    };
    if error == Errno::EINVAL && !entries.is_power_of_two() {
        warn!("{parameter} {entries} is not a power of two");
    } else if error == Errno::EINVAL {
        warn!("{parameter} {entries}: {error}: the descriptor has a {} ring already", ring.name());
    } else {
        warn!("{parameter} {entries}: {error}: cannot make the {} ring", ring.name());
    }
}

/// What bind was asked for.
#[derive(Clone, Copy)]
pub(super) struct Bind<'a> {
    pub(super) side: Side,
    pub(super) ifname: &'a str,
    pub(super) queue: u32,
    /// As the program gave them.
    pub(super) flags: u16,
    /// It is a later socket of its UMEM, for which `flags` do not count.
    pub(super) shared: bool,
}

/// Bind failed.
pub(super) fn bind(bind: Bind<'_>, error: Errno) {
    let Bind { ifname, queue, flags, .. } = bind;
    match error {
        Errno::EINVAL => match (!bind.shared).then(|| flags_rule(flags)).flatten() {
            Some(rule) => warn!("xsk_socket__create on {ifname} queue {queue}: bind_flags {flags:#x}: {rule}"),
            None if bind.side == Side::Direct => warn!(
                "xsk_socket__create on {ifname} queue {queue}: {error}: the device has no such queue (ethtool -l \
                 {ifname} shows how many), or its MTU does not fit the UMEM's frames in zero-copy mode"
            ),
            None => warn!("xsk_socket__create on {ifname} queue {queue}: {error}: the device has no such queue"),
        },
        // No warning: programs try, and go on in copy mode. Open vSwitch does at each port.
        Errno::EOPNOTSUPP if flags & XDP_ZEROCOPY != 0 => info!(
            "xsk_socket__create on {ifname} queue {queue}: {error}: the device cannot do what bind_flags {flags:#x} ask \
             for; leave XDP_ZEROCOPY out to use copy mode"
        ),
        Errno::EOPNOTSUPP => warn!(
            "xsk_socket__create on {ifname} queue {queue}: {error}: the device cannot do what bind_flags {flags:#x} ask for"
        ),
        Errno::EBUSY => warn!(
            "xsk_socket__create on {ifname} queue {queue}: {error}: another socket, of this or another process, has the \
             queue"
        ),
        Errno::ENODEV => warn!(
            "xsk_socket__create on {ifname} queue {queue}: {error}: the interface is not in the network namespace in \
             which the socket was made (for a UMEM's first socket: in which the UMEM was made)"
        ),
        _ => warn!("xsk_socket__create on {ifname} queue {queue}: bind failed: {error}"),
    }
}

/// The rule that bind flags break, if any.
fn flags_rule(flags: u16) -> Option<String> {
    let known = XDP_SHARED_UMEM | XDP_COPY | XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP | XDP_USE_SG;
    if flags & !known != 0 {
        return Some(format!("unknown bits {:#x}; known are {known:#x}", flags & !known));
    }
    if flags & XDP_SHARED_UMEM != 0 {
        return Some("XDP_SHARED_UMEM is set by the library where it is due; leave it out".to_string());
    }
    if flags & XDP_COPY != 0 && flags & XDP_ZEROCOPY != 0 {
        return Some("XDP_COPY and XDP_ZEROCOPY exclude each other".to_string());
    }
    None
}

/// A socket was asked for without rings of its own where it needs them.
pub(super) fn needs_rings(ifname: &str, queue: u32) {
    warn!(
        "xsk_socket__create on {ifname} queue {queue}: the UMEM's fill and completion rings belong to another interface \
         or queue; a socket on this one needs its own fill and completion ring (xsk_socket__create_shared, both not NULL)"
    );
}

/// A socket was asked to receive on a UMEM whose fill ring nobody can fill.
pub(super) fn needs_fill(ifname: &str, queue: u32) {
    warn!(
        "xsk_socket__create on {ifname} queue {queue}: the UMEM was made without a fill ring, for sending only; leave rx out, \
         or give fill and comp (xsk_socket__create_shared)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> UmemReg {
        UmemReg { addr: 0x10000, len: 65536, chunk_size: 4096, headroom: 0, flags: 0, tx_metadata_len: 0 }
    }

    #[test]
    fn c23_each_broken_rule_names_its_parameter() {
        let cases: [(UmemReg, &str); 9] = [
            (UmemReg { chunk_size: 1024, ..good() }, "frame_size 1024"),
            (UmemReg { chunk_size: 3000, len: 30000, ..good() }, "frame_size 3000"),
            (UmemReg { chunk_size: 8192, ..good() }, "frame_size 8192"),
            (UmemReg { addr: 0x10040, ..good() }, "umem_area 0x10040"),
            (UmemReg { len: 65537, ..good() }, "size 65537"),
            (UmemReg { len: 0, ..good() }, "size is 0"),
            (UmemReg { headroom: 4096, ..good() }, "frame_headroom 4096"),
            (UmemReg { flags: 0x80, ..good() }, "flags 0x80"),
            (UmemReg { flags: XDP_UMEM_TX_METADATA_LEN, tx_metadata_len: 12, ..good() }, "tx_metadata_len 12"),
        ];
        for (reg, start) in cases {
            let rule = umem_rule(&reg).unwrap();
            assert!(rule.starts_with(start), "{rule}");
        }
        assert_eq!(umem_rule(&good()), None);
    }

    #[test]
    fn c24_unaligned_frames_have_a_least_size_too() {
        let unaligned =
            |chunk_size| umem_rule(&UmemReg { chunk_size, len: 60000, flags: XDP_UMEM_UNALIGNED_CHUNK_FLAG, ..good() });
        assert_eq!(unaligned(3000), None);
        assert!(unaligned(1800).unwrap().contains("2048 is the least"));
    }

    #[test]
    fn c46_contradictory_bind_flags_are_named() {
        assert!(flags_rule(XDP_COPY | XDP_ZEROCOPY).is_some());
        assert!(flags_rule(XDP_SHARED_UMEM).is_some());
        assert!(flags_rule(1 << 15).unwrap().contains("0x8000"));
        assert_eq!(flags_rule(XDP_COPY | XDP_USE_NEED_WAKEUP | XDP_USE_SG), None);
    }
}
