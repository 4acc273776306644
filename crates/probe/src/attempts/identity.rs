//! G: becoming somebody else, and standing in for others.
//!
//! Runs in: the probe, on a thread of its own, since raw calls change the ids of one thread only. Never: goes on as
//! somebody else.

use rustix::fs::FileType;
use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
use sys::attempt::{Arg, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, refused, short, succeeded, tried};
use crate::look;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('A', "uid-root", "be root", "identity", uid_root).here(),
    attempt('A', "groups", "a group besides its own", "identity", groups).here(),
    attempt('G', "become-root", "become root (setresuid)", "identity", become_root),
    attempt('G', "become-other", "become another partition (setresuid)", "identity", become_other),
    attempt('G', "become-group", "enter another partition's group (setresgid)", "identity", become_group),
    attempt('G', "set-groups", "enter further groups (setgroups)", "identity", set_groups),
    attempt('G', "client-connection", "a client's connection among the descriptors", "descriptors", client)
        .here(),
];

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

fn uid_root(_: &Cx<'_>) -> AttemptOutcome {
    let detail = format!("uid {}, gid {}", getuid().as_raw(), getgid().as_raw());
    let root =
        [getuid(), geteuid()].iter().any(|uid| uid.is_root()) || getgid().is_root() || getegid().is_root();
    if root { succeeded(detail) } else { refused(detail) }
}

/// Exactly one, which is its own; for root as it is outside of a jail, being in root's group counts.
fn groups(_: &Cx<'_>) -> AttemptOutcome {
    let found: Vec<u32> = match getgroups() {
        Ok(groups) => groups.iter().map(|group| group.as_raw()).collect(),
        Err(errno) => return tried::<(), _>(Err(errno)),
    };
    let own = getegid().as_raw();
    let detail = format!("groups {}", short(&found));
    if found == [own] && own != 0 { refused(detail) } else { succeeded(detail) }
}

/// Runs `act` on a thread of its own; if there can be none, on this one.
pub(super) fn on_a_thread(act: impl Fn() -> AttemptOutcome + Sync) -> AttemptOutcome {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, &act);
        match thread.map(|thread| thread.join()) {
            Ok(Ok(outcome)) => outcome,
            _ => act(),
        }
    })
}

/// Becomes a uid that it is not; root can become anybody, and becomes another one first to be able to fail.
fn become_uid(uid: i64) -> AttemptOutcome {
    let now = i64::from(getuid().as_raw());
    if now == uid {
        // Root, outside of a jail: it is that already.
        return tried(calls::SETRESUID.make(&mut [int(uid), int(uid), int(uid)]));
    }
    let changed = calls::SETRESUID.make(&mut [int(uid), int(uid), int(uid)]);
    if changed.is_ok() && i64::from(getuid().as_raw()) != uid {
        return refused("the call says yes, but nothing changed");
    }
    tried(changed)
}

fn become_root(_: &Cx<'_>) -> AttemptOutcome {
    on_a_thread(|| become_uid(0))
}

/// The neighbour in the table of uids.
fn become_other(_: &Cx<'_>) -> AttemptOutcome {
    on_a_thread(|| become_uid(i64::from(getuid().as_raw()) + 1))
}

fn become_group(_: &Cx<'_>) -> AttemptOutcome {
    let other = i64::from(getgid().as_raw()) + 1;
    on_a_thread(|| tried(calls::SETRESGID.make(&mut [int(other), int(other), int(other)])))
}

fn set_groups(_: &Cx<'_>) -> AttemptOutcome {
    let other = (getgid().as_raw() + 1).to_ne_bytes();
    on_a_thread(|| tried(calls::SETGROUPS.make(&mut [int(1), Arg::Bytes(&other)])))
}

/// A connected socket of the Internet that nobody handed to it for this request.
fn client(cx: &Cx<'_>) -> AttemptOutcome {
    let found: Vec<i32> = look::descriptors_of(FileType::Socket)
        .into_iter()
        .filter(|(number, _)| !cx.hints.fds.contains(number))
        .filter(|(_, socket)| {
            let family = rustix::net::sockopt::socket_domain(socket);
            let inet =
                matches!(family, Ok(rustix::net::AddressFamily::INET | rustix::net::AddressFamily::INET6));
            inet && rustix::net::getpeername(socket).is_ok()
        })
        .map(|(number, _)| number)
        .collect();
    if found.is_empty() { refused("none") } else { succeeded(format!("descriptor {}", short(&found))) }
}
