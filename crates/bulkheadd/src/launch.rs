//! Starting one child: its program, its jail, and exactly its descriptors.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: gives a child a descriptor that is
//! not in this file.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Config, Service, Site};
use sys::inherit::{CONTROL, LOG};
use sys::notify::Listener;
use sys::process::{Child, Program, StartError};
use wire::Role;

use crate::cgroups::{Cgroups, Group};
use crate::cores::Cores;
use crate::error::{Error, at, during};
use crate::jails::Filters;
use crate::reaper::Reaper;
use crate::roster::Post;
use crate::runtime::Answers;
use crate::spill::Stderr;
use crate::{places, program};

/// Where a filter finds the channel from which it takes bundles, and the one to which it passes them on: the contract
/// with whoever writes one.
const BUNDLES: i32 = 3;
const ONWARD: i32 = 4;
/// LIMIT: processes and threads of a filter: as many as a service has that says nothing else.
const FILTER_PROCESSES: u32 = 256;

/// What every start needs.
#[derive(Debug)]
pub struct Ground {
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
    pub cores: Cores,
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
}

/// A child in its jail.
#[derive(Debug)]
pub(crate) struct Jailed {
    pub child: Child,
    pub group: Group,
    /// Where its calls arrive that a broker answers.
    pub calls: Option<Listener>,
}

impl Ground {
    /// Starts a process for `post`.
    pub fn start(&self, post: &Post) -> Result<Started, Error> {
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
        if post.role != Role::Logger {
            let (reading, writing) = pair()?;
            log = Some(reading);
            descriptors.push((writing, LOG));
        }
        let program = self.program(post)?;
        let Jailed { child, group, calls } = self.start_in_jail(post, &program, &descriptors)?;
        Ok(Started { child, control: Some(control), log, stderr, group, calls })
    }

    /// Starts the filter of `post`, which takes from `bundles` and passes on to `onward`.
    pub fn start_filter(&self, post: &Post, bundles: OwnedFd, onward: OwnedFd) -> Result<Started, Error> {
        let (stderr, its_stderr) = standard_error()?;
        let descriptors = vec![
            (duplicate(&self.null)?, 0),
            (duplicate(&self.null)?, 1),
            (its_stderr, 2),
            (bundles, BUNDLES),
            (onward, ONWARD),
        ];
        let Jailed { child, group, calls } = self.start_in_jail(post, &self.program(post)?, &descriptors)?;
        Ok(Started { child, control: None, log: None, stderr, group, calls })
    }

    /// Starts `program` in the jail of `post`; where degraded isolation allows it, without layers that fail.
    pub(crate) fn start_in_jail(
        &self,
        post: &Post,
        program: &Program,
        descriptors: &[(OwnedFd, i32)],
    ) -> Result<Jailed, Error> {
        loop {
            let (group, joins) = self.group(post)?;
            let inherited = descriptors
                .iter()
                .map(|(fd, number)| Ok((duplicate(fd)?, *number)))
                .collect::<Result<_, _>>()?;
            let (calls, its_calls) = self.calls_of(post)?.unzip();
            let jail = self.jail(post, &program.file, inherited, joins, its_calls)?;
            match sys::process::start(program, jail.pids(), || jail::enter(&jail)) {
                Ok(child) => {
                    // Nothing is there if it was started without a filter.
                    let calls = calls.and_then(|calls| Listener::take_over(calls).ok().flatten());
                    if matches!(post.role, Role::Service | Role::Filter)
                        && let Err(error) = self.reap_with_launcher(&child)
                    {
                        child.end();
                        return Err(error);
                    }
                    return Ok(Jailed { child, group, calls });
                }
                Err(failure) => self.do_without(failure)?,
            }
        }
    }

    /// A channel on which a process that has network hands over where its calls arrive, if `post` is such a one.
    fn calls_of(&self, post: &Post) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
        let granted = self.service(post).is_some_and(|(_, service)| service.network.is_granted());
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

    fn group(&self, post: &Post) -> Result<(Group, Vec<OwnedFd>), Error> {
        self.started.set(self.started.get() + 1);
        let name = format!("{}.{}", post.title().replace([' ', '/'], "."), self.started.get());
        let share = self.share(post);
        let missing = self.cgroups.missing(&share);
        if !missing.is_empty() && !self.degrades {
            return Err(Error::NotHeld { controllers: missing.join(", ") });
        }
        self.cgroups.group(&name, &share).map_err(during("make a control group"))
    }

    fn program(&self, post: &Post) -> Result<Program, Error> {
        if let Some((command, path)) = self.worker(post) {
            let file = program::worker_program(path, &self.config.dir, post.identity)?;
            let title = text(&format!("bulkhead: {}", post.title()))?;
            let words = command.iter().skip(1).map(|word| text(word)).collect::<Result<Vec<_>, _>>()?;
            return Ok(Program { file, arguments: [vec![title], words].concat(), environment: vec![] });
        }
        let Some(service) = self.guest(post) else {
            let file = program::role_program(&self.roles_folder, post.role.name())?;
            let title = text(&format!("bulkhead: {}", post.title()))?;
            return Ok(Program { file, arguments: vec![title], environment: vec![] });
        };
        let open = match post.role {
            Role::Filter => program::filter_program,
            _ => program::service_program,
        };
        let file = open(&service.program, &self.config.dir, post.identity)?;
        let arguments = service.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let environment = service
            .environment
            .iter()
            .map(|(name, value)| text(&format!("{name}={value}")))
            .collect::<Result<_, _>>()?;
        Ok(Program { file, arguments, environment })
    }

    /// The site and the service that `post` stands for, if it is a service.
    pub fn service(&self, post: &Post) -> Option<(&Site, &Service)> {
        let site = self.config.sites.get(usize::from(post.site))?;
        (post.role == Role::Service).then(|| (site, &site.services[post.index]))
    }

    /// The program of the operator's that is the worker of the site of `post`.
    pub fn worker(&self, post: &Post) -> Option<&(Vec<String>, std::path::PathBuf)> {
        let site = self.config.sites.get(usize::from(post.site)).filter(|_| post.role == Role::Site)?;
        site.worker.program.as_ref()
    }

    /// The program of the operator's that `post` runs in a jail of its own, if it runs one.
    pub fn guest(&self, post: &Post) -> Option<&Service> {
        match post.role {
            Role::Filter => self.chain.get(post.index),
            _ => self.service(post).map(|(_, service)| service),
        }
    }

    /// A directory for a role that works below it; as root, a view of it that has nothing above.
    pub(crate) fn view_of(&self, path: &Path) -> Result<OwnedFd, Error> {
        let directory = places::directory(path)?;
        if self.empty_root.is_none() || self.without.borrow().contains(&"root") {
            return Ok(directory);
        }
        jail::view(&directory, jail::Mode::Read).map_err(at("make a view of", path))
    }
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
