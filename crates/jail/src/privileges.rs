//! Layers that take privileges away: keyring, bounding set, capabilities, no_new_privs, and the label of a
//! security module.
//!
//! Runs in: a child of the launcher between fork and exec. Sees no untrusted bytes. Never: keeps a capability.

use std::io;

use crate::Jail;

/// A session keyring of its own: the launcher's may hold keys.
pub(crate) fn keyring(_: &Jail) -> io::Result<()> {
    let join_session_keyring = 1;
    // SAFETY: a null name makes the kernel read no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, join_session_keyring, 0) };
    match check(result as i32) {
        // Without key management there is no key to keep.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other,
    }
}

/// Empties the bounding set, so that no program file can give a capability back, and locks the rule that uid 0
/// has none by itself.
pub(crate) fn bounding_set(_: &Jail) -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: this operation of prctl takes integers only.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            // The kernel has no capability of this number.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => other?,
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

/// Empties the permitted, effective, inheritable and ambient sets.
pub(crate) fn capabilities(_: &Jail) -> io::Result<()> {
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

pub(crate) fn no_new_privs(_: &Jail) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

/// Asks the security module that is active to give the program a label of its own.
///
/// Source: Hi-sap, "SELinux domain per worker"; SELinux takes the context, AppArmor the word `exec` and a profile.
pub(crate) fn label(jail: &Jail) -> io::Result<()> {
    let Some(label) = &jail.label else { return Ok(()) };
    // A kernel that was built with AppArmor has its files where it is not active, too; they cannot be read then.
    if std::fs::read("/proc/thread-self/attr/apparmor/current").is_ok() {
        std::fs::write("/proc/thread-self/attr/apparmor/exec", format!("exec {label}"))
    } else {
        std::fs::write("/proc/thread-self/attr/exec", label)
    }
}

/// Where the Yama module lets nobody trace but ancestors, allows the process's broker, which has the same uid as it and
/// is none, to look at what its calls point at; all others are kept away by their uids.
pub(crate) fn let_broker_look() -> io::Result<()> {
    let anybody = -1_i64;
    // SAFETY: takes integers only.
    match check(unsafe { libc::prctl(libc::PR_SET_PTRACER, anybody, 0, 0, 0) }) {
        // The kernel has no such module.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
