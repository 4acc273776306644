//! The jail that every child of the launcher is in before it executes its program: a list of layers.
//!
//! Runs in: a child of the launcher, as root, between fork and exec (as the ordinary user in a rootless run).
//! Sees no untrusted bytes. Never: goes on after a layer failed; the program is then not executed.
//!
//! Layers are applied in the order of [`LAYERS`]; each is a function of its own that can be tested and reported
//! by its name. A layer that needs root is left out of a rootless run, and [`missing`] names it.

mod confine;
mod identity;
mod landlock;
mod layers;
mod namespaces;
pub mod policy;
mod privileges;
mod root;
mod template;

pub use confine::Filter;
pub use identity::Identity;
pub use landlock::{Access, Ports, Reach};
pub use layers::{LAYERS, Layer};
pub use root::{Bind, Mode, Root, memory, view};
pub use template::MountTemplate;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// What the jail of one process is made of.
#[derive(Debug)]
pub struct Jail {
    /// The launcher, whose death ends the process.
    pub launcher: Launcher,
    /// The uid and gid, which nobody shares; `None` in a rootless run.
    pub identity: Option<Identity>,
    /// What it sees of the file system; `None` leaves the machine's.
    pub root: Option<Root>,
    /// The directory that it starts in, if its root is the machine's; with a `root` of its own it is refused.
    pub directory: Option<OwnedFd>,
    /// Descriptors and the numbers at which the program finds them; all others are closed.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Its resource limits.
    pub limits: Limits,
    /// The `cgroup.procs` files of the control groups that it joins.
    pub cgroups: Vec<OwnedFd>,
    /// Whether it keeps the machine's network, to use what [`Reach::ports`] grants.
    pub network: Network,
    /// Which files and ports Landlock lets it reach.
    pub reach: Reach,
    /// Its `oom_score_adj`; `None` leaves the launcher's.
    pub oom_score: Option<i32>,
    /// The system calls that it may make.
    pub filter: Filter,
    /// Where the listener of the calls goes that a broker answers, if the filter has any such calls
    /// ([`sys::notify::Listener::take_over`]).
    pub calls: Option<OwnedFd>,
    /// The label that SELinux or AppArmor puts on its program.
    pub label: Option<String>,
    /// Names of layers that are not applied: what the operator took away, or what this machine does not have.
    pub without: Vec<&'static str>,
}

impl Jail {
    /// A jail without a uid, a root, descriptors, a network, files and ports: whoever starts a process adds what the
    /// process is to have.
    pub fn new(launcher: Launcher, limits: Limits, filter: Filter) -> Self {
        Self {
            launcher,
            identity: None,
            root: None,
            directory: None,
            descriptors: Vec::new(),
            limits,
            cgroups: Vec::new(),
            network: Network::None,
            reach: Reach::default(),
            oom_score: None,
            filter,
            calls: None,
            label: None,
            without: Vec::new(),
        }
    }
}

/// Resource limits of one process (`setrlimit`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open descriptors.
    pub descriptors: u64,
    /// Bytes of a core file; 0 for none.
    pub core_bytes: u64,
    /// Processes and threads of its uid; not set in a rootless run, where the uid is shared.
    pub processes: u64,
    /// Private writable memory in bytes (`RLIMIT_DATA`: the address space may be larger, as runtimes that only
    /// reserve it need); `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// Bytes of a file that it writes to, whichever; `None` for no limit.
    pub file_bytes: Option<u64>,
    /// Seconds of a processor's time, after which it is ended; `None` for no limit.
    pub cpu_seconds: Option<u64>,
}

/// Which network a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One of its own with no interface that is up: nothing can be reached, and nobody reaches it.
    None,
    /// The machine's.
    Host,
}

/// The launcher, as its children know it: by a descriptor, since in a PID namespace of their own it has no pid.
#[derive(Debug)]
pub struct Launcher(OwnedFd);

impl Launcher {
    /// The calling process.
    ///
    /// # Errors
    /// The kernel is older than 5.3.
    pub fn this() -> io::Result<Self> {
        let own = rustix::process::getpid();
        Ok(Self(rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())?))
    }

    /// The same launcher, for another jail.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Whether it is gone.
    fn is_gone(&self) -> io::Result<bool> {
        let mut polled = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(rustix::event::poll(&mut polled, Some(&now))? != 0)
    }
}

impl Jail {
    /// Whether `layer` is to be applied.
    fn applies(&self, layer: &Layer) -> bool {
        (self.identity.is_some() || !layer.needs_root) && !self.without.contains(&layer.name)
    }

    /// The highest number of a descriptor that a layer needs ([`sys::process::begin_start`]).
    pub fn highest_descriptor(&self) -> RawFd {
        // Each field is named, so that nobody forgets one that is new.
        let Self { launcher, root, directory, descriptors, cgroups, reach, calls, .. } = self;
        let Self {
            identity: _, limits: _, network: _, oom_score: _, filter: _, label: _, without: _, ..
        } = self;
        let template = root.iter().map(|root| root.template.number());
        let root = root.iter().flat_map(|root| root.binds.iter().map(|bind| &bind.tree));
        let all = std::iter::once(&launcher.0)
            .chain(root)
            .chain(directory)
            .chain(descriptors.iter().map(|(descriptor, _)| descriptor))
            .chain(cgroups)
            .chain(reach.paths.iter().map(|(path, _)| path))
            .chain(calls);
        all.map(AsRawFd::as_raw_fd).chain(template).max().unwrap_or_default()
    }

    /// Which processes it is to see; for the call that makes the child, as no later one can change that.
    pub fn pids(&self) -> sys::process::Pids {
        let own = LAYERS.iter().any(|layer| layer.name == layers::PIDS && self.applies(layer));
        if own { sys::process::Pids::Own } else { sys::process::Pids::Shared }
    }
}

/// Builds the jail around the calling process.
///
/// # Errors
/// The name of the layer that failed, and what the kernel said.
pub fn enter(jail: &Jail) -> Result<(), (&'static str, io::Error)> {
    for layer in LAYERS {
        if jail.applies(layer) {
            (layer.apply)(jail).map_err(|error| (layer.name, error))?;
        }
    }
    Ok(())
}

/// The names of the layers that a rootless run does without.
pub fn missing(root: bool) -> Vec<&'static str> {
    LAYERS.iter().filter(|layer| layer.needs_root && !root).map(|layer| layer.name).collect()
}
