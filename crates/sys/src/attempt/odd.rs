//! Odd ways into the kernel: another architecture's, another number's, and a handler for refused calls.
//!
//! Runs in: the probe, in a child of it, as a filter may end the process. Never: makes a call that could succeed
//! in doing harm: the numbers are those of `getpid` or of calls with arguments that are none.

use super::{Errno, checked};

/// `getpid` by the gate of 32-bit programs.
#[cfg(target_arch = "x86_64")]
pub fn getpid_by_int80() -> Result<i64, Errno> {
    const GETPID_OF_I386: i64 = 20;
    let mut result = GETPID_OF_I386;
    // SAFETY: the call takes no arguments and touches no memory; the kernel changes rax and, coming back from
    // this gate, r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") result,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
            options(nostack)
        );
    }
    if result < 0 { Err(Errno::from_raw_os_error(-(result as i32))) } else { Ok(result) }
}

/// `getpid` by the gate of 32-bit programs, of which this architecture has none.
#[cfg(not(target_arch = "x86_64"))]
pub fn getpid_by_int80() -> Result<i64, Errno> {
    Err(Errno::NOSYS)
}

/// `getpid` with the bit of the x32 architecture.
pub fn getpid_by_x32() -> Result<i64, Errno> {
    // SAFETY: `getpid` takes nothing in any architecture.
    checked(unsafe { libc::syscall(libc::SYS_getpid | 0x4000_0000) })
}

/// `ptrace` with impossible arguments and rubbish in the high half of its number, which the kernel does not look at.
pub fn ptrace_with_high_bits() -> Result<i64, Errno> {
    let number = libc::SYS_ptrace | (0x0BAD_F00D << 32);
    // SAFETY: no request has the number -1, so nothing is done and no memory is touched.
    checked(unsafe { libc::syscall(number, -1_i64, -1_i64, -1_i64, -1_i64) })
}

/// `ptrace` with impossible arguments while a handler for SIGSYS is there to go on after a refusal.
///
/// Gives whether the handler could be set, and what the call said.
pub fn ptrace_with_handler() -> (bool, Result<i64, Errno>) {
    extern "C" fn handler(_: i32) {}
    // SAFETY: the handler does nothing, which is allowed at any time; the old disposition is put back.
    let old = unsafe { libc::signal(libc::SIGSYS, handler as extern "C" fn(i32) as libc::sighandler_t) };
    // SAFETY: no request has the number -1, so nothing is done and no memory is touched.
    let result = checked(unsafe { libc::syscall(libc::SYS_ptrace, -1_i64, -1_i64, -1_i64, -1_i64) });
    if old != libc::SIG_ERR {
        // SAFETY: `old` is what `signal` gave.
        unsafe { libc::signal(libc::SIGSYS, old) };
    }
    (old != libc::SIG_ERR, result)
}

/// The signals that are blocked, bit 0 being signal 1.
pub fn blocked_signals() -> u64 {
    let mut set = 0_u64;
    // SAFETY: with a null new set nothing changes; the kernel writes 8 bytes, the size it was told.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut set, size_of_val(&set)) };
    set
}

/// The signals that are ignored or have a handler.
pub fn handled_signals() -> (Vec<i32>, Vec<i32>) {
    let (mut ignored, mut handled) = (Vec::new(), Vec::new());
    for signal in 1..=64 {
        // The kernel's structure: handler, flags, restorer, mask.
        let mut now = [0_u64; 4];
        // SAFETY: with a null new action nothing changes; the kernel writes the four words.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0, now.as_mut_ptr(), size_of::<u64>()) };
        match now[0] as usize {
            _ if result != 0 => {}
            libc::SIG_DFL => {}
            libc::SIG_IGN => ignored.push(signal),
            _ => handled.push(signal),
        }
    }
    (ignored, handled)
}

/// Whether a descriptor with this number is open; a filter may refuse one of the two questions.
pub fn is_open(number: i32) -> bool {
    // SAFETY: takes integers.
    [libc::F_GETFD, libc::F_GETFL].into_iter().any(|question| unsafe { libc::fcntl(number, question) >= 0 })
}

/// A duplicate of the descriptor with this number, if it is open.
pub fn duplicate(number: i32) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: takes integers, and makes a new descriptor; whoever owns `number` keeps it.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: the new descriptor has no other owner.
    (copy >= 0).then(|| unsafe { std::os::fd::OwnedFd::from_raw_fd(copy) })
}

/// Asks that SIGURG (ignored by default) be sent to `pid` when `descriptor` has something: F_SETOWN.
pub fn set_signal_owner(descriptor: &impl std::os::fd::AsRawFd, pid: i32) -> Result<i64, Errno> {
    // SAFETY: takes integers.
    checked(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETOWN, pid) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_descriptors_are_told() {
        assert_eq!(blocked_signals() & (1 << (libc::SIGKILL - 1)), 0);
        // The standard library ignores SIGPIPE.
        assert!(handled_signals().0.contains(&libc::SIGPIPE));
        assert!(is_open(1) && !is_open(-1));
        assert!(duplicate(1).is_some() && duplicate(-1).is_none());
    }

    #[test]
    fn a_call_with_high_bits_is_the_same_call() {
        assert!(ptrace_with_high_bits().is_err());
        let (set, result) = ptrace_with_handler();
        assert!(set && result.is_err());
    }
}
