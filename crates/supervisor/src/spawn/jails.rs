//! The jail of each spec, from the configuration: what it sees, what it may reach, what it may call.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration, and directories that the operator named.
//! Never: gives a process a file, a port or a system call that is not in this file or in the jail's policies.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use config::{Found, Service};
use jail::policy::{Grants, Policy};
use jail::{Access, Bind, Jail, Limits, Mode, MountTemplate, Network, Reach, Root};
use rustix::fs::{FileType, Stat};
use wire::Role;
use wire::data::{GIVEN_UP_MAX, READERS};

use crate::directories;
use crate::error::{Error, at, during};
use crate::setup::data::{DATA_AT, FILES_AT};
use crate::spawn::Origin;
use crate::spawn::cgroup::{CpuWeight, Share};
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::core_dumps;
use crate::spawn::libraries;
use crate::spawn::process_spec::ProcessSpec;

/// LIMIT: bytes of a service's private `/tmp`; it counts as the service's memory where a control group counts it.
const TEMPORARY_BYTES: u64 = 64 << 20;
/// LIMIT: our own roles are one process of one thread each.
const ROLE_PROCESSES: u64 = 8;
/// LIMIT: what a uid has room for of each of them: a thread of its own, one that closes what others have sent, and one more. All
/// together are fewer than would be felt where no control group holds each.
const ROLE_THREADS: u64 = 3;

/// Threads that a data proxy begins with: one for messages, one that keeps time, one that writes, and those that read.
pub(crate) const DATA_PROXY_BEGINS: u64 = 3 + READERS as u64;
/// LIMIT: threads of a data proxy: with those that were given up, and one more.
const DATA_PROXY_THREADS: u64 = DATA_PROXY_BEGINS + GIVEN_UP_MAX as u64 + 1;

/// LIMIT: how often the processes of one post may be there at once, under one uid: those that serve, those that are to take their
/// place, and those that drain, of each reload within `drain_timeout`.
const GENERATIONS: u64 = 64;

/// LIMIT: processes and threads of a uid, if that is less than all of these may have: more would be no limit for a machine.
const UID_PROCESSES_MAX: u64 = 4096;

/// The layers that a broker does without: Landlock forbids to look at processes outside of one's own domain, and a
/// process is known to those alone that share its PID namespace or are above.
const NOT_A_BROKERS: [&str; 2] = ["pid namespace", "landlock"];

/// What programs expect of every machine, and what is harmless to everybody.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The policy of a spec that is no connector and no data proxy: what those do depends on what they have to reach.
fn policy(spec: &ProcessSpec, service: Option<&Service>) -> Policy {
    match spec.role {
        Role::Gate => Policy::Gate,
        Role::Site => Policy::Site,
        Role::Logger => Policy::Logger,
        Role::Admin => Policy::Admin,
        Role::Signer => Policy::Signer,
        Role::Stapler => Policy::Stapler,
        Role::Broker => Policy::Broker,
        Role::Publisher => Policy::Publisher,
        Role::Service | Role::Filter | Role::Connector | Role::DataProxy | Role::Launcher => {
            let network = service.map(|service| &service.network);
            Policy::Service(Grants {
                tcp: network.is_some_and(|network| !network.tcp.is_empty()),
                udp: network.is_some_and(|network| network.udp),
                jit: service.is_some_and(|service| service.jit),
            })
        }
    }
}

impl SpawnContext {
    /// The jail of a new process of `spec`, which executes `program`.
    pub fn jail(
        &self,
        spec: &ProcessSpec,
        (program, origin): (&OwnedFd, Origin),
        descriptors: Vec<(OwnedFd, i32)>,
        cgroups: Vec<OwnedFd>,
        calls: Option<OwnedFd>,
        core_folder: Option<&OwnedFd>,
    ) -> Result<Jail, Error> {
        let service = self.guest(spec);
        let mut view = View { jailed: self.empty_root.is_some(), ..View::default() };
        view.reach.paths.push((duplicate(program)?, Access::Execute));
        match (spec.role, service) {
            (Role::Site, _) => self.let_site_reach(spec, &mut view)?,
            (Role::Connector, _) => self.let_connector_reach(spec, &mut view.reach)?,
            (Role::Stapler, _) => self.let_stapler_reach(&mut view.reach),
            (Role::DataProxy, _) => self.let_data_proxy_reach(spec, &mut view)?,
            // By descriptor alone: there is nothing in its root.
            (Role::Publisher, _) => view.reach.paths.push((self.templates_folder(spec)?, Access::Read)),
            (_, Some(service)) => {
                self.let_service_reach(service, spec, (program, origin), &mut view)?;
                if let Some(folder) = core_folder {
                    self.let_service_dump(folder, &mut view)?;
                }
            }
            _ => {}
        }
        let mut without = self.without.borrow().clone();
        if spec.role == Role::Broker {
            without.extend(NOT_A_BROKERS);
        }
        let root = self.template().map(|template| self.root(service, template, view.binds));
        let directory =
            (root.is_none() && service.is_some()).then(|| duplicate(&self.directory)).transpose()?;
        let policy = match spec.role {
            Role::Connector => self.connector_policy(spec),
            Role::DataProxy => self.data_proxy_policy(spec),
            _ => policy(spec, service),
        };
        let network = match policy {
            Policy::Stapler | Policy::Connector { tcp: true, .. } | Policy::Connector { udp: true, .. } => {
                Network::Host
            }
            _ => Network::None,
        };
        Ok(Jail {
            launcher: self.launcher.again().map_err(during("duplicate a descriptor"))?,
            identity: spec.identity,
            root,
            directory,
            descriptors,
            limits: self.limits_of(spec, service),
            cgroups,
            network,
            reach: view.reach,
            oom_score: Some(self.oom_score(spec.role.oom_step())),
            filter: self.filters.get(policy)?,
            calls,
            label: service.and_then(|service| service.label.clone()),
            without,
        })
    }

    /// Of what roots are made, if processes get roots of their own.
    pub fn template(&self) -> Option<&Rc<MountTemplate>> {
        self.template.as_ref().filter(|_| !self.without.borrow().contains(&"root"))
    }

    fn root(&self, service: Option<&Service>, template: &Rc<MountTemplate>, binds: Vec<Bind>) -> Root {
        Root {
            template: template.clone(),
            binds,
            temporary_bytes: service.map(|_| TEMPORARY_BYTES),
            start_in: match service {
                None => "/".into(),
                Some(service) if service.core_max.is_some() => core_dumps::AT.into(),
                Some(_) => self.config.dir.clone(),
            },
        }
    }

    fn let_site_reach(&self, spec: &ProcessSpec, view: &mut View) -> Result<(), Error> {
        let site = &self.config.sites[usize::from(spec.site)];
        for folder in site.folders() {
            view.reach.paths.push((self.published(folder)?, Access::Read));
        }
        Ok(())
    }

    /// A data proxy gets the folder of its database, if it has one, and nothing beside.
    fn let_data_proxy_reach(&self, spec: &ProcessSpec, view: &mut View) -> Result<(), Error> {
        match self.data_folder(spec)? {
            Some(folder) => view.add_kept(DATA_AT, folder),
            None => Ok(()),
        }
    }

    fn let_service_reach(
        &self,
        service: &Service,
        spec: &ProcessSpec,
        (program, origin): (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        for device in DEVICES {
            view.add(Path::new(device), Access::Write, Mode::Device)?;
        }
        if origin == Origin::Operators || self.empty_root.is_none() {
            for needed in self.needed(service, spec, program)? {
                let found = rustix::fs::fstat(&needed.file).map_err(at("examine", &needed.at))?;
                view.add_opened(&needed.at, (needed.file, is_folder(&found)), needed.access, Mode::Execute)?;
            }
        }
        for path in outermost(&service.read) {
            let mode = if libraries::executes(spec, &path) { Mode::Execute } else { Mode::Read };
            let Found { file, stat, .. } = self.named(&path)?;
            view.add_opened(&path, (file, is_folder(&stat)), Access::Read, mode)?;
        }
        // Last, as a folder of `read` would hide one of these that it has in it.
        for path in outermost(&service.libraries) {
            let folder = self.libraries_folder(service, &path)?;
            view.add_opened(&path, (folder, true), Access::Read, Mode::Execute)?;
        }
        if let Some(path) = self.files_folder(spec) {
            view.add_kept(FILES_AT, self.kept_folder(spec, path)?)?;
        }
        if service.network.is_granted() {
            for path in libraries::NETWORK_FILES.map(Path::new).into_iter().filter(|path| path.exists()) {
                view.add(path, Access::Read, Mode::Read)?;
            }
        }
        Ok(())
    }

    /// The folder into which a process of `spec` may write core files, if the operator wants them.
    pub fn core_folder(&self, spec: &ProcessSpec) -> Result<Option<OwnedFd>, Error> {
        let core_max = self.service(spec).and_then(|(_, service)| service.core_max);
        core_max.zip(spec.identity).map(|(max, identity)| core_dumps::folder(identity, max)).transpose()
    }

    /// Lets a process write core files into `folder`.
    fn let_service_dump(&self, folder: &OwnedFd, view: &mut View) -> Result<(), Error> {
        view.reach.paths.push((duplicate(folder)?, Access::Write));
        view.binds.push(Bind { at: core_dumps::AT.into(), tree: duplicate(folder)?, directory: true });
        Ok(())
    }

    /// What a process of a spec may use.
    pub fn limits_of(&self, spec: &ProcessSpec, service: Option<&Service>) -> Limits {
        // A connection of a site may need a descriptor to its file and one to a service beside its own; the
        // logger holds two for each process.
        let per_connection = if spec.role == Role::Site { 3 } else { 1 };
        Limits {
            descriptors: match spec.role {
                Role::Logger | Role::Gate => u64::from(u32::MAX),
                _ => u64::from(self.config.limits.connections) * per_connection + 256,
            },
            core_bytes: service
                .filter(|_| spec.identity.is_some())
                .and_then(|service| service.core_max)
                .unwrap_or(0),
            processes: processes_of_uid(match (spec.role, service) {
                (Role::DataProxy, _) => DATA_PROXY_THREADS,
                (_, None) => ROLE_THREADS,
                // A broker is one more process of the uid.
                (_, Some(service)) => {
                    let each = u64::from(service.processes_max) + u64::from(service.network.is_granted());
                    each * u64::from(self.messages().workers(spec).max.max(1))
                }
            }),
            memory_bytes: match spec.role {
                Role::DataProxy => self.data_source(spec).map(|source| source.memory_max),
                _ => service.and_then(|service| service.memory_max),
            },
            // SECURITY: with one file that it writes to, and no right to make others, a worker fills no disk.
            cpu_seconds: None,
            file_bytes: (spec.role == Role::Site).then(|| self.spool_bytes(spec)),
        }
    }

    /// Bytes of bodies that a worker of a site may keep in its file.
    fn spool_bytes(&self, spec: &ProcessSpec) -> u64 {
        let site = self.config.sites.get(usize::from(spec.site));
        site.and_then(|site| site.spool_bytes(&self.config.limits)).unwrap_or(0)
    }

    /// What a spec may use of the machine, as a control group counts it.
    pub fn share(&self, spec: &ProcessSpec) -> Share {
        let guest = self.guest(spec);
        let cpu_weight = cpu_weight(spec.role, guest.is_some_and(|service| service.takes_connections));
        match guest {
            Some(service) => Share {
                memory_max: service.memory_max,
                memory_high: service.memory_high,
                processes_max: service.processes_max.into(),
                cpu_percent: service.cpu_percent,
                cpu_weight,
            },
            None if spec.role == Role::DataProxy => Share {
                memory_max: self.data_source(spec).map(|source| source.memory_max),
                processes_max: DATA_PROXY_THREADS,
                cpu_weight,
                ..Share::default()
            },
            None => Share { processes_max: ROLE_PROCESSES, cpu_weight, ..Share::default() },
        }
    }
}

/// How many processes and threads a uid may have, of which those of one post may have so many.
///
/// The kernel counts all processes of the uid (`RLIMIT_NPROC`), and each of the generations that drain has as many as the one that
/// serves. What one process may have is the limit of its control group, where there is one.
fn processes_of_uid(of_post: u64) -> u64 {
    (of_post * GENERATIONS).min(UID_PROCESSES_MAX.max(of_post * 2))
}

/// How much of a processor a process gets that others want as well; `None` for what most get.
///
/// A site's worker carries the requests of all services of its site. With no more than each of them has, it would lose the
/// processor to a service at each request that it sends. The gate carries those of all sites: with less than this, clients of one site
/// would wait for the worker of another.
fn cpu_weight(role: Role, takes_connections: bool) -> Option<CpuWeight> {
    let times = match role {
        // Connections go to it past the site's worker, and it keeps up with the gate.
        Role::Service if takes_connections => Role::Gate.facts().cpu_weight,
        role => role.facts().cpu_weight,
    };
    (times > 1).then(|| CpuWeight::times(times))
}

/// What a process sees and may reach, on the way to its jail.
#[derive(Default)]
struct View {
    /// Whether it gets a root of its own, in which what it sees has to be put.
    jailed: bool,
    binds: Vec<Bind>,
    reach: Reach,
}

impl View {
    /// Lets it reach `path`, which appears at the same place in its root if it has one.
    fn add(&mut self, path: &Path, access: Access, mode: Mode) -> Result<(), Error> {
        let opened = directories::existing(path)?;
        let found = rustix::fs::fstat(&opened).map_err(at("examine", path))?;
        self.add_opened(path, (opened, is_folder(&found)), access, mode)
    }

    /// Lets it write in a folder of its own, which appears as `at` in its root if it has one.
    fn add_kept(&mut self, at_path: &str, folder: OwnedFd) -> Result<(), Error> {
        if self.jailed {
            let tree = jail::view(&folder, Mode::Write).map_err(at("make a view of", Path::new(at_path)))?;
            self.binds.push(Bind { at: at_path.into(), tree, directory: true });
        }
        self.reach.paths.push((folder, Access::Write));
        Ok(())
    }

    /// The same for what is open already, and is a folder or is none.
    fn add_opened(
        &mut self,
        path: &Path,
        (opened, directory): (OwnedFd, bool),
        access: Access,
        mode: Mode,
    ) -> Result<(), Error> {
        if self.jailed {
            let tree = jail::view(&opened, mode).map_err(at("make a view of", path))?;
            self.binds.push(Bind { at: config::lexical(path), tree, directory });
        }
        self.reach.paths.push((opened, access));
        Ok(())
    }
}

fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir()
}

/// The folders that are not in another one of them.
fn outermost(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| config::lexical(folder)).collect();
    folders.sort();
    folders.dedup();
    let all = folders.clone();
    folders.retain(|folder| !all.iter().any(|other| other != folder && folder.starts_with(other)));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_a_post_fit_under_its_uid() {
        assert_eq!((processes_of_uid(1), processes_of_uid(ROLE_THREADS)), (GENERATIONS, 192));
        assert!(processes_of_uid(DATA_PROXY_THREADS) / DATA_PROXY_THREADS >= 10);
        assert_eq!(processes_of_uid(256), UID_PROCESSES_MAX);
        assert_eq!(processes_of_uid(32_768), 65_536, "a successor starts beside it");
    }
}
