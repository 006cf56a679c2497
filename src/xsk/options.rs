//! Parameters: defaults, and how option structs of other sizes than ours are judged.
//!
//! An option struct begins with its own size as the caller knows it. A field counts if it lies wholly inside that size;
//! bytes beyond the last field that we know must be zero.

use core::mem::{offset_of, size_of};

use crate::{
    abi::types::{xsk_ring_cons, xsk_ring_prod, xsk_socket_config, xsk_socket_opts, xsk_umem_config, xsk_umem_opts},
    errno::{Errno, Result},
    warn,
};

const DEFAULT_ENTRIES: u32 = 2048;
const DEFAULT_FRAME: u32 = 4096;

/// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`: leave the default program alone.
pub const INHIBIT_PROG_LOAD: u32 = 1;

/// Zero stands for the default.
fn or(value: u32, default: u32) -> u32 {
    if value == 0 { default } else { value }
}

/// What a UMEM is made with, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemOptions {
    /// Descriptor to take over; `None`: make one.
    pub fd: Option<i32>,
    /// Bytes of the area.
    pub size: u64,
    /// Entries of the fill ring.
    pub fill_size: u32,
    /// Entries of the completion ring.
    pub comp_size: u32,
    /// Bytes of a chunk.
    pub frame_size: u32,
    /// Extra bytes before received data.
    pub frame_headroom: u32,
    /// `XDP_UMEM_*`.
    pub flags: u32,
    /// Bytes of TX metadata.
    pub tx_metadata_len: u32,
}

impl UmemOptions {
    /// Of `xsk_umem__create` and `xsk_umem__create_with_fd`.
    pub fn from_config(fd: Option<i32>, size: u64, config: Option<&xsk_umem_config>) -> UmemOptions {
        let config = config.copied().unwrap_or_default();
        UmemOptions {
            fd,
            size,
            fill_size: or(config.fill_size, DEFAULT_ENTRIES),
            comp_size: or(config.comp_size, DEFAULT_ENTRIES),
            frame_size: or(config.frame_size, DEFAULT_FRAME),
            frame_headroom: config.frame_headroom,
            flags: config.flags,
            tx_metadata_len: 0,
        }
    }

    /// Of `xsk_umem__create_opts`. EINVAL: an impossible size, or set bytes beyond the fields that we know.
    ///
    /// # Safety
    /// `opts` is NULL or points to as many readable bytes as its first member says.
    pub unsafe fn from_opts(opts: *const xsk_umem_opts) -> Result<UmemOptions> {
        const END: usize = offset_of!(xsk_umem_opts, tx_metadata_len) + 4;
        // SAFETY: passed on.
        let raw = unsafe { Raw::new(opts.cast(), END, "xsk_umem_opts") }?;
        let word = |offset| raw.get::<u32>(offset).unwrap_or(0);
        Ok(UmemOptions {
            fd: raw.get::<i32>(offset_of!(xsk_umem_opts, fd)).filter(|fd| *fd > 0),
            size: raw.get::<u64>(offset_of!(xsk_umem_opts, size)).unwrap_or(0),
            fill_size: or(word(offset_of!(xsk_umem_opts, fill_size)), DEFAULT_ENTRIES),
            comp_size: or(word(offset_of!(xsk_umem_opts, comp_size)), DEFAULT_ENTRIES),
            frame_size: or(word(offset_of!(xsk_umem_opts, frame_size)), DEFAULT_FRAME),
            frame_headroom: word(offset_of!(xsk_umem_opts, frame_headroom)),
            flags: word(offset_of!(xsk_umem_opts, flags)),
            tx_metadata_len: word(offset_of!(xsk_umem_opts, tx_metadata_len)),
        })
    }
}

/// What a socket is made with, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// The caller's struct for the RX ring, or NULL.
    pub rx: *mut xsk_ring_cons,
    /// The caller's struct for the TX ring, or NULL.
    pub tx: *mut xsk_ring_prod,
    /// The caller's struct for the fill ring, or NULL.
    pub fill: *mut xsk_ring_prod,
    /// The caller's struct for the completion ring, or NULL.
    pub comp: *mut xsk_ring_cons,
    /// Entries of the RX ring.
    pub rx_size: u32,
    /// Entries of the TX ring.
    pub tx_size: u32,
    /// [`INHIBIT_PROG_LOAD`].
    pub libxdp_flags: u32,
    /// `XDP_FLAGS_*`.
    pub xdp_flags: u32,
    /// `XDP_COPY`, ...
    pub bind_flags: u16,
}

impl SocketOptions {
    /// Of `xsk_socket__create` and `xsk_socket__create_shared`, without any ring.
    ///
    /// # Safety
    /// `config` is NULL or points to the struct's members; its padding need not be initialised.
    pub unsafe fn from_config(config: *const xsk_socket_config) -> SocketOptions {
        let mut options = SocketOptions::default();
        if config.is_null() {
            return options;
        }
        // Each member on its own: callers leave the padding uninitialised.
        // SAFETY: the member is readable, by the condition above.
        options.rx_size = or(unsafe { (*config).rx_size }, DEFAULT_ENTRIES);
        // SAFETY: as above.
        options.tx_size = or(unsafe { (*config).tx_size }, DEFAULT_ENTRIES);
        // SAFETY: as above.
        options.libxdp_flags = unsafe { (*config).libxdp_flags };
        // SAFETY: as above.
        options.xdp_flags = unsafe { (*config).xdp_flags };
        // SAFETY: as above.
        options.bind_flags = unsafe { (*config).bind_flags };
        options
    }

    /// Of `xsk_socket__create_opts`. EINVAL: an impossible size, or set bytes beyond the fields that we know.
    ///
    /// # Safety
    /// `opts` is NULL or points to as many readable bytes as its first member says.
    pub unsafe fn from_opts(opts: *const xsk_socket_opts) -> Result<SocketOptions> {
        // Not the struct's size: the bytes after the last member are padding, which must be zero where it counts.
        const END: usize = offset_of!(xsk_socket_opts, bind_flags) + 2;
        // SAFETY: passed on.
        let raw = unsafe { Raw::new(opts.cast(), END, "xsk_socket_opts") }?;
        let word = |offset| raw.get::<u32>(offset).unwrap_or(0);
        let none = SocketOptions::default();
        Ok(SocketOptions {
            rx: raw.get(offset_of!(xsk_socket_opts, rx)).unwrap_or(none.rx),
            tx: raw.get(offset_of!(xsk_socket_opts, tx)).unwrap_or(none.tx),
            fill: raw.get(offset_of!(xsk_socket_opts, fill)).unwrap_or(none.fill),
            comp: raw.get(offset_of!(xsk_socket_opts, comp)).unwrap_or(none.comp),
            rx_size: or(word(offset_of!(xsk_socket_opts, rx_size)), DEFAULT_ENTRIES),
            tx_size: or(word(offset_of!(xsk_socket_opts, tx_size)), DEFAULT_ENTRIES),
            libxdp_flags: word(offset_of!(xsk_socket_opts, libxdp_flags)),
            xdp_flags: word(offset_of!(xsk_socket_opts, xdp_flags)),
            bind_flags: raw.get(offset_of!(xsk_socket_opts, bind_flags)).unwrap_or(0),
        })
    }
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions {
            rx: core::ptr::null_mut(),
            tx: core::ptr::null_mut(),
            fill: core::ptr::null_mut(),
            comp: core::ptr::null_mut(),
            rx_size: DEFAULT_ENTRIES,
            tx_size: DEFAULT_ENTRIES,
            libxdp_flags: 0,
            xdp_flags: 0,
            bind_flags: 0,
        }
    }
}

/// An option struct as bytes; NULL is one of size 0 in which nothing is set.
struct Raw {
    base: *const u8,
    /// Readable bytes that hold known fields.
    len: usize,
}

impl Raw {
    /// `end`: just after the last field that we know.
    ///
    /// # Safety
    /// `base` is NULL or points to as many readable bytes as the size at its start says.
    unsafe fn new(base: *const u8, end: usize, name: &str) -> Result<Raw> {
        if base.is_null() {
            return Ok(Raw { base, len: 0 });
        }
        // SAFETY: the size member is always there.
        let sz = unsafe { base.cast::<usize>().read_unaligned() };
        if sz < size_of::<usize>() {
            warn!("{name}: sz is {sz}; set it to sizeof(struct {name}), which is at least {end}");
            return Err(Errno::EINVAL);
        }
        for offset in end..sz {
            // SAFETY: inside `sz`.
            let at = unsafe { base.add(offset) };
            // SAFETY: readable, by the condition above.
            if unsafe { at.read() } != 0 {
                warn!("{name}: byte {offset} of {sz} is set; there is no such option here (known: {end} bytes)");
                return Err(Errno::EINVAL);
            }
        }
        Ok(Raw { base, len: sz.min(end) })
    }

    /// The field at `offset`, if it lies wholly inside. `T` is one of the structs' member types: any bytes are a value.
    fn get<T: Copy>(&self, offset: usize) -> Option<T> {
        if offset + size_of::<T>() > self.len {
            return None;
        }
        // SAFETY: inside `len`.
        let at = unsafe { self.base.add(offset) };
        // SAFETY: `len` bytes are readable, as `new` was promised; integers and pointers have no invalid values.
        Some(unsafe { at.cast::<T>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    /// A struct of more bytes than any version has, with its size member set.
    #[repr(C, align(8))]
    struct Bytes([u8; 128]);

    impl Bytes {
        fn sized(sz: usize) -> Bytes {
            let mut bytes = Bytes([0; 128]);
            bytes.0[..8].copy_from_slice(&sz.to_ne_bytes());
            bytes
        }

        fn word(mut self, offset: usize, value: u32) -> Bytes {
            self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
            self
        }

        fn umem(&self) -> Result<UmemOptions> {
            // SAFETY: 128 bytes are there and no test says more.
            unsafe { UmemOptions::from_opts(ptr::from_ref(self).cast()) }
        }

        fn socket(&self) -> Result<SocketOptions> {
            // SAFETY: as above.
            unsafe { SocketOptions::from_opts(ptr::from_ref(self).cast()) }
        }
    }

    #[test]
    fn a_size_that_cannot_hold_itself_is_refused() {
        for sz in 0..8 {
            assert_eq!(Bytes::sized(sz).umem(), Err(Errno::EINVAL));
            assert_eq!(Bytes::sized(sz).socket(), Err(Errno::EINVAL));
        }
        assert!(Bytes::sized(8).umem().is_ok());
    }

    #[test]
    fn unknown_bytes_must_be_zero() {
        assert_eq!(Bytes::sized(48).word(48, 1).umem().map(drop), Ok(()));
        assert_eq!(Bytes::sized(49).word(48, 1).umem(), Err(Errno::EINVAL));
        assert_eq!(Bytes::sized(128).umem().map(drop), Ok(()));
        // The padding after the last member counts with the usual size, and does not with one that ends before it.
        assert_eq!(Bytes::sized(64).word(58, 1).socket(), Err(Errno::EINVAL));
        assert_eq!(Bytes::sized(58).word(58, 1).socket().map(drop), Ok(()));
        // The padding after `fd` never counts.
        assert_eq!(Bytes::sized(48).word(12, 1).umem().map(drop), Ok(()));
    }

    #[test]
    fn a_field_counts_only_if_it_lies_wholly_inside() {
        let full = |sz| Bytes::sized(sz).word(16, 4096).word(24, 64).word(28, 32).umem().unwrap();
        assert_eq!(full(20).size, 0);
        assert_eq!((full(24).size, full(24).fill_size, full(24).comp_size), (4096, 2048, 2048));
        assert_eq!((full(27).fill_size, full(28).fill_size), (2048, 64));
        assert_eq!((full(31).comp_size, full(32).comp_size), (2048, 32));

        let full = |sz| Bytes::sized(sz).word(8, 1).word(24, 1).word(40, 16).word(48, 1).word(56, 8).socket().unwrap();
        assert!(full(16).fill.is_null() && !full(16).rx.is_null());
        assert!(!full(32).fill.is_null() && full(32).comp.is_null());
        assert_eq!((full(43).rx_size, full(44).rx_size), (2048, 16));
        assert_eq!((full(48).libxdp_flags, full(52).libxdp_flags), (0, 1));
        assert_eq!((full(57).bind_flags, full(58).bind_flags), (0, 8));
    }

    #[test]
    fn c55_zero_stands_for_the_default() {
        // SAFETY: NULL is allowed.
        let null = unsafe { UmemOptions::from_opts(ptr::null()) }.unwrap();
        assert_eq!(null, UmemOptions::from_config(None, 0, None));
        assert_eq!((null.fill_size, null.comp_size, null.frame_size), (2048, 2048, 4096));
        let zeroed = UmemOptions::from_config(None, 0, Some(&xsk_umem_config::default()));
        assert_eq!(zeroed, null);
        // SAFETY: a live struct.
        let socket = unsafe { SocketOptions::from_config(&xsk_socket_config::default()) };
        assert_eq!(socket, SocketOptions::default());
        assert_eq!((socket.rx_size, socket.tx_size), (2048, 2048));
    }

    #[test]
    fn only_positive_descriptors_are_taken_over() {
        assert_eq!(Bytes::sized(48).word(8, 0).umem().unwrap().fd, None);
        assert_eq!(Bytes::sized(48).word(8, u32::MAX).umem().unwrap().fd, None);
        assert_eq!(Bytes::sized(48).word(8, 7).umem().unwrap().fd, Some(7));
    }
}
