//! The Landlock layer: which files and ports a process can reach at all, whatever the rest of its jail lets it.
//!
//! Runs in: a child of the launcher between fork and exec, with or without root. Sees no untrusted bytes. Never:
//! fails because the kernel knows fewer kinds of access than this crate, and never succeeds where it knows none.

use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use rustix::fs::{Mode, OFlags};

use crate::Jail;

/// The newest version whose rights are asked for; the kernel grants as many as it has.
const NEWEST: ABI = ABI::V9;

/// What a process may do with a file or with all that is in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read and execute it.
    Execute,
    /// Read it, write it, make and remove files in it; never execute it.
    Write,
    /// Connect to the Unix sockets in it.
    Connect,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            Self::Execute => AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute,
            // Kernels before ABI 9 do not know the right to connect, and let everybody; a rule must grant something.
            Self::Connect => AccessFs::ReadDir | AccessFs::ResolveUnix,
            Self::Write => {
                let never = AccessFs::Execute
                    | AccessFs::MakeChar
                    | AccessFs::MakeBlock
                    | AccessFs::MakeSock
                    | AccessFs::MakeFifo
                    | AccessFs::IoctlDev;
                AccessFs::from_all(NEWEST) & !never
            }
        }
    }
}

/// TCP ports that a process may use.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Those that it may connect to, on any machine.
    pub connect: Vec<u16>,
}

/// What a process may reach.
#[derive(Debug, Default)]
pub struct Reach {
    /// Files and directories; everything else can be neither opened nor listed, made nor removed.
    pub paths: Vec<(OwnedFd, Access)>,
    /// Ports of the network, if it has one.
    pub ports: Ports,
}

/// Shuts everything that is not in the jail's [`Reach`].
///
/// Signals and abstract sockets reach only those who are in the same domain, which is this process and its children.
pub(crate) fn restrict(jail: &Jail) -> io::Result<()> {
    let temporary = has_own_temporary(jail)
        .then(|| rustix::fs::open("/tmp", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
    let status = ruleset(jail, temporary.transpose()?).map_err(|error| reason(&error))?;
    if status == RulesetStatus::NotEnforced {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    Ok(())
}

fn ruleset(jail: &Jail, temporary: Option<OwnedFd>) -> Result<RulesetStatus, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (path, access) in &jail.reach.paths {
        rules = allow(rules, path, *access)?;
    }
    if let Some(temporary) = temporary {
        rules = rules.add_rule(PathBeneath::new(temporary, Access::Write.rights()))?;
    }
    for port in &jail.reach.ports.connect {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Whether `/tmp` is the process's own: it is the machine's, where the root was taken away.
fn has_own_temporary(jail: &Jail) -> bool {
    let root = jail.root.as_ref().filter(|_| jail.identity.is_some() && !jail.without.contains(&"root"));
    root.is_some_and(|root| root.temporary_bytes.is_some())
}

/// What the kernel said, which the error wraps up.
fn reason(error: &landlock::RulesetError) -> io::Error {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(number) = error.downcast_ref().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(number);
        }
        cause = error.source();
    }
    io::Error::other(error.to_string())
}

fn allow(
    rules: RulesetCreated,
    path: &OwnedFd,
    access: Access,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let file =
        rustix::fs::fstat(path).is_ok_and(|stat| !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
    // Rights that only directories have would be refused for a file.
    let rights = if file { access.rights() & AccessFs::from_file(NEWEST) } else { access.rights() };
    rules.add_rule(PathBeneath::new(path, rights))
}
