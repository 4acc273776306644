//! The jail of each spec, from the configuration: what it sees, what it may reach, what it may call.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration, and directories that the operator named.
//! Never: gives a process a file, a port or a system call that is not in this file or in the jail's policies.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use config::Service;
use jail::policy::Policy;
use jail::{Access, Bind, Jail, Limits, MountTemplate, Network, Root};
use wire::Role;

use crate::error::{Error, during};
use crate::roles;
use crate::spawn::Origin;
use crate::spawn::cgroup::{CpuWeight, Share};
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::core_dumps;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::uid_processes::{ROLE_THREADS, processes_of_uid};
use crate::spawn::view::View;

/// LIMIT: bytes of a service's private `/tmp`; it counts as the service's memory where a control group counts it.
const TEMPORARY_BYTES: u64 = 64 << 20;
/// LIMIT: our own roles are one process of one thread each.
const ROLE_PROCESSES: u64 = 8;

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
        let kind = roles::kind(spec.role);
        kind.let_reach(self, spec, (program, origin), &mut view)?;
        if let Some(folder) = core_folder.filter(|_| service.is_some()) {
            self.let_guest_dump(folder, &mut view)?;
        }
        let mut without = self.without.borrow().clone();
        without.extend(kind.without());
        let root = self.template().map(|template| self.root(service, template, view.binds));
        let directory =
            (root.is_none() && service.is_some()).then(|| duplicate(&self.directory)).transpose()?;
        let policy = kind.policy(self, spec);
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
            limits: self.limits_of(spec),
            cgroups,
            network,
            reach: view.reach,
            oom_score: Some(self.oom_score(spec.role.oom_step())),
            filter: self.filters.get(policy)?,
            calls,
            label: service.and_then(|service| service.program_label.clone()),
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

    /// The folder into which a process of `spec` may write core files, if the operator wants them.
    pub fn core_folder(&self, spec: &ProcessSpec) -> Result<Option<OwnedFd>, Error> {
        let core_max = self.service(spec).and_then(|(_, service)| service.core_max);
        core_max.zip(spec.identity).map(|(max, identity)| core_dumps::folder(identity, max)).transpose()
    }

    /// What a process of a spec may use.
    pub fn limits_of(&self, spec: &ProcessSpec) -> Limits {
        let mut limits = self.limits_of_role(spec);
        roles::kind(spec.role).limit(self, spec, &mut limits);
        limits
    }

    /// What a program of ours may use that works under the uid of a spec.
    pub fn limits_of_role(&self, spec: &ProcessSpec) -> Limits {
        // A connection of a site may need a descriptor to its file and one to a service beside its own; the
        // logger holds two for each process.
        let per_connection = if spec.role == Role::Site { 3 } else { 1 };
        Limits {
            descriptors: match spec.role {
                Role::Logger | Role::Gate => u64::from(u32::MAX),
                _ => u64::from(self.config.limits.connections) * per_connection + 256,
            },
            core_bytes: 0,
            processes: processes_of_uid(ROLE_THREADS),
            memory_bytes: None,
            cpu_seconds: None,
            file_bytes: None,
        }
    }

    /// Bytes of bodies that a worker of a site may keep in its file.
    pub(crate) fn spool_bytes(&self, spec: &ProcessSpec) -> u64 {
        let site = self.config.sites.get(usize::from(spec.site));
        site.and_then(|site| site.spool_bytes(&self.config.limits)).unwrap_or(0)
    }

    /// What a spec may use of the machine, as a control group counts it.
    pub fn share(&self, spec: &ProcessSpec) -> Share {
        let guest = self.guest(spec);
        let cpu_weight = cpu_weight(spec.role, guest.is_some_and(|service| service.takes_connections));
        let mut share = Share { processes_max: ROLE_PROCESSES, cpu_weight, ..Share::default() };
        roles::kind(spec.role).share(self, spec, &mut share);
        share
    }
}

/// How much of a processor a process gets that others want as well; `None` for what most get.
///
/// A site's worker carries the requests of all services of its site. With no more than each of them has, it would lose
/// the processor to a service at each request that it sends. The gate carries those of all sites: with less than this,
/// clients of one site would wait for the worker of another.
fn cpu_weight(role: Role, takes_connections: bool) -> Option<CpuWeight> {
    let times = match role {
        // Connections go to it past the site's worker, and it keeps up with the gate.
        Role::Service if takes_connections => Role::Gate.facts().cpu_weight,
        role => role.facts().cpu_weight,
    };
    (times > 1).then(|| CpuWeight::times(times))
}
