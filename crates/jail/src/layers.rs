//! The layers, in the order in which they are applied.
//!
//! Runs in: a child of the launcher between fork and exec. Sees no untrusted bytes. Never: opens anything by
//! name that a partition could have made; what a layer needs is a descriptor that the launcher opened.

use std::io;

use crate::Jail;
use crate::{confine, landlock, namespaces, privileges, root};

/// One layer of the jail.
#[derive(Debug)]
pub struct Layer {
    /// Its name, as `bulkhead status` shows it.
    pub name: &'static str,
    /// Whether only root can apply it.
    pub needs_root: bool,
    /// Whether a process is never started without it, except where the operator takes it away by name.
    pub mandatory: bool,
    /// Applies it to the calling process.
    pub apply: fn(&Jail) -> io::Result<()>,
}

type Apply = fn(&Jail) -> io::Result<()>;

/// A layer that every process has, whoever starts it.
const fn always(name: &'static str, apply: Apply) -> Layer {
    Layer { name, needs_root: false, mandatory: true, apply }
}

/// A layer that every process has if root starts it.
const fn as_root(name: &'static str, apply: Apply) -> Layer {
    Layer { name, needs_root: true, mandatory: true, apply }
}

/// A layer that degraded isolation does without on a machine that cannot apply it.
const fn able(name: &'static str, needs_root: bool, apply: Apply) -> Layer {
    Layer { name, needs_root, mandatory: false, apply }
}

/// The name of the one layer that the call which makes the child applies.
pub(crate) const PIDS: &str = "pid namespace";

/// Every layer.
///
/// Descriptors first, as everything after needs none; then what only root may do, from the outside in; then the
/// ids; then what any process may do to itself. The limits come late, as other layers open descriptors of numbers
/// that the process may not have; the filter of system calls is last, as it would hinder the others.
pub const LAYERS: &[Layer] = &[
    always("descriptors", descriptors),
    always("session", session),
    able(PIDS, true, namespaces::pids),
    able("cgroup", true, namespaces::cgroup),
    able("ipc namespace", true, namespaces::ipc),
    able("uts namespace", true, namespaces::uts),
    able("network namespace", true, namespaces::network),
    as_root("label", privileges::label),
    able("root", true, root::enter),
    always("directory", directory),
    able("keyring", false, privileges::keyring),
    as_root("bounding set", privileges::bounding_set),
    as_root("identity", identity),
    always("capabilities", privileges::capabilities),
    always("no_new_privs", privileges::no_new_privs),
    always("parent death", parent_death),
    able("landlock", false, landlock::restrict),
    always("rlimits", rlimits),
    able("seccomp", false, confine::apply),
];

/// Places the listed descriptors; all others close at exec.
///
/// INVARIANT: the launcher keeps every number that is placed here occupied, so no descriptor that is still
/// needed (the failure report, the program) is overwritten, and none is placed where it already is.
fn descriptors(jail: &Jail) -> io::Result<()> {
    // First all of them, as what is between two listed numbers is not listed; placing takes the mark off again.
    sys::process::close_on_exec_from(0)?;
    for (descriptor, number) in &jail.descriptors {
        sys::process::place(descriptor, *number)?;
    }
    Ok(())
}

/// A session of its own (no terminal to push input into), files that only their owner may read, and its place among
/// those that the kernel kills when memory runs out.
fn session(jail: &Jail) -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::setsid()?;
    // While the machine's `/proc` is in sight, and with the capability by which the process cannot lower its score
    // later.
    match jail.oom_score.map(sys::oom::set) {
        // A user's own launcher may be one that only root may look into.
        Some(Err(error)) if jail.identity.is_some() || error.kind() != io::ErrorKind::PermissionDenied => {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn rlimits(jail: &Jail) -> io::Result<()> {
    use rustix::process::Resource;
    limit(Resource::Nofile, jail.limits.descriptors)?;
    // A core file holds what the process held: none is written but where the operator asks for it.
    limit(Resource::Core, jail.limits.core_bytes)?;
    // Nobody here needs memory that is never swapped, message queues, or a better priority.
    limit(Resource::Memlock, 0)?;
    limit(Resource::Msgqueue, 0)?;
    limit(Resource::Rtprio, 0)?;
    limit(Resource::Nice, 0)?;
    if jail.identity.is_some() {
        limit(Resource::Nproc, jail.limits.processes)?;
    }
    jail.limits.file_bytes.map_or(Ok(()), |bytes| limit(Resource::Fsize, bytes))?;
    jail.limits.cpu_seconds.map_or(Ok(()), |seconds| limit(Resource::Cpu, seconds))?;
    jail.limits.memory_bytes.map_or(Ok(()), |bytes| limit(Resource::Data, bytes))
}

/// Sets a resource limit, no higher than it was.
fn limit(resource: rustix::process::Resource, value: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let value = Some(now.maximum.map_or(value, |maximum| value.min(maximum)));
    rustix::process::setrlimit(resource, rustix::process::Rlimit { current: value, maximum: value })?;
    Ok(())
}

/// Goes to the directory that the process starts in.
///
/// SECURITY: one that lies outside of the process's root would be a way out: `..` ends at the root only for those
/// who are below it. So a jail has the one or the other.
fn directory(jail: &Jail) -> io::Result<()> {
    let Some(directory) = &jail.directory else {
        return Ok(());
    };
    if jail.root.is_some() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    rustix::process::fchdir(directory)?;
    Ok(())
}

fn identity(jail: &Jail) -> io::Result<()> {
    jail.identity.map_or(Ok(()), crate::Identity::assume)
}

/// Ends the process with the launcher. After the change of ids, which would undo it.
fn parent_death(jail: &Jail) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // A launcher that died before the call above sends nothing.
    if jail.launcher.is_gone()? { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
}
