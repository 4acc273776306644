//! System calls of another process, answered in its place: seccomp's user notification.
//!
//! Runs in: the guard (`bulkheadd guard`), for servers into which no library can be loaded; [`install`] in the child
//! between fork and exec. Sees: numbers and addresses that the server passes to the kernel. Never: follows an address
//! of the other process but through the kernel's copying calls, which fail rather than read something else.
//!
//! The order of an answer matters: what is copied into the caller is copied first, and the call ends last, so that the
//! caller never runs on with half of it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// `_IOWR('!', 0, struct seccomp_notif)` and its like; the C library has no names for them.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;
const ADD: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the answer wakes the caller on this very core.
const SYNCHRONOUS: libc::c_ulong = 1;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// The calls that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the system calls of these names")]
pub enum Kind {
    Listen,
    Accept,
    Accept4,
    GetSockName,
    Close,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Listen, Self::Accept, Self::Accept4, Self::GetSockName, Self::Close];

    fn number(self) -> libc::c_long {
        match self {
            Self::Listen => libc::SYS_listen,
            Self::Accept => libc::SYS_accept,
            Self::Accept4 => libc::SYS_accept4,
            Self::GetSockName => libc::SYS_getsockname,
            Self::Close => libc::SYS_close,
        }
    }
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What the kernel calls it.
    pub id: u64,
    /// The thread that makes it, as this process sees it.
    pub thread: i32,
    /// Which call it is.
    pub kind: Kind,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// The argument `index`, where it is a descriptor: the kernel looks at the lower half only.
    pub fn descriptor(&self, index: usize) -> RawFd {
        self.arguments[index] as u32 as RawFd
    }
}

/// Where calls of a process and its descendants arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// Has `calls` of this thread and of all its descendants answered by the [`Listener`] that is made of the descriptor
/// which `hand_over` gets to pass on. For use in a child between fork and exec: from here on, a call that is among
/// them, such as closing a descriptor, waits for an answer. The descriptor itself stays open until exec.
///
/// # Errors
/// The kernel refused (it is older than 5.9, or this process may neither do that nor has given up new privileges), or
/// what `hand_over` failed with.
pub fn install(calls: &[Kind], hand_over: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    let numbers: Vec<_> = calls.iter().map(|call| call.number()).collect();
    let result =
        apply(program(&numbers, libc::SECCOMP_RET_USER_NOTIF)?, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    // SAFETY: the kernel has just opened it for this process; nobody else knows of it, so nobody closes it before exec.
    hand_over(unsafe { BorrowedFd::borrow_raw(result as RawFd) })
}

/// Has this thread and all its descendants do without io_uring, as on a kernel that has none: what is read and written
/// by it passes every function of the C library by. For use in a child between fork and exec.
///
/// # Errors
/// The kernel refused: this process may neither do that nor has given up new privileges.
pub fn refuse_rings() -> io::Result<()> {
    let none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    apply(program(&[libc::SYS_io_uring_setup], none)?, 0).map(drop)
}

fn apply(mut filter: Vec<libc::sock_filter>, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let set = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: `program` names as many instructions as `filter` has, and both live until the call returns; the kernel
    // copies and checks them.
    match unsafe { libc::syscall(libc::SYS_seccomp, set, flags, &raw const program) } {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// The filter: with the listed calls `action` is done, all others are allowed, those of another architecture as well.
fn program(calls: &[libc::c_long], action: u32) -> io::Result<Vec<libc::sock_filter>> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // A jump is a byte; nobody lists so many calls.
    let count = u8::try_from(calls.len()).map_err(io::Error::other)?;
    let mut steps = vec![
        step(load, 0, 0, std::mem::offset_of!(libc::seccomp_data, arch) as u32),
        step(equal, 0, count + 1, ARCHITECTURE),
        step(load, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
    ];
    for (index, call) in (0..count).zip(calls) {
        steps.push(step(equal, count - index, 0, *call as u32));
    }
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(answer, 0, 0, action));
    Ok(steps)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// The listener whose descriptor was received from the process that made it.
    pub fn new(descriptor: OwnedFd) -> Self {
        // Quicker by half where the kernel (6.6) has it.
        // SAFETY: the argument of this request is an integer.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNCHRONOUS) };
        Self(descriptor)
    }

    /// The next call; to be asked only when the descriptor is readable. `None` if its thread is gone meanwhile.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        // SAFETY: every field of the structure is an integer, for which nought is a value; the kernel wants noughts.
        let mut got: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        match unsafe { self.request(RECEIVE, &raw mut got) } {
            Ok(_) => Ok(Kind::ALL
                .into_iter()
                .find(|kind| kind.number() == got.data.nr.into())
                .map(|kind| Call { id: got.id, thread: got.pid as i32, kind, arguments: got.data.args })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the call still waits; so, whether what was found out about its thread is about this thread.
    pub fn waits(&self, id: u64) -> bool {
        let mut id = id;
        // SAFETY: the request's argument points to a 64-bit integer.
        unsafe { self.request(ID_VALID, &raw mut id) }.is_ok()
    }

    /// Lets the kernel do the call as if nobody had looked.
    ///
    /// # Errors
    /// The call does not wait any more.
    pub fn allow(&self, id: u64) -> io::Result<()> {
        self.send(id, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// Ends the call: it returns nought, or fails with `errno` if that is another number.
    ///
    /// # Errors
    /// The call does not wait any more.
    pub fn end(&self, id: u64, errno: i32) -> io::Result<()> {
        self.send(id, -errno, 0)
    }

    /// Puts `descriptor` in the place of the caller's `at`, whatever is there.
    ///
    /// # Errors
    /// The call does not wait any more, or the caller may not have that many descriptors.
    pub fn put(&self, id: u64, descriptor: impl AsFd, at: RawFd, close_on_exec: bool) -> io::Result<()> {
        self.add(id, descriptor.as_fd(), libc::SECCOMP_ADDFD_FLAG_SETFD as u32, at, close_on_exec).map(drop)
    }

    /// Ends the call with a new descriptor of the caller's, and returns its number; both or neither.
    ///
    /// # Errors
    /// The call does not wait any more (or the kernel is older than 5.14).
    pub fn end_with(&self, id: u64, descriptor: impl AsFd, close_on_exec: bool) -> io::Result<RawFd> {
        self.add(id, descriptor.as_fd(), libc::SECCOMP_ADDFD_FLAG_SEND as u32, 0, close_on_exec)
    }

    fn send(&self, id: u64, error: i32, flags: u32) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error, flags };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        unsafe { self.request(SEND, &raw mut answer) }.map(drop)
    }

    fn add(
        &self,
        id: u64,
        descriptor: BorrowedFd<'_>,
        flags: u32,
        at: RawFd,
        close_on_exec: bool,
    ) -> io::Result<RawFd> {
        let mut added = libc::seccomp_notif_addfd {
            id,
            flags,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: at as u32,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the request's argument points to a structure of the size that its number states.
        unsafe { self.request(ADD, &raw mut added) }
    }

    /// # Safety
    /// `argument` points to what the kernel reads and writes for `request`.
    unsafe fn request<T>(&self, request: libc::c_ulong, argument: *mut T) -> io::Result<i32> {
        // SAFETY: the descriptor is open as long as `self` lives; the argument is the caller's promise.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// Whether `thread` is one of the threads of `process`.
pub fn is_thread_of(process: i32, thread: i32) -> bool {
    // SAFETY: tgkill takes integers; signal nought only asks.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}

/// Copies memory of `process` at `address` into `buffer`, all of it.
///
/// # Errors
/// There is no such memory, or it is not ours to read.
pub fn read_memory(process: i32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `here` is writable for its length. `there` is never followed in this process: the kernel checks it
    // against the memory of the other.
    let got = unsafe { libc::process_vm_readv(process, &raw const here, 1, &raw const there, 1, 0) };
    whole(got, buffer.len())
}

/// Copies `bytes` into the memory of `process` at `address`, all of them.
///
/// # Errors
/// There is no such memory, or it is not ours to write.
pub fn write_memory(process: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() };
    // SAFETY: `here` is readable for its length and only read. `there` is never followed in this process: the kernel
    // checks it against the memory of the other.
    let put = unsafe { libc::process_vm_writev(process, &raw const here, 1, &raw const there, 1, 0) };
    whole(put, bytes.len())
}

fn whole(moved: isize, length: usize) -> io::Result<()> {
    match moved {
        -1 => Err(io::Error::last_os_error()),
        moved if moved as usize == length => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::mpsc;

    /// Runs `caller` in a thread whose calls are answered by `answer`.
    fn supervised<T: Send + 'static>(
        calls: &'static [Kind],
        caller: impl FnOnce() -> T + Send + 'static,
        answer: impl FnOnce(&Listener),
    ) -> T {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            install(calls, |fd| tell.send(fd.try_clone_to_owned()?).map_err(io::Error::other)).unwrap();
            caller()
        });
        // A thread's filter is its own; its descriptors are the process's.
        let listener = Listener::new(told.recv().unwrap());
        let mut polled = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, None).unwrap();
        answer(&listener);
        thread.join().unwrap()
    }

    fn listen_on(number: RawFd) -> io::Result<()> {
        // SAFETY: listen takes integers.
        if unsafe { libc::listen(number, 1) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    #[test]
    fn a_call_is_ended_with_an_error() {
        let result = supervised(
            &[Kind::Listen],
            || listen_on(77),
            |listener| {
                let call = listener.receive().unwrap().unwrap();
                assert_eq!((call.kind, call.descriptor(0)), (Kind::Listen, 77));
                assert!(listener.waits(call.id));
                assert!(is_thread_of(std::process::id() as i32, call.thread));
                listener.end(call.id, libc::EADDRINUSE).unwrap();
                assert!(!listener.waits(call.id));
            },
        );
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    }

    #[test]
    fn a_call_is_allowed() {
        let result = supervised(
            &[Kind::Accept4, Kind::Listen],
            || listen_on(-1),
            |listener| {
                let call = listener.receive().unwrap().unwrap();
                listener.allow(call.id).unwrap();
            },
        );
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_call_returns_a_descriptor_and_writes_memory() {
        let caller = || {
            let mut address = [0_u8; 4];
            let mut length = 4_u32;
            // SAFETY: the pointers are to writable memory of the stated length; the descriptor need not be one.
            let got = unsafe { libc::accept(-1, address.as_mut_ptr().cast(), &raw mut length) };
            assert!(got >= 0);
            (std::fs::read_link(format!("/proc/self/fd/{got}")).unwrap(), address, length)
        };
        let (path, address, length) = supervised(&[Kind::Accept], caller, |listener| {
            let call = listener.receive().unwrap().unwrap();
            let mut length = [0; 4];
            read_memory(call.thread, call.arguments[2], &mut length).unwrap();
            assert_eq!(length, 4_u32.to_ne_bytes());
            write_memory(call.thread, call.arguments[1], b"peer").unwrap();
            write_memory(call.thread, call.arguments[2], &2_u32.to_ne_bytes()).unwrap();
            listener.end_with(call.id, File::open("/dev/null").unwrap(), true).unwrap();
        });
        assert_eq!((path.to_str(), &address, length), (Some("/dev/null"), b"peer", 2));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let own = std::process::id() as i32;
        assert!(read_memory(own, 8, &mut [0; 4]).is_err());
        assert!(write_memory(own, u64::MAX - 64, b"x").is_err());
    }
}
