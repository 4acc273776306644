//! Attempts that may end the process, made in a child of it.
//!
//! Runs in: the probe. Never: leaves a child behind that it could end.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::{Errno, calls, checked};

/// How a child ended, and what it had to say.
#[derive(Debug)]
pub struct ChildEnd {
    /// What it returned, if it came to that.
    pub bytes: Vec<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It had to be ended.
    pub late: bool,
}

/// Runs `body` in a child for at most `time`.
///
/// `body` may use what it finds in memory, and must not wait for another thread, as the child has only its own.
///
/// # Errors
/// Those of `fork`, or of the pipe between the two.
pub fn isolated(time: Duration, body: impl FnOnce() -> Vec<u8>) -> Result<ChildEnd, Errno> {
    let (mut from, to) = std::io::pipe().map_err(|error| errno_of(&error))?;
    // SAFETY: the child runs `body` in a copy of this process's memory and then ends with _exit. Locks of other
    // threads stay taken in it; the allocator's are released by glibc's fork, and `body` takes no others.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(errno_of(&std::io::Error::last_os_error()));
    }
    if pid == 0 {
        drop(from);
        // A panic must not unwind into the parent's code.
        let output = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_default();
        let _ = std::fs::File::from(OwnedFd::from(to)).write_all(&output);
        // SAFETY: no precondition; runs no destructors of the parent's state.
        unsafe { libc::_exit(0) }
    }
    drop(to);
    let mut ended = ChildEnd { bytes: Vec::new(), signal: None, late: false };
    let mut status = None;
    // The end of the pipe is not waited for once the child is gone: children of it may hold the other end.
    let deadline = Instant::now() + time;
    loop {
        let more = readable(&from, if status.is_some() { 0 } else { 20 });
        let mut part = [0; 4096];
        let got = if more { from.read(&mut part).unwrap_or(0) } else { 0 };
        ended.bytes.extend_from_slice(&part[..got]);
        if got > 0 {
            continue;
        }
        if status.is_some() {
            break;
        }
        status = reap(pid, more && Instant::now() > deadline);
        if status.is_none() && Instant::now() > deadline {
            ended.late = true;
            // SAFETY: takes integers; `pid` is our child and not yet waited for, so it is still its number.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            status = reap(pid, true);
            break;
        }
    }
    if let Some(status) = status {
        ended.signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    }
    Ok(ended)
}

fn readable(pipe: &std::io::PipeReader, timeout_ms: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut wanted = [PollFd::new(pipe, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 };
    matches!(poll(&mut wanted, Some(&timeout)), Ok(1))
}

/// The child's status if it has ended; waits for that up to a second if told to.
fn reap(pid: i32, wait: bool) -> Option<i32> {
    for _ in 0..if wait { 100 } else { 1 } {
        let mut status = 0;
        // SAFETY: `status` is writable; with WNOHANG the call does not wait.
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if reaped == pid {
            return Some(status);
        }
        if reaped < 0 {
            // Somebody else's, or refused: as good as gone.
            return Some(0);
        }
        if wait {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    None
}

/// Makes a process in new namespaces by `clone`; it ends at once.
///
/// # Errors
/// What the kernel said; EINVAL for other flags than those of namespaces.
pub fn clone_with(namespace: i64) -> Result<(), Errno> {
    if !calls::NAMESPACES.contains(&namespace) || namespace == 0x80 {
        return Err(Errno::INVAL);
    }
    // SAFETY: without CLONE_VM and a stack this is a fork; the child calls nothing but _exit.
    let pid = unsafe { libc::syscall(libc::SYS_clone, namespace | i64::from(libc::SIGCHLD), 0, 0, 0, 0) };
    end_or_reap(pid)
}

/// As [`clone_with`], by `clone3`, whose flags a seccomp filter cannot read.
///
/// # Errors
/// As [`clone_with`].
pub fn clone3_with(namespace: i64) -> Result<(), Errno> {
    if !calls::NAMESPACES.contains(&namespace) {
        return Err(Errno::INVAL);
    }
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let arguments = [namespace as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    // SAFETY: the kernel reads the eight words of `arguments`, which hold no address; no CLONE_VM, so this is a
    // fork, and the child calls nothing but _exit.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) };
    end_or_reap(pid)
}

/// In the child of a clone: ends. In the parent: waits for that.
fn end_or_reap(pid: i64) -> Result<(), Errno> {
    let pid = checked(pid)?;
    if pid == 0 {
        // SAFETY: no precondition.
        unsafe { libc::_exit(0) }
    }
    reap(pid as i32, true);
    Ok(())
}

/// Makes up to `most` children at once that do nothing until they are ended; gives how many there were and why no
/// more.
pub fn fork_many(most: usize) -> (usize, Option<Errno>) {
    let mut children = Vec::with_capacity(most);
    let mut refused = None;
    while children.len() < most {
        // SAFETY: the child only sleeps and ends.
        match unsafe { libc::fork() } {
            0 => wait_and_end(),
            pid if pid > 0 => children.push(pid),
            _ => {
                refused = Some(errno_of(&std::io::Error::last_os_error()));
                break;
            }
        }
    }
    for &pid in &children {
        // SAFETY: takes integers; our own children that are not yet waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    for &pid in &children {
        reap(pid, true);
    }
    (children.len(), refused)
}

/// Where a child of [`fork_many`] stays; it ends by itself if nobody ends it.
fn wait_and_end() -> ! {
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: no precondition.
    unsafe { libc::_exit(0) }
}

/// Executes `file` (or, if `path` is not empty, the program of that name) in place of this process.
///
/// Returns only if that failed, with the reason.
pub fn execute(file: i32, path: &std::ffi::CStr) -> Errno {
    let arguments = [c"probe".as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null::<libc::c_char>()];
    // SAFETY: both arrays end with null and hold C strings that are static; `path` is a C string; on success
    // nothing returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file,
            path.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    checked(result).err().unwrap_or(Errno::INVAL)
}

/// Runs `file` or `path` as [`execute`] does, in a child, and gives its exit status.
///
/// # Errors
/// Those of `fork` or of the execution; `ETIMEDOUT` if it did not end within a second.
pub fn execute_aside(file: i32, path: &std::ffi::CStr) -> Result<i32, Errno> {
    // SAFETY: the child executes another program or ends; it takes no locks.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(errno_of(&std::io::Error::last_os_error()));
    }
    if pid == 0 {
        let errno = execute(file, path);
        // SAFETY: no precondition. The number of the error is below 128; the programs we run end with 42 | 128.
        unsafe { libc::_exit(errno.raw_os_error() & 127) }
    }
    let Some(status) = reap(pid, true) else {
        // SAFETY: takes integers; our own child, not yet waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid, true);
        return Err(Errno::TIMEDOUT);
    };
    let code = libc::WEXITSTATUS(status);
    if libc::WIFEXITED(status) && (1..128).contains(&code) {
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(code)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_tells_and_ends() {
        let ended = isolated(Duration::from_secs(5), || b"said".to_vec()).unwrap();
        assert_eq!((ended.bytes.as_slice(), ended.signal, ended.late), (&b"said"[..], None, false));
    }

    #[test]
    fn a_child_that_dies_or_hangs_is_noticed() {
        let ended = isolated(Duration::from_secs(5), || std::process::abort()).unwrap();
        assert_eq!(ended.signal, Some(libc::SIGABRT));
        let ended = isolated(Duration::from_millis(50), || {
            std::thread::sleep(Duration::from_secs(30));
            Vec::new()
        });
        assert!(ended.unwrap().late);
    }

    #[test]
    fn programs_run_aside() {
        assert_eq!(execute_aside(-1, c"/bin/true"), Ok(0));
        assert_eq!(execute_aside(-1, c"/no/such/program"), Err(Errno::NOENT));
        assert_eq!(fork_many(3), (3, None));
    }
}
