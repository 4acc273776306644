//! The jail of a program of the operator's: what its table names.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration, and files and folders that the operator named.
//! Never: lets such a program reach anything else.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use config::{Found, Service};
use jail::policy::Grants;
use jail::{Access, Bind, Limits, Mode};

use crate::error::{Error, at};
use crate::setup::data::FILES_AT;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::core_dumps;
use crate::spawn::libraries;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::uid_processes::processes_of_uid;
use crate::spawn::view::{View, is_folder};

/// What programs expect of every machine, and what is harmless to everybody.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

impl SpawnContext {
    /// Lets a program of the operator's reach what its table names.
    pub(crate) fn let_guest_reach(
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

    /// Lets a process write core files into `folder`.
    pub(crate) fn let_guest_dump(&self, folder: &OwnedFd, view: &mut View) -> Result<(), Error> {
        view.reach.paths.push((duplicate(folder)?, Access::Write));
        view.binds.push(Bind { at: core_dumps::AT.into(), tree: duplicate(folder)?, directory: true });
        Ok(())
    }

    /// What such a program may call beside what each may.
    pub(crate) fn grants(&self, spec: &ProcessSpec) -> Grants {
        let service = self.guest(spec);
        let network = service.map(|service| &service.network);
        Grants {
            tcp: network.is_some_and(|network| !network.tcp.is_empty()),
            udp: network.is_some_and(|network| network.udp),
            jit: service.is_some_and(|service| service.jit),
        }
    }

    /// Limits it as its table says.
    pub(crate) fn limit_guest(&self, spec: &ProcessSpec, limits: &mut Limits) {
        let Some(service) = self.guest(spec) else { return };
        // A broker is one more process of the uid.
        let each = u64::from(service.processes_max) + u64::from(service.network.is_granted());
        limits.processes = processes_of_uid(each * u64::from(self.messages().workers(spec).max.max(1)));
        limits.core_bytes = service.core_max.filter(|_| spec.identity.is_some()).unwrap_or(0);
        limits.memory_bytes = service.memory_max;
    }

    /// Gives it the share of the machine that its table says.
    pub(crate) fn share_with_guest(&self, spec: &ProcessSpec, share: &mut Share) {
        let Some(service) = self.guest(spec) else { return };
        share.memory_max = service.memory_max;
        share.memory_high = service.memory_high;
        share.processes_max = service.processes_max.into();
        share.cpu_percent = service.cpu_percent;
    }
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
