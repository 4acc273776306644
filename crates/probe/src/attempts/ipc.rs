//! D: System V and POSIX objects, shared memory, and what sockets carry besides bytes.
//!
//! Runs in: the probe. Never: leaves an object behind.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    UCred, recv, send, sendmsg, socketpair,
};
use sys::attempt::{Arg, Errno, calls, memory};

use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, denied, refused, short, succeeded, tried};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('D', "sysv-shm", "shared memory of System V", "seccomp", shm),
    attempt('D', "sysv-sem", "semaphores of System V", "seccomp", sem),
    attempt('D', "sysv-msg", "message queues of System V", "seccomp", msg),
    attempt('D', "sysv-seen", "objects of System V of others", "ipc namespace", seen)
        .refused_anyway("where nobody has any"),
    attempt('D', "posix-mq", "a message queue of POSIX", "seccomp", mq),
    attempt('D', "dev-shm", "shared memory in /dev/shm", "mount namespace", dev_shm),
    attempt('D', "memfd", "a file without a name (memfd)", "seccomp", memfd).either(),
    attempt('D', "memfd-shared", "share memory by a memfd", "seccomp", memfd_shared).either(),
    attempt('D', "credentials", "claim to be another process on a socket", "capabilities", credentials),
    attempt(
        'D',
        "descriptor-flood",
        "put 253 descriptors under way on a socket",
        "nobody: it pays itself",
        flood,
    )
    .either(),
    attempt('D', "out-of-band", "out-of-band bytes on a Unix socket", "nobody: it is its own", out_of_band)
        .either(),
    attempt('D', "channel-reopen", "a second way into its channels", "mount namespace", channels),
];

const PRIVATE: i64 = 0;
const CREATE: i64 = 0o1600;

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

fn shm(_: &Cx<'_>) -> AttemptOutcome {
    match calls::SHMGET.make(&mut [int(PRIVATE), int(4096), int(CREATE)]) {
        Err(errno) => denied(errno, ""),
        Ok(id) => {
            let attached = calls::SHMAT.make(&mut [int(id), int(0), int(0)]);
            let _ = calls::SHMCTL_REMOVE.make(&mut [int(id), int(0), int(0)]);
            tried(attached)
        }
    }
}

fn sem(_: &Cx<'_>) -> AttemptOutcome {
    match calls::SEMGET.make(&mut [int(PRIVATE), int(1), int(CREATE)]) {
        Err(errno) => denied(errno, ""),
        Ok(id) => {
            let _ = calls::SEMCTL_REMOVE.make(&mut [int(id), int(0), int(0), int(0)]);
            succeeded("")
        }
    }
}

fn msg(_: &Cx<'_>) -> AttemptOutcome {
    match calls::MSGGET.make(&mut [int(PRIVATE), int(CREATE)]) {
        Err(errno) => denied(errno, ""),
        Ok(id) => {
            let _ = calls::MSGCTL_REMOVE.make(&mut [int(id), int(0), int(0)]);
            succeeded("")
        }
    }
}

/// Objects that anybody has made, as the kernel lists them.
fn seen(_: &Cx<'_>) -> AttemptOutcome {
    any(["shm", "sem", "msg"], |kind| match std::fs::read_to_string(format!("/proc/sysvipc/{kind}")) {
        Err(error) => tried::<(), _>(Err(error)),
        Ok(list) if list.lines().count() > 1 => succeeded(format!("{} objects", list.lines().count() - 1)),
        Ok(_) => refused("none"),
    })
}

fn mq(_: &Cx<'_>) -> AttemptOutcome {
    let name = format!("bulkhead-probe-{}", std::process::id());
    let create_exclusive = int(0o302);
    match calls::MQ_OPEN.make(&mut [Arg::Text(&name), create_exclusive, int(0o600), Arg::Null]) {
        Err(errno) => denied(errno, ""),
        Ok(_) => tried(calls::MQ_UNLINK.make(&mut [Arg::Text(&name)])),
    }
}

fn dev_shm(_: &Cx<'_>) -> AttemptOutcome {
    let path = format!("/dev/shm/bulkhead-probe-{}", std::process::id());
    let made = std::fs::File::create_new(&path);
    if made.is_ok() {
        let _ = std::fs::remove_file(&path);
    }
    tried(made)
}

fn memfd(_: &Cx<'_>) -> AttemptOutcome {
    tried(rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC))
}

fn memfd_shared(_: &Cx<'_>) -> AttemptOutcome {
    let made = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)
        .and_then(|file| rustix::fs::ftruncate(&file, 4096).map(|()| file))
        .and_then(|file| memory::file_mapped(&file, false));
    tried(made)
}

fn pair(kind: SocketType) -> Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn credentials(_: &Cx<'_>) -> AttemptOutcome {
    let (a, _b) = match pair(SocketType::STREAM) {
        Ok(pair) => pair,
        Err(errno) => return denied(errno, "no pair of sockets"),
    };
    let claimed = UCred {
        pid: rustix::process::Pid::INIT,
        uid: rustix::process::Uid::from_raw(65_534),
        gid: rustix::process::Gid::from_raw(65_534),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmCredentials(claimed));
    tried(sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL))
}

fn flood(_: &Cx<'_>) -> AttemptOutcome {
    /// SCM_MAX_FD.
    const MOST: usize = 253;
    let (a, _b) = match pair(SocketType::STREAM) {
        Ok(pair) => pair,
        Err(errno) => return denied(errno, "no pair of sockets"),
    };
    let many = [a.as_fd(); MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&many));
    tried(sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL))
}

fn out_of_band(_: &Cx<'_>) -> AttemptOutcome {
    let result = pair(SocketType::STREAM).and_then(|(a, b)| {
        send(&a, b"x", SendFlags::OOB | SendFlags::NOSIGNAL)?;
        recv(&b, &mut [0; 1], RecvFlags::OOB)
    });
    tried(result)
}

/// A channel can be opened again only by a name; sockets have none, but pipes do.
fn channels(cx: &Cx<'_>) -> AttemptOutcome {
    let paths: Vec<String> =
        cx.hints.fds.iter().filter(|fd| **fd > 0).map(|fd| format!("/proc/self/fd/{fd}")).collect();
    let found: Vec<&String> =
        paths.iter().filter(|path| crate::look::open(path.as_str(), true).is_ok()).collect();
    if found.is_empty() { refused("none can be opened again") } else { succeeded(short(&found)) }
}
