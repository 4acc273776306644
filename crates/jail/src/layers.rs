//! The layers, in the order in which they are applied.
//!
//! Runs in: a child of the launcher between fork and exec. Sees no untrusted bytes. Never: opens anything by
//! name; what a layer needs is a descriptor that the launcher opened.

use std::io;

use crate::Jail;

/// One layer of the jail.
#[derive(Debug)]
pub struct Layer {
    /// Its name, as `bulkhead status` shows it.
    pub name: &'static str,
    /// Whether only root can apply it.
    pub needs_root: bool,
    /// Applies it to the calling process.
    pub apply: fn(&Jail) -> io::Result<()>,
}

impl Layer {
    /// Whether this layer is to be applied in `jail`.
    pub(crate) fn applies_to(&self, jail: &Jail) -> bool {
        jail.identity.is_some() || !self.needs_root
    }
}

const fn layer(name: &'static str, needs_root: bool, apply: fn(&Jail) -> io::Result<()>) -> Layer {
    Layer { name, needs_root, apply }
}

/// Every layer. Descriptors first, as everything after needs none; ids last but for what they do not hinder.
pub const LAYERS: &[Layer] = &[
    layer("descriptors", false, descriptors),
    layer("session", false, session),
    layer("rlimits", false, rlimits),
    layer("root", true, root),
    layer("directory", false, directory),
    layer("bounding set", true, bounding_set),
    layer("identity", true, identity),
    layer("capabilities", false, capabilities),
    layer("no_new_privs", false, no_new_privs),
    layer("parent death", false, parent_death),
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

/// A session of its own (no terminal to push input into), and files that only their owner may read.
fn session(_: &Jail) -> io::Result<()> {
    // SAFETY: both take no pointers; setsid fails only for a group leader, which a forked child is not.
    unsafe {
        libc::umask(0o077);
        check(libc::setsid())
    }
}

fn rlimits(jail: &Jail) -> io::Result<()> {
    limit(libc::RLIMIT_NOFILE, jail.limits.descriptors)?;
    // A core file would hold what the process held; none is written.
    limit(libc::RLIMIT_CORE, 0)?;
    if jail.identity.is_some() {
        limit(libc::RLIMIT_NPROC, jail.limits.processes)?;
    }
    jail.limits.memory_bytes.map_or(Ok(()), |bytes| limit(libc::RLIMIT_DATA, bytes))
}

/// Sets a resource limit, no higher than it was.
fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is a writable rlimit for the first call and a readable one for the second.
    unsafe {
        check(libc::getrlimit(resource, &raw mut now))?;
        let value = value.min(now.rlim_max);
        now = libc::rlimit { rlim_cur: value, rlim_max: value };
        check(libc::setrlimit(resource, &raw const now))
    }
}

fn root(jail: &Jail) -> io::Result<()> {
    let Some(root) = &jail.root else { return Ok(()) };
    rustix::process::fchdir(root)?;
    rustix::process::chroot(".")?;
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

/// Empties the bounding set, so that no program file can give a capability back, and locks the rule that uid 0
/// has none by itself.
fn bounding_set(_: &Jail) -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: these operations of prctl take integers only.
        unsafe {
            if libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) != 1 {
                continue;
            }
            check(libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0))?;
        }
    }
    let noroot_locked = 0b11;
    // The kernel is to clear capabilities when the uid changes, as it does by itself; nobody may turn that off.
    let setuid_fixup_on_locked = 1 << 3;
    let keep_caps_off_locked = 1 << 5;
    let no_ambient_locked = 0b11 << 6;
    let bits = noroot_locked | setuid_fixup_on_locked | keep_caps_off_locked | no_ambient_locked;
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, bits, 0, 0, 0) })
}

fn identity(jail: &Jail) -> io::Result<()> {
    jail.identity.map_or(Ok(()), crate::Identity::assume)
}

/// Empties the permitted, effective, inheritable and ambient sets.
fn capabilities(_: &Jail) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // Two times permitted, effective, inheritable: 64 capabilities in words of 32.
    let none = [0_u32; 6];
    // SAFETY: the header is the kernel's `__user_cap_header_struct`, and version 3 makes it read two
    // `__user_cap_data_struct` of three words each, which is what `none` is.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    check(result as i32)?;
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) })
}

fn no_new_privs(_: &Jail) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// Ends the process with the launcher. After the change of ids, which would undo it.
fn parent_death(_: &Jail) -> io::Result<()> {
    // SAFETY: prctl takes integers here, and getppid nothing.
    let parent = unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        libc::getppid()
    };
    // A launcher that died before the call above sends nothing; its child then has another parent, whose death
    // would be meant. `PARENT` is the launcher's own pid as it was before the fork.
    let launcher = PARENT.load(std::sync::atomic::Ordering::Relaxed);
    if launcher != 0 && parent != launcher {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// The launcher's pid, inherited by every child's memory at fork.
pub(crate) static PARENT: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// Notes the calling process as the launcher, whose death ends every child.
pub fn note_launcher() {
    // SAFETY: getpid takes nothing.
    PARENT.store(unsafe { libc::getpid() }, std::sync::atomic::Ordering::Relaxed);
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
