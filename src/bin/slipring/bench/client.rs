//! An AF_XDP program as a C program is one: the library from its file, the ring helpers as the header inlines them.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use slipring::{
    abi::types::{xsk_ring_cons, xsk_ring_prod, xsk_socket_config, xsk_umem_config},
    sync::{AtomicU32, Ordering},
    uapi::{self, Desc},
};

/// Bytes of a chunk.
pub(super) const CHUNK: u32 = 2048;
/// Entries of each ring.
pub(super) const RING: u32 = 1024;
/// Descriptors handed over at a time.
pub(super) const BATCH: u32 = 64;

type UmemCreate = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_void,
    u64,
    *mut xsk_ring_prod,
    *mut xsk_ring_cons,
    *const xsk_umem_config,
) -> c_int;
type SocketCreate = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    u32,
    *mut c_void,
    *mut xsk_ring_cons,
    *mut xsk_ring_prod,
    *const xsk_socket_config,
) -> c_int;
type UmemDelete = unsafe extern "C" fn(*mut c_void) -> c_int;
type SocketDelete = unsafe extern "C" fn(*mut c_void);
type SocketFd = unsafe extern "C" fn(*const c_void) -> c_int;
type RecvFrom = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut c_void, *mut u32) -> isize;
type Poll = unsafe extern "C" fn(*mut libc::pollfd, libc::nfds_t, c_int) -> c_int;
type SendTo = unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const c_void, u32) -> isize;

/// The functions of the library that the benches call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api {
    umem_create: UmemCreate,
    umem_delete: UmemDelete,
    socket_create: SocketCreate,
    socket_delete: SocketDelete,
    socket_fd: SocketFd,
    sendto: SendTo,
    recvfrom: RecvFrom,
    poll: Poll,
}

impl Api {
    /// Load the library; it stays loaded.
    pub(super) fn load(path: &Path) -> Result<Api, String> {
        let file = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: a NUL-terminated path; the library's constructors are ours.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(dl_error());
        }
        let symbol = |name: &CStr| {
            // SAFETY: a handle that dlopen returned and a NUL-terminated name.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() { Err(dl_error()) } else { Ok(address) }
        };
        let umem_create = symbol(c"xsk_umem__create")?;
        let umem_delete = symbol(c"xsk_umem__delete")?;
        let socket_create = symbol(c"xsk_socket__create")?;
        let socket_delete = symbol(c"xsk_socket__delete")?;
        let socket_fd = symbol(c"xsk_socket__fd")?;
        let sendto = symbol(c"sendto")?;
        let recvfrom = symbol(c"recvfrom")?;
        let poll = symbol(c"poll")?;
        // dlsym also looks at what the library depends on: libc's sendto would measure something else.
        if origin(sendto) != origin(umem_create) {
            return Err(format!("{} does not interpose sendto", path.display()));
        }
        Ok(Api {
            // SAFETY: the exported function of this name has this type (include/xdp/xsk.h).
            umem_create: unsafe { std::mem::transmute::<*mut c_void, UmemCreate>(umem_create) },
            // SAFETY: as above.
            umem_delete: unsafe { std::mem::transmute::<*mut c_void, UmemDelete>(umem_delete) },
            // SAFETY: as above.
            socket_create: unsafe { std::mem::transmute::<*mut c_void, SocketCreate>(socket_create) },
            // SAFETY: as above.
            socket_delete: unsafe { std::mem::transmute::<*mut c_void, SocketDelete>(socket_delete) },
            // SAFETY: as above.
            socket_fd: unsafe { std::mem::transmute::<*mut c_void, SocketFd>(socket_fd) },
            // SAFETY: sendto(2), as libc declares it; an address is never passed.
            sendto: unsafe { std::mem::transmute::<*mut c_void, SendTo>(sendto) },
            // SAFETY: recvfrom(2), as libc declares it; an address is never asked for.
            recvfrom: unsafe { std::mem::transmute::<*mut c_void, RecvFrom>(recvfrom) },
            // SAFETY: poll(2), as libc declares it.
            poll: unsafe { std::mem::transmute::<*mut c_void, Poll>(poll) },
        })
    }
}

/// First byte of the library that an address is in.
fn origin(address: *mut c_void) -> *mut c_void {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader looks the address up and fills a live struct; it does not follow it.
    unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: filled, or zeroed, which is a value of this struct of pointers.
    unsafe { info.assume_init() }.dli_fbase
}

fn dl_error() -> String {
    // SAFETY: called after a failure; the text stays valid until the next dl call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown failure of the loader".to_owned();
    }
    // SAFETY: a NUL-terminated string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn failed(what: &str, code: c_int) -> String {
    format!("{what}: {}", io::Error::from_raw_os_error(-code))
}

const EMPTY_PROD: xsk_ring_prod = xsk_ring_prod {
    cached_prod: 0,
    cached_cons: 0,
    mask: 0,
    size: 0,
    producer: ptr::null_mut(),
    consumer: ptr::null_mut(),
    ring: ptr::null_mut(),
    flags: ptr::null_mut(),
};
const EMPTY_CONS: xsk_ring_cons = xsk_ring_cons {
    cached_prod: 0,
    cached_cons: 0,
    mask: 0,
    size: 0,
    producer: ptr::null_mut(),
    consumer: ptr::null_mut(),
    ring: ptr::null_mut(),
    flags: ptr::null_mut(),
};

/// A ring that the program produces into.
#[derive(Debug)]
pub(super) struct Prod(Box<xsk_ring_prod>);

// SAFETY: the pointers lead to the library's mapping, which any thread may use; one thread at a time owns the value.
unsafe impl Send for Prod {}

impl Prod {
    fn new() -> Prod {
        Prod(Box::new(EMPTY_PROD))
    }

    /// Make room for `n` entries: the index of the first, or `None`.
    #[inline]
    pub(super) fn reserve(&mut self, n: u32) -> Option<u32> {
        let r = &mut *self.0;
        if r.cached_cons.wrapping_sub(r.cached_prod) < n {
            // SAFETY: the library mapped the ring and keeps it while the socket lives; this is its consumer word.
            let consumer = unsafe { AtomicU32::from_ptr(r.consumer) };
            r.cached_cons = consumer.load(Ordering::Acquire).wrapping_add(r.size);
            if r.cached_cons.wrapping_sub(r.cached_prod) < n {
                return None;
            }
        }
        let first = r.cached_prod;
        r.cached_prod = first.wrapping_add(n);
        Some(first)
    }

    /// Write a reserved entry of the TX ring.
    #[inline]
    fn set_desc(&mut self, at: u32, addr: u64, len: u32, options: u32) {
        let r = &*self.0;
        let slot = r.ring.cast::<Desc>().wrapping_add((at & r.mask) as usize);
        // SAFETY: `at & mask` is below the ring's size, and the entry was reserved.
        unsafe { slot.write(Desc { addr, len, options }) };
    }

    /// Write a reserved entry of the fill ring.
    #[inline]
    fn set_addr(&mut self, at: u32, addr: u64) {
        let r = &*self.0;
        let slot = r.ring.cast::<u64>().wrapping_add((at & r.mask) as usize);
        // SAFETY: `at & mask` is below the ring's size, and the entry was reserved.
        unsafe { slot.write(addr) };
    }

    #[inline]
    pub(super) fn submit(&mut self, n: u32) {
        // SAFETY: as in `reserve`; this is the producer word, which only this thread writes.
        let producer = unsafe { AtomicU32::from_ptr(self.0.producer) };
        producer.store(producer.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
    }
}

/// A ring that the program consumes from.
#[derive(Debug)]
pub(super) struct Cons(Box<xsk_ring_cons>);

// SAFETY: as for `Prod`.
unsafe impl Send for Cons {}

impl Cons {
    fn new() -> Cons {
        Cons(Box::new(EMPTY_CONS))
    }

    /// Entries that are there, at most `n`, and the index of the first.
    #[inline]
    pub(super) fn peek(&mut self, n: u32) -> (u32, u32) {
        let r = &mut *self.0;
        let mut there = r.cached_prod.wrapping_sub(r.cached_cons);
        if there == 0 {
            // SAFETY: the library mapped the ring and keeps it while the socket lives; this is its producer word.
            let producer = unsafe { AtomicU32::from_ptr(r.producer) };
            r.cached_prod = producer.load(Ordering::Acquire);
            there = r.cached_prod.wrapping_sub(r.cached_cons);
        }
        let first = r.cached_cons;
        let taken = there.min(n);
        r.cached_cons = first.wrapping_add(taken);
        (taken, first)
    }

    /// An entry of the RX ring that was peeked.
    #[inline]
    fn desc(&self, at: u32) -> Desc {
        let slot = self.0.ring.cast::<Desc>().wrapping_add((at & self.0.mask) as usize);
        // SAFETY: `at & mask` is below the ring's size, and the entry is this thread's until it is released.
        unsafe { slot.read() }
    }

    /// An entry of the completion ring that was peeked.
    #[inline]
    fn addr(&self, at: u32) -> u64 {
        let slot = self.0.ring.cast::<u64>().wrapping_add((at & self.0.mask) as usize);
        // SAFETY: as in `desc`.
        unsafe { slot.read() }
    }

    /// Leave the last `n` that were peeked for the next peek.
    #[inline]
    fn cancel(&mut self, n: u32) {
        self.0.cached_cons = self.0.cached_cons.wrapping_sub(n);
    }

    #[inline]
    pub(super) fn release(&mut self, n: u32) {
        // SAFETY: as in `peek`; this is the consumer word, which only this thread writes.
        let consumer = unsafe { AtomicU32::from_ptr(self.0.consumer) };
        consumer.store(consumer.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
    }
}

/// A UMEM with its fill and completion ring. The area is filled with a pattern, so that its pages are there.
#[derive(Debug)]
pub(super) struct Umem {
    api: Api,
    umem: *mut c_void,
    area: *mut u8,
    len: usize,
    pub fill: Prod,
    pub comp: Cons,
}

// SAFETY: `umem` and `area` are used by one thread at a time: whoever owns the value.
unsafe impl Send for Umem {}

impl Umem {
    pub(super) fn new(api: Api, chunks: u32) -> Result<Umem, String> {
        let len = (chunks * CHUNK) as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a fresh anonymous mapping.
        let area = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if area == libc::MAP_FAILED {
            return Err(format!("memory for a UMEM: {}", io::Error::last_os_error()));
        }
        let mut this =
            Umem { api, umem: ptr::null_mut(), area: area.cast(), len, fill: Prod::new(), comp: Cons::new() };
        // SAFETY: `len` bytes that were mapped just now.
        unsafe { this.area.write_bytes(1, len) };
        let config =
            xsk_umem_config { fill_size: RING, comp_size: RING, frame_size: CHUNK, frame_headroom: 0, flags: 0 };
        // SAFETY: live pointers of the types that the function wants; the area outlives the UMEM (see drop).
        let code = unsafe {
            (api.umem_create)(
                &raw mut this.umem,
                area,
                len as u64,
                &raw mut *this.fill.0,
                &raw mut *this.comp.0,
                &raw const config,
            )
        };
        if code == 0 { Ok(this) } else { Err(failed("xsk_umem__create", code)) }
    }

    /// Offer the first `n` chunks to the receive path.
    pub(super) fn offer(&mut self, n: u32) {
        let Some(first) = self.fill.reserve(n) else { return };
        for i in 0..n {
            self.fill.set_addr(first.wrapping_add(i), u64::from(i) * u64::from(CHUNK));
        }
        self.fill.submit(n);
    }

    /// Take back what has been sent: addresses go onto `free`.
    #[inline]
    pub(super) fn reclaim(&mut self, free: &mut Vec<u64>) -> u32 {
        let (n, first) = self.comp.peek(BATCH);
        for i in 0..n {
            free.push(self.comp.addr(first.wrapping_add(i)));
        }
        if n > 0 {
            self.comp.release(n);
        }
        n
    }

    /// Receive a batch: look at the first line of each chunk, give the chunks back. Returns how many frames ended in it, and
    /// adds up what was read so that reading cannot be left out.
    #[inline]
    pub(super) fn receive(&mut self, rx: &mut Cons, sum: &mut u64) -> u32 {
        let (n, first) = rx.peek(BATCH);
        if n == 0 {
            return 0;
        }
        // Every chunk is either with the library or here, but the kernel shows a frame a moment before the place in the fill ring.
        let Some(fill) = self.fill.reserve(n) else {
            rx.cancel(n);
            return 0;
        };
        let mut frames = 0;
        for i in 0..n {
            let desc = rx.desc(first.wrapping_add(i));
            let at = usize::try_from(desc.addr).unwrap_or(0) & (self.len - 1) & !7;
            let word = self.area.wrapping_add(at).cast::<u64>();
            // SAFETY: masked into the area, whose length is a power of two; aligned to 8.
            *sum = sum.wrapping_add(unsafe { word.read_volatile() });
            frames += u32::from(desc.options & uapi::XDP_PKT_CONTD == 0);
            self.fill.set_addr(fill.wrapping_add(i), desc.addr);
        }
        self.fill.submit(n);
        rx.release(n);
        frames
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if !self.umem.is_null() {
            // SAFETY: made by xsk_umem__create and not deleted yet. It is refused while a socket lives: then the area leaks.
            let code = unsafe { (self.api.umem_delete)(self.umem) };
            if code != 0 {
                return;
            }
        }
        // SAFETY: mapped in `new` with this length; no UMEM refers to it any more.
        unsafe { libc::munmap(self.area.cast(), self.len) };
    }
}

/// A socket with the rings that were asked for.
#[derive(Debug)]
pub(super) struct Socket {
    api: Api,
    socket: *mut c_void,
    fd: c_int,
    pub rx: Cons,
    pub tx: Prod,
}

// SAFETY: `socket` is used by one thread at a time: whoever owns the value.
unsafe impl Send for Socket {}

impl Socket {
    pub(super) fn new(umem: &Umem, device: &str, receives: bool) -> Result<Socket, String> {
        Socket::with_flags(umem, device, receives, 0)
    }

    /// With more bind flags than the usual ones.
    pub(super) fn with_flags(umem: &Umem, device: &str, receives: bool, flags: u16) -> Result<Socket, String> {
        let api = umem.api;
        let name = CString::new(device).map_err(|e| e.to_string())?;
        let mut this = Socket { api, socket: ptr::null_mut(), fd: -1, rx: Cons::new(), tx: Prod::new() };
        let rx = if receives { &raw mut *this.rx.0 } else { ptr::null_mut() };
        let config = xsk_socket_config {
            rx_size: RING,
            tx_size: RING,
            libxdp_flags: 0,
            xdp_flags: 0,
            bind_flags: uapi::XDP_COPY | uapi::XDP_USE_NEED_WAKEUP | flags,
        };
        // SAFETY: live pointers of the types that the function wants; a NULL ring is one that is not wanted.
        let code = unsafe {
            (api.socket_create)(
                &raw mut this.socket,
                name.as_ptr(),
                0,
                umem.umem,
                rx,
                &raw mut *this.tx.0,
                &raw const config,
            )
        };
        if code != 0 {
            return Err(failed(&format!("xsk_socket__create on {device}"), code));
        }
        // SAFETY: a living socket.
        this.fd = unsafe { (api.socket_fd)(this.socket) };
        Ok(this)
    }

    /// Hand a batch of `frame` bytes each over to the TX ring, if there is room for it and chunks are free. Frames longer than
    /// a chunk take several.
    #[inline]
    pub(super) fn send(&mut self, frame: u32, free: &mut Vec<u64>) {
        let parts = frame.div_ceil(CHUNK);
        self.send_some(BATCH / parts, frame, free);
    }

    /// As [`Socket::send`], `n` frames. Returns whether they were handed over.
    #[inline]
    pub(super) fn send_some(&mut self, n: u32, frame: u32, free: &mut Vec<u64>) -> bool {
        let parts = frame.div_ceil(CHUNK);
        if free.len() < (n * parts) as usize {
            return false;
        }
        let Some(mut at) = self.tx.reserve(n * parts) else { return false };
        for _ in 0..n {
            let mut left = frame;
            while left != 0 {
                let addr = free.pop().expect("enough are free, see above");
                let len = left.min(CHUNK);
                left -= len;
                self.tx.set_desc(at, addr, len, if left == 0 { 0 } else { uapi::XDP_PKT_CONTD });
                at = at.wrapping_add(1);
            }
        }
        self.tx.submit(n * parts);
        true
    }

    /// The system call that receives.
    #[inline]
    pub(super) fn kick_receive(&self) {
        // SAFETY: no buffer and no address are passed.
        unsafe {
            (self.api.recvfrom)(self.fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
        };
    }

    /// Sleep until there is something to receive, at most a second.
    pub(super) fn sleep(&self) {
        let mut entry = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live struct.
        unsafe { (self.api.poll)(&raw mut entry, 1, 1000) };
    }

    /// The system call that transmits. EAGAIN and EBUSY only say that more is left.
    #[inline]
    pub(super) fn kick(&self) {
        // SAFETY: no buffer and no address are passed.
        unsafe { (self.api.sendto)(self.fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.socket.is_null() {
            // SAFETY: made by xsk_socket__create and not deleted yet; NULL is a no-op.
            unsafe { (self.api.socket_delete)(self.socket) };
        }
    }
}
