//! Calls of threads of this very process, answered by another.
//!
//! Runs in: `cargo test`.

use super::*;
use std::fs::File;
use std::sync::mpsc;

/// Runs `caller` in a thread whose calls are answered by `answer`.
fn supervised<T: Send + 'static>(
    calls: &'static [CallKind],
    caller: impl FnOnce() -> T + Send + 'static,
    answer: impl FnOnce(&Listener),
) -> T {
    let install_calls =
        |hand_over: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>| install(calls, hand_over);
    supervised_by(install_calls, caller, answer)
}

/// As [`supervised`], by the filter that `install` installs.
fn supervised_by<T: Send + 'static>(
    install: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> + Send + 'static,
    caller: impl FnOnce() -> T + Send + 'static,
    answer: impl FnOnce(&Listener),
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        install(&mut |fd| sender.send(fd.try_clone_to_owned()?).map_err(io::Error::other)).unwrap();
        caller()
    });
    // A thread's filter is its own; its descriptors are the process's.
    let listener = Listener::new(receiver.recv().unwrap());
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
        &[CallKind::Listen],
        || listen_on(77),
        |listener| {
            let call = listener.receive().unwrap().unwrap();
            assert_eq!((call.kind, call.descriptor(0)), (CallKind::Listen, 77));
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
        &[CallKind::Accept4, CallKind::Listen],
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
    let (path, address, length) = supervised(&[CallKind::Accept], caller, |listener| {
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

fn connecting<T: Send + 'static>(
    caller: impl FnOnce() -> T + Send + 'static,
    answer: impl FnOnce(&Listener),
) -> T {
    supervised_by(|hand_over| install_network_calls(hand_over), caller, answer)
}

fn next(listener: &Listener) -> CallNotification {
    let mut polled = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut polled, None).unwrap();
    listener.receive().unwrap().unwrap()
}

/// Of sockets, only those of IP are somebody else's business; the upper half of an argument is nobody's.
#[test]
fn sockets_of_ip_and_connections_are_notified() {
    let caller = || {
        // SAFETY: the calls take integers, and a null pointer that nobody follows.
        unsafe {
            let local = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            let v4 = libc::syscall(libc::SYS_socket, 1_u64 << 32 | libc::AF_INET as u64, 1_u64, 0_u64);
            let v6 = libc::socket(libc::AF_INET6, libc::SOCK_DGRAM, 0);
            let connected = libc::connect(local, std::ptr::null(), 0);
            libc::close(local);
            (local, v4, v6, connected)
        }
    };
    let (local, v4, v6, connected) = connecting(caller, |listener| {
        for (kind, first) in [(CallKind::Socket, 1 << 32 | 2), (CallKind::Socket, 10)] {
            let call = next(listener);
            assert_eq!((call.kind, call.arguments[0]), (kind, first));
            listener.end(call.id, libc::EACCES).unwrap();
        }
        let call = next(listener);
        assert_eq!(call.kind, CallKind::Connect);
        listener.end(call.id, 0).unwrap();
    });
    assert!(local >= 0 && v4 == -1 && v6 == -1);
    assert_eq!(connected, 0);
}

/// The descriptor is the caller's, by its thread; another number of its own is another descriptor.
#[test]
fn what_a_caller_has_is_copied() {
    let (reader, mut writer) = io::pipe().unwrap();
    let number = reader.as_raw_fd();
    let outcome = connecting(
        // SAFETY: the call takes integers, and a null pointer that nobody follows.
        move || unsafe { libc::connect(number, std::ptr::null(), 0) },
        |listener| {
            let call = next(listener);
            let leader = std::process::id() as i32;
            // The caller is not the first thread of its process.
            assert!(caller::by_leader(call.thread, [1]).is_err());
            for process in [process_of(call.thread, None), caller::by_leader(call.thread, [1, leader])] {
                let process = process.unwrap();
                let copy = copy_descriptor(&process, call.descriptor(0)).unwrap();
                assert!(listener.waits(call.id));
                io::Write::write_all(&mut writer, b"x").unwrap();
                io::Read::read_exact(&mut File::from(copy), &mut [0]).unwrap();
                let missing = copy_descriptor(&process, 1 << 20).unwrap_err();
                assert_eq!(missing.raw_os_error(), Some(libc::EBADF));
            }
            listener.end(call.id, 0).unwrap();
        },
    );
    assert_eq!(outcome, 0);
    drop(reader);
    assert!(process_of(i32::MAX, Some(std::process::id() as i32)).is_err());
}

/// As the runtime of Go does it to its threads all the time.
#[test]
fn a_signal_does_not_interrupt_a_call_whose_answer_is_on_its_way() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an action of noughts but for a handler that does nothing is one; it has no SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
    }
    let outcome = connecting(
        // SAFETY: the call takes integers, and a null pointer that nobody follows.
        || unsafe { libc::connect(-1, std::ptr::null(), 0) },
        |listener| {
            let call = next(listener);
            for _ in 0..20 {
                // SAFETY: the call takes integers.
                unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), call.thread, libc::SIGURG) };
                std::thread::yield_now();
            }
            assert!(listener.waits(call.id), "it was interrupted");
            listener.end(call.id, 0).unwrap();
        },
    );
    assert_eq!(outcome, 0);
}

#[test]
fn a_listener_is_handed_over() {
    let (ours, theirs) = crate::seqpacket::pair().unwrap();
    assert_eq!(Listener::take_over(&ours).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let handed = theirs.try_clone().unwrap();
    let install_and_tell = move |keep: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>| {
        install(&[CallKind::Listen], |listener| hand_over(&handed, listener).and_then(|()| keep(listener)))
    };
    let call = || listen_on(77).is_ok();
    assert!(supervised_by(install_and_tell, call, |listener| {
        let taken = Listener::take_over(&ours).unwrap().unwrap();
        let call = taken.receive().unwrap().unwrap();
        assert!(listener.waits(call.id));
        taken.end(call.id, 0).unwrap();
    }));
    hand_over(&theirs, File::open("/dev/null").unwrap().as_fd()).unwrap();
    assert_eq!(Listener::take_over(&ours).unwrap_err().kind(), io::ErrorKind::InvalidData);
    drop(theirs);
    assert!(Listener::take_over(&ours).unwrap().is_none());
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let own = std::process::id() as i32;
    assert!(read_memory(own, 8, &mut [0; 4]).is_err());
    assert!(write_memory(own, u64::MAX - 64, b"x").is_err());
}
