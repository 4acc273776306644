//! Starting, watching and ending child processes by pidfd.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: signals a pid (only a pidfd of a child of
//! its own), and never lets a child reach `exec` when a step before it failed.

mod child;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub use child::{Child, Exit};

/// What a child executes.
#[derive(Debug)]
pub struct Program {
    /// The open program file; the child needs no path to it.
    pub file: OwnedFd,
    /// The argument vector, the zeroth included.
    pub arguments: Vec<CString>,
    /// The whole environment.
    pub environment: Vec<CString>,
}

/// Which processes a child sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pids {
    /// Those that its parent sees.
    Shared,
    /// Itself and its own children; it is their first process, and none of them outlives it.
    Own,
}

/// A step that failed between fork and exec.
#[derive(Debug)]
pub struct StartError {
    /// The name of the step: a jail layer, or `exec`.
    pub step: String,
    /// What the kernel said.
    pub source: io::Error,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, self.source)
    }
}

impl std::error::Error for StartError {}

/// Starts `program` in a new process, after `prepare` has built its jail there.
///
/// `pids` says which processes the child sees, as only the call that makes it can change that. `prepare` must leave the descriptors open that it did not make (those marked to close at exec stay open until
/// then) and names the step that failed. The call returns once the child executes the program or failed to.
///
/// # Errors
/// The step that failed; the child then never executed anything.
pub fn start(
    program: &Program,
    pids: Pids,
    prepare: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
) -> Result<Child, StartError> {
    begin(pids, DescriptorTable::Whole, prepare, || execute(program))?.finish()
}

/// As [`start`], without waiting until the child executes the program, which [`Begun::finish`] does: several children can
/// be on their way at a time. The child has only those of the caller's descriptors that are not above `highest`, which
/// `prepare` and the program's own must not be.
///
/// # Errors
/// There is no child.
pub fn begin_start(
    program: &Program,
    pids: Pids,
    highest: RawFd,
    prepare: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
) -> Result<Begun, StartError> {
    let highest = highest.max(program.file.as_raw_fd());
    begin(pids, DescriptorTable::UpTo(highest), prepare, || execute(program))
}

/// As [`start`], for a command of the caller's own: the program is named by its path, as a script must be, and sees
/// the processes that its parent sees.
///
/// # Errors
/// The step that failed; the child then never executed anything.
pub fn start_command(
    path: &CStr,
    arguments: &[CString],
    environment: &[CString],
    prepare: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
) -> Result<Child, StartError> {
    begin(Pids::Shared, DescriptorTable::Whole, prepare, || execute_path(path, arguments, environment))?
        .finish()
}

/// Has a child do `work`, and waits until that has ended.
///
/// # Errors
/// What kept the child from being made, or the step of `work` that failed.
pub fn run(work: impl FnOnce() -> Result<(), (&'static str, io::Error)>) -> Result<(), StartError> {
    // SAFETY: _exit has no precondition; unlike exit it runs no destructors of the parent's state.
    let child = begin(Pids::Shared, DescriptorTable::Whole, work, || unsafe { libc::_exit(0) })?.finish()?;
    child.wait_blocking();
    Ok(())
}

/// Has a child do `work`, and does not wait for it: the child is a copy of this process, with no descriptors but these and the
/// first three, and says what it has found in a file that it shares with its parent. The child ends with its parent.
///
/// One that waits for a file system cannot always be ended. It must hold nothing that others wait for: no socket that listens,
/// no channel whose end is to be heard of, no lock.
///
/// # Errors
/// There is no child.
pub fn begin_work(
    kept: &[RawFd],
    work: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
) -> Result<Child, StartError> {
    let parent = rustix::process::getpid();
    let table = DescriptorTable::UpTo(kept.iter().copied().max().unwrap_or_default());
    let bound = || {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(|error| ("parent death", error.into()))?;
        let_go_of_others(kept).map_err(|error| ("descriptors", error))?;
        match rustix::process::getppid() == Some(parent) {
            true => work(),
            false => Err(("parent death", io::ErrorKind::NotFound.into())),
        }
    };
    // SAFETY: _exit has no precondition; unlike exit it runs no destructors of the parent's state.
    let Begun { child, report } = begin(Pids::Shared, table, bound, || unsafe { libc::_exit(0) })?;
    // Nobody reads what failed: how the child has ended says that something did.
    drop(report);
    Ok(child)
}

/// Has every number above the first three stand for `/dev/null` that is open and not among `kept`. No number becomes free: values of
/// the copied process still have them, and close them where they end.
fn let_go_of_others(kept: &[RawFd]) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let null = null.as_raw_fd();
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for number in open.into_iter().filter(|number| *number > 2 && *number != null && !kept.contains(number)) {
        // SAFETY: F_GETFD takes no argument, and fails for a number that is not open, as that of the list is by now.
        let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        // SAFETY: dup3 takes integers; the number goes on being its owner's, whose value is closed as any other.
        if is_open && unsafe { libc::dup3(null, number, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Which of its parent's descriptors a child has until it executes its program.
#[derive(Clone, Copy, Debug)]
enum DescriptorTable {
    /// All of them, each of which the kernel copies and closes again.
    Whole,
    /// Those up to this number. The time that a start takes does not depend on how many others the parent has.
    UpTo(RawFd),
}

/// A child that does not execute its program yet.
#[derive(Debug)]
pub struct Begun {
    child: Child,
    report: StartReport,
}

/// Where a child says what keeps it from executing its program. The end of it is all that a child says which does.
#[derive(Debug)]
pub struct StartReport(io::PipeReader);

/// What a child reports first that shares its parent's descriptors no longer.
const SEPARATE: u8 = 0;

impl Begun {
    /// Waits until the child executes its program.
    ///
    /// # Errors
    /// The step that failed; the child then never executed anything.
    pub fn finish(self) -> Result<Child, StartError> {
        let Self { child, report } = self;
        match report.read() {
            Ok(()) => Ok(child),
            Err(failure) => {
                // Nobody else knows of it.
                child.end();
                Err(failure)
            }
        }
    }

    /// Waits until a time for the end of what the child says; whether that has come.
    pub fn is_over_by(&self, until: Instant) -> bool {
        self.report.is_over_by(until)
    }

    /// The child, and where it says whether it executes its program, for who does not wait for that.
    pub fn split(self) -> (Child, StartReport) {
        (self.child, StartReport(out_of_the_way(self.report.0.into()).into()))
    }
}

impl StartReport {
    /// Whether all is said.
    pub fn is_over(&self) -> bool {
        self.is_over_within(Duration::ZERO)
    }

    /// Waits until a time for that; whether it has come.
    pub fn is_over_by(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_over_within(left) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    fn is_over_within(&self, time: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        // Bytes alone do not end a wait: the end of the pipe does.
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        // What cannot be asked is found by whoever reads.
        poll(&mut polled, Some(&time)).is_err_and(|error| error != rustix::io::Errno::INTR)
            || polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Waits until all is said.
    ///
    /// # Errors
    /// The step that failed; the child then never executed anything, and has ended or is about to.
    pub fn read(mut self) -> Result<(), StartError> {
        let mut message = Vec::new();
        self.0.read_to_end(&mut message).map_err(|error| failed("report", error))?;
        if message.len() < 4 {
            return Ok(());
        }
        let (errno, step) = message.split_at(4);
        let errno = i32::from_ne_bytes([errno[0], errno[1], errno[2], errno[3]]);
        Err(failed(&String::from_utf8_lossy(step), io::Error::from_raw_os_error(errno)))
    }
}

impl AsFd for StartReport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn failed(step: &str, source: io::Error) -> StartError {
    StartError { step: step.into(), source }
}

fn begin(
    pids: Pids,
    table: DescriptorTable,
    prepare: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
    execute: impl FnOnce() -> io::Result<Infallible>,
) -> Result<Begun, StartError> {
    let (mut report, report_end) = io::pipe().map_err(|e| failed("pipe", e))?;
    let report_end: OwnedFd = report_end.into();
    let step = if pids == Pids::Own { "pid namespace" } else { "clone" };
    let Some(child) = fork(pids, table).map_err(|e| failed(step, e))? else {
        become_program(table, prepare, execute, report_end)
    };
    if let DescriptorTable::UpTo(_) = table
        && let Err(error) = wait_until_separate(&child, &mut report)
    {
        child.end();
        return Err(failed("descriptors", error));
    }
    if let Err(error) = close(report_end) {
        child.end();
        return Err(failed("descriptors", error));
    }
    Ok(Begun { child, report: StartReport(report) })
}

/// Closes a descriptor and says whether that took place: who waits for the end of a pipe whose other end it has kept waits
/// for ever.
fn close(descriptor: OwnedFd) -> io::Result<()> {
    // SAFETY: `into_raw_fd` has given the descriptor up, so nobody closes or uses it again.
    if unsafe { libc::close(descriptor.into_raw_fd()) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Waits until a child has a table of descriptors of its own: what its parent closes before that, the child has not either.
///
/// # Errors
/// The child is gone, or the kernel is older than 5.9.
fn wait_until_separate(child: &Child, report: &mut io::PipeReader) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    // The end of the pipe does not tell that the child is gone: the parent has its other end.
    let mut polled = [PollFd::new(report, PollFlags::IN), PollFd::new(&child.pidfd, PollFlags::IN)];
    while let Err(error) = poll(&mut polled, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    if !polled[0].revents().contains(PollFlags::IN) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut first = [SEPARATE];
    report.read_exact(&mut first)?;
    if first[0] == SEPARATE { Ok(()) } else { Err(io::Error::from_raw_os_error(first[0].into())) }
}

/// Gives this process a table of its own, with the descriptors of its parent up to `highest`, and says so.
fn separate(highest: RawFd, report_end: &OwnedFd) {
    let highest = highest.max(report_end.as_raw_fd());
    let above = highest as libc::c_uint + 1;
    // SAFETY: close_range takes integers. With CLOSE_RANGE_UNSHARE it closes nothing in the table that is the parent's as
    // well: the table that this process has from here on is without what it closes.
    let result = unsafe { libc::syscall(libc::SYS_close_range, above, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    let error = (result < 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    let first = error.map_or(SEPARATE, |errno| errno as u8);
    let written = rustix::io::write(report_end, &[first]);
    if error.is_some() || written != Ok(1) {
        // SAFETY: _exit has no precondition; unlike exit it runs no destructors of the parent's state.
        unsafe { libc::_exit(127) }
    }
}

/// Forks; `None` is the child.
///
/// A child that gets a part of the table of descriptors has the parent's own at first, until [`separate`].
fn fork(pids: Pids, table: DescriptorTable) -> io::Result<Option<Child>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: every field of the structure is an integer, for which nought is a value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = libc::CLONE_PIDFD as u64;
    if pids == Pids::Own {
        arguments.flags |= libc::CLONE_NEWPID as u64;
    }
    if let DescriptorTable::UpTo(_) = table {
        arguments.flags |= libc::CLONE_FILES as u64;
    }
    arguments.pidfd = &raw mut pidfd as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: the structure is as long as is said, and `pidfd` is writable. Without CLONE_VM the child has a copy
    // of everything, as after fork. The launcher is single-threaded, so the child may go on running ordinary code:
    // no lock can be held by a thread that does not exist in it. The child never returns from `start`. Until a child
    // that shares the descriptors has its own, the parent waits, and the child changes none of them.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        // SAFETY: the kernel has just opened `pidfd` for this process, and nobody else knows of it.
        pid => Ok(Some(Child { pid: pid as u32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })),
    }
}

/// The child's side of [`start`]: never returns to the caller's code.
fn become_program(
    table: DescriptorTable,
    prepare: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
    execute: impl FnOnce() -> io::Result<Infallible>,
    report_end: OwnedFd,
) -> ! {
    if let DescriptorTable::UpTo(highest) = table {
        separate(highest, &report_end);
    }
    crate::signals::reset();
    // A panic must not unwind into the launcher's own code, of which this process is a copy.
    let prepared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(prepare));
    let prepared = prepared.unwrap_or_else(|_| Err(("panic", io::Error::from_raw_os_error(libc::EFAULT))));
    let (step, error) = match prepared {
        Err(failure) => failure,
        Ok(()) => match execute() {
            Ok(never) => match never {},
            Err(error) => ("exec", error),
        },
    };
    let mut message = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes().to_vec();
    message.extend_from_slice(step.as_bytes());
    // Left open: closing is a call that may have to wait for the parent (`notify`), which waits for this process.
    let _ = ManuallyDrop::new(std::fs::File::from(report_end)).write_all(&message);
    // SAFETY: _exit has no precondition; unlike exit it runs no destructors of the parent's state.
    unsafe { libc::_exit(127) }
}

/// What the kernel takes as an argument vector or an environment.
fn pointers(list: &[CString]) -> Vec<*const libc::c_char> {
    list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

fn execute_path(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Result<Infallible> {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: `path` is a C string; the others are null-terminated arrays of pointers to C strings that the caller
    // keeps alive. On success nothing returns.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Err(io::Error::last_os_error())
}

pub(crate) fn execute(program: &Program) -> io::Result<Infallible> {
    let (arguments, environment) = (pointers(&program.arguments), pointers(&program.environment));
    let empty: &CStr = c"";
    // SAFETY: `arguments` and `environment` are null-terminated arrays of pointers to C strings that
    // `program` keeps alive; `empty` is a C string; the descriptor is open. On success nothing returns.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.file.as_raw_fd(),
            empty.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    Err(io::Error::last_os_error())
}

/// From here on are the descriptors that a parent of many children keeps of each.
const KEPT: RawFd = 1024;

/// Moves a descriptor that is kept for long to a high number, so that new ones are low, and with that what the next child
/// is given a copy of ([`begin_start`]). Where there are few such numbers, it stays as it is: numbers above all that are in use are
/// needed for a moment as well.
#[must_use]
pub fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if most.is_some_and(|most| most < 2 * KEPT as u64) {
        return descriptor;
    }
    rustix::io::fcntl_dupfd_cloexec(&descriptor, KEPT).unwrap_or(descriptor)
}

/// Places `descriptor` at `number` in this process, to be inherited across exec; for use in `prepare`.
pub fn place(descriptor: &impl AsFd, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 takes two integers; that `number` may belong to an owner of the parent's does not matter in
    // the child, which executes another program or exits without running destructors.
    if unsafe { libc::dup2(descriptor.as_fd().as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Marks every descriptor from `first` on to be closed at exec; for use in `prepare`.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range takes integers; with CLOSE_RANGE_CLOEXEC it closes nothing now.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first as u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
