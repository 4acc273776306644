//! Starting one child: its program, its jail, and exactly its descriptors.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: gives a child a descriptor that is
//! not in this file.

pub mod cgroup;
pub mod cgroup_record;
pub mod core_copy;
pub mod core_dumps;
pub mod inheritance;
pub mod jails;
pub mod libraries;
pub mod listeners;
pub mod living;
pub mod program;
pub mod reaper;
pub mod uid_range;
pub mod uids;

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Config, Service, Site};
use sys::inherit::{CONTROL, LOG};
use sys::notify::Listener;
use sys::process::{Child, Program, StartError};
use wire::Role;

use crate::components::stderr_drain::Stderr;
use crate::directories;
use crate::error::{Error, at, during};
use crate::spawn::cgroup::{Cgroups, Group};
use crate::spawn::core_dumps::CoreDumps;
use crate::spawn::jails::Filters;
use crate::spawn::libraries::Answers;
use crate::spawn::reaper::Reaper;
use crate::supervisor::process_table::ProcessSpec;

/// Where a filter finds the channel from which it takes bundles, and the one to which it passes them on: the contract
/// with whoever writes one.
const BUNDLES: i32 = 3;
const ONWARD: i32 = 4;
/// LIMIT: processes and threads of a filter: as many as a service has that says nothing else.
const FILTER_PROCESSES: u32 = 256;

/// What every start needs.
#[derive(Debug)]
pub struct SpawnContext {
    /// The configuration.
    pub config: Config,
    /// The empty directory that is the root of our own roles; `None` in a rootless run.
    pub empty_root: Option<OwnedFd>,
    /// The configuration's folder, where services start.
    pub directory: OwnedFd,
    /// Where the programs of the roles are.
    pub roles_folder: std::path::PathBuf,
    /// `/dev/null`.
    pub null: OwnedFd,
    /// The launcher itself, as its children watch it.
    pub launcher: jail::Launcher,
    /// The filters of system calls.
    pub filters: Filters,
    /// Where core files are kept.
    pub core_dumps: CoreDumps,
    /// What ends the programs of others with this launcher; before the control groups, in which it is.
    pub reaper: Reaper,
    /// Where control groups are made.
    pub cgroups: Cgroups,
    /// Whether a process may be started without a layer that this machine cannot apply.
    pub degrades: bool,
    /// The layers that processes are started without.
    pub without: RefCell<Vec<&'static str>>,
    /// What the loaders of services' programs have answered.
    pub answers: Answers,
    /// How many processes were started.
    pub started: Cell<u64>,
    /// The filters, in the order of their chain; see [`chain`].
    pub chain: Vec<Service>,
}

/// A child that was started, with the launcher's ends of its channels.
#[derive(Debug)]
pub struct Started {
    /// The child.
    pub child: Child,
    /// Its control channel; a filter has none.
    pub control: Option<OwnedFd>,
    /// What the logger reads of it.
    pub log: Option<OwnedFd>,
    /// What it writes to standard error.
    pub stderr: Stderr,
    /// Its control group, to be kept until it has ended.
    pub group: Group,
    /// Where its calls arrive that a broker answers.
    pub calls: Option<Listener>,
    /// Where it may write a core file.
    pub core_folder: Option<OwnedFd>,
}

/// A child in its jail.
#[derive(Debug)]
pub struct Jailed {
    /// The child.
    pub child: Child,
    /// Its control group, to be kept until it has ended.
    pub group: Group,
    /// Where its calls arrive that a broker answers.
    pub calls: Option<Listener>,
    /// Where it may write a core file.
    pub core_folder: Option<OwnedFd>,
}

impl SpawnContext {
    /// What every start of a process needs.
    ///
    /// `empty_root` is the root of our own roles and `None` in a rootless run; services start in `directory`; core files
    /// are kept below `state`.
    pub fn new(
        config: Config,
        empty_root: Option<OwnedFd>,
        directory: OwnedFd,
        state: &Path,
        cgroups: Cgroups,
    ) -> Result<Self, Error> {
        let null = File::options().read(true).write(true).open("/dev/null");
        Ok(Self {
            degrades: empty_root.is_none() || config.server.isolation == config::Isolation::Degraded,
            empty_root,
            directory,
            launcher: jail::Launcher::this().map_err(during("open this process's own pidfd"))?,
            filters: Filters::default(),
            reaper: Reaper::default(),
            core_dumps: CoreDumps::below(state),
            cgroups,
            without: RefCell::new(left_out(&config)),
            answers: Answers::default(),
            started: Cell::new(0),
            chain: chain(&config),
            roles_folder: program::roles_folder()?,
            null: null.map_err(during("open /dev/null"))?.into(),
            config,
        })
    }

    /// Starts a process for `spec`.
    pub fn start(&self, spec: &ProcessSpec) -> Result<Started, Error> {
        let pair = || sys::seqpacket::pair().map_err(during("make a channel"));
        let (control, its_control) = pair()?;
        let (stderr, its_stderr) = standard_error()?;
        let mut descriptors = vec![
            (duplicate(&self.null)?, 0),
            (duplicate(&self.null)?, 1),
            (its_stderr, 2),
            (its_control, CONTROL),
        ];
        let mut log = None;
        if spec.role != Role::Logger {
            let (reading, writing) = pair()?;
            log = Some(reading);
            descriptors.push((writing, LOG));
        }
        let program = self.program(spec)?;
        let Jailed { child, group, calls, core_folder } = self.start_in_jail(spec, &program, &descriptors)?;
        Ok(Started { child, control: Some(control), log, stderr, group, calls, core_folder })
    }

    /// Starts the filter of `spec`, which takes from `bundles` and passes on to `onward`.
    pub fn start_filter(
        &self,
        spec: &ProcessSpec,
        bundles: OwnedFd,
        onward: OwnedFd,
    ) -> Result<Started, Error> {
        let (stderr, its_stderr) = standard_error()?;
        let descriptors = vec![
            (duplicate(&self.null)?, 0),
            (duplicate(&self.null)?, 1),
            (its_stderr, 2),
            (bundles, BUNDLES),
            (onward, ONWARD),
        ];
        let Jailed { child, group, calls, core_folder } =
            self.start_in_jail(spec, &self.program(spec)?, &descriptors)?;
        Ok(Started { child, control: None, log: None, stderr, group, calls, core_folder })
    }

    /// Starts `program` in the jail of `spec`; where degraded isolation allows it, without layers that fail.
    pub fn start_in_jail(
        &self,
        spec: &ProcessSpec,
        program: &Program,
        descriptors: &[(OwnedFd, i32)],
    ) -> Result<Jailed, Error> {
        loop {
            let (group, joins) = self.group(spec)?;
            let inherited = descriptors
                .iter()
                .map(|(fd, number)| Ok((duplicate(fd)?, *number)))
                .collect::<Result<_, _>>()?;
            let (calls, its_calls) = self.calls_of(spec)?.unzip();
            let core_folder = self.core_folder(spec)?;
            let jail = self.jail(spec, &program.file, inherited, joins, its_calls, core_folder.as_ref())?;
            match sys::process::start(program, jail.pids(), || jail::enter(&jail)) {
                Ok(child) => {
                    // Nothing is there if it was started without a filter.
                    let calls = calls.and_then(|calls| Listener::take_over(calls).ok().flatten());
                    if matches!(spec.role, Role::Service | Role::Filter)
                        && let Err(error) = self.reap_with_launcher(&child)
                    {
                        child.end();
                        return Err(error);
                    }
                    return Ok(Jailed { child, group, calls, core_folder });
                }
                Err(failure) => self.do_without(failure)?,
            }
        }
    }

    /// A channel on which a process that has network hands over where its calls arrive, if `spec` is such a one.
    fn calls_of(&self, spec: &ProcessSpec) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
        let granted = self.service(spec).is_some_and(|(_, service)| service.network.is_granted());
        granted.then(sys::seqpacket::pair).transpose().map_err(during("make a channel"))
    }

    /// Notes the layer that failed as one to do without, or fails.
    fn do_without(&self, failure: StartError) -> Result<(), Error> {
        let layer = jail::LAYERS.iter().find(|layer| layer.name == failure.step && !layer.mandatory);
        match layer {
            Some(layer) if self.degrades => {
                self.without.borrow_mut().push(layer.name);
                Ok(())
            }
            _ => Err(Error::Start(failure)),
        }
    }

    fn group(&self, spec: &ProcessSpec) -> Result<(Group, Vec<OwnedFd>), Error> {
        self.started.set(self.started.get() + 1);
        let name = format!("{}.{}", spec.title().replace([' ', '/'], "."), self.started.get());
        let share = self.share(spec);
        let missing = self.cgroups.missing(&share);
        if !missing.is_empty() && !self.degrades {
            return Err(Error::NotHeld { controllers: missing.join(", ") });
        }
        self.cgroups.group(&name, &share).map_err(during("make a control group"))
    }

    fn program(&self, spec: &ProcessSpec) -> Result<Program, Error> {
        if let Some((command, path)) = self.worker(spec) {
            let file = program::worker_program(path, &self.config.dir, spec.identity)?;
            let title = text(&format!("bulkhead: {}", spec.title()))?;
            let words = command.iter().skip(1).map(|word| text(word)).collect::<Result<Vec<_>, _>>()?;
            return Ok(Program { file, arguments: [vec![title], words].concat(), environment: vec![] });
        }
        let Some(service) = self.guest(spec) else {
            let file = program::role_program(&self.roles_folder, spec.role.name())?;
            let title = text(&format!("bulkhead: {}", spec.title()))?;
            return Ok(Program { file, arguments: vec![title], environment: vec![] });
        };
        let open = match spec.role {
            Role::Filter => program::filter_program,
            _ => program::service_program,
        };
        let file = open(&service.program, &self.config.dir, spec.identity)?;
        let arguments = service.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let environment = service
            .environment
            .iter()
            .map(|(name, value)| text(&format!("{name}={value}")))
            .collect::<Result<_, _>>()?;
        Ok(Program { file, arguments, environment })
    }

    /// The site and the service that `spec` stands for, if it is a service.
    pub fn service(&self, spec: &ProcessSpec) -> Option<(&Site, &Service)> {
        let site = self.config.sites.get(usize::from(spec.site))?;
        (spec.role == Role::Service).then(|| (site, &site.services[spec.index]))
    }

    /// The program of the operator's that is the worker of the site of `spec`.
    pub fn worker(&self, spec: &ProcessSpec) -> Option<&(Vec<String>, std::path::PathBuf)> {
        let site = self.config.sites.get(usize::from(spec.site)).filter(|_| spec.role == Role::Site)?;
        site.worker.program.as_ref()
    }

    /// The program of the operator's that `spec` runs in a jail of its own, if it runs one.
    pub fn guest(&self, spec: &ProcessSpec) -> Option<&Service> {
        match spec.role {
            Role::Filter => self.chain.get(spec.index),
            _ => self.service(spec).map(|(_, service)| service),
        }
    }

    /// A directory for a role that works below it; as root, a view of it that has nothing above.
    pub(crate) fn view_of(&self, path: &Path) -> Result<OwnedFd, Error> {
        let directory = directories::directory(path)?;
        if self.empty_root.is_none() || self.without.borrow().contains(&"root") {
            return Ok(directory);
        }
        jail::view(&directory, jail::Mode::Read).map_err(at("make a view of", path))
    }
}

/// The layers that the operator takes away.
fn left_out(config: &Config) -> Vec<&'static str> {
    let named = |layer: &&jail::Layer| config.server.danger_without.iter().any(|name| name == layer.name);
    jail::LAYERS.iter().filter(named).map(|layer| layer.name).collect()
}

/// The filters of a configuration as jails are made for them: as for services without network.
pub fn chain(config: &Config) -> Vec<Service> {
    let filters = config.conditioning.filters.iter().enumerate();
    let service = |(index, filter): (usize, &config::Filter)| Service {
        name: format!("filter {index}"),
        path: String::new(),
        command: filter.command.clone(),
        program: filter.program.clone(),
        read: filter.read.clone(),
        memory_max: None,
        memory_high: None,
        processes_max: FILTER_PROCESSES,
        core_max: None,
        cpu_percent: None,
        network: config::Network::default(),
        jit: filter.jit,
        label: None,
        takes_connections: false,
        requests: None,
        environment: Vec::new(),
    };
    filters.map(service).collect()
}

/// A child's standard error: the launcher's ends, and the child's.
fn standard_error() -> Result<(Stderr, OwnedFd), Error> {
    let (reading, writing) = io::pipe().map_err(during("make a pipe"))?;
    let its = duplicate(&writing)?;
    Ok((Stderr::new(reading.into(), writing.into()), its))
}

/// A word of an argument vector or an environment.
pub fn text(word: &str) -> Result<CString, Error> {
    CString::new(word).map_err(|error| during("pass an argument")(io::Error::other(error)))
}

/// Another descriptor of the same open file, for a child.
pub fn duplicate(descriptor: &impl std::os::fd::AsFd) -> Result<OwnedFd, Error> {
    descriptor.as_fd().try_clone_to_owned().map_err(during("duplicate a descriptor"))
}
