//! What every start of a process needs: the configuration, the programs, and what processes share.
//!
//! Runs in: the launcher, as root, and the guard. Sees: the checked configuration. Never: starts a process; that is for
//! the modules above.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use config::{Class, Config, Found, Opener, Service, Site};
use jail::MountTemplate;
use wire::{OOM_STEP_MAX, Role};

use crate::error::{Error, at, during};
use crate::opened_files::OpenedFiles;
use crate::spawn::background::Background;
use crate::spawn::cgroup::Cgroups;
use crate::spawn::compiled_filters::CompiledFilters;
use crate::spawn::core_dumps::CoreDumps;
use crate::spawn::failures::Failures;
use crate::spawn::given_programs::OperatorPrograms;
use crate::spawn::libraries::answers::Answers;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::{self, Inspected};
use crate::spawn::reaper::Reaper;
use sys::file_version::FileVersion;

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
    pub roles_folder: PathBuf,
    /// `/dev/null`.
    pub null: OwnedFd,
    /// The launcher itself, as its children watch it.
    pub launcher: jail::Launcher,
    /// The filters of system calls.
    pub filters: CompiledFilters,
    /// Where core files are kept.
    pub core_dumps: CoreDumps,
    /// What ends the programs of others with this launcher; before the control groups, in which it is.
    pub reaper: Reaper,
    /// Where control groups are made.
    pub cgroups: Cgroups,
    /// Where copies of the launcher work.
    pub background: Rc<Background>,
    /// Of what roots are made; `None` where processes get none, as in a rootless run.
    pub template: Option<Rc<MountTemplate>>,
    /// Whether a process may be started without a layer that this machine cannot apply.
    pub degrades: bool,
    /// The launcher's `oom_score_adj`, above which those of its children are.
    pub own_oom_score: i32,
    /// The layers that processes are started without.
    pub without: RefCell<Vec<&'static str>>,
    /// What the inspector has answered, by the program's path.
    pub inspected: RefCell<HashMap<PathBuf, (FileVersion, Inspected)>>,
    /// What was wrong with programs.
    pub failures: Failures<PathBuf>,
    /// Why programs are not started by whom: the titles of specs stand for these.
    pub refusals: Failures<String>,
    /// What the loaders of services' programs have answered.
    pub answers: Answers,
    /// Whether a program is started only if all is known of it: nothing is inspected, asked or copied in the launcher's
    /// loop.
    pub examines_beside: Cell<bool>,
    /// What others have opened for this process, which does not wait for their file systems.
    pub opened: Rc<OpenedFiles>,
    /// Where a copy of a program is put, in a process that makes one beside the loop.
    pub copy_into: Option<OwnedFd>,
    /// What was done with programs of the operator's.
    pub operator_programs: OperatorPrograms,
    /// How many processes were started.
    pub started: Cell<u64>,
    /// The filters of each generation that runs, in the order of their chain; see [`chain`].
    pub chains: HashMap<u32, Vec<Service>>,
}

impl SpawnContext {
    /// What every start of a process needs.
    ///
    /// `empty_root` is the root of our own roles and `None` in a rootless run; services start in `directory`; core
    /// files are kept below `state`.
    pub fn new(
        config: Config,
        empty_root: Option<OwnedFd>,
        directory: OwnedFd,
        state: &Path,
        cgroups: Cgroups,
    ) -> Result<Self, Error> {
        Self::with_roles(program::roles_folder()?, config, empty_root, directory, state, cgroups)
    }

    /// The same, with the programs of the roles in this folder.
    pub(crate) fn with_roles(
        roles_folder: PathBuf,
        config: Config,
        empty_root: Option<OwnedFd>,
        directory: OwnedFd,
        state: &Path,
        cgroups: Cgroups,
    ) -> Result<Self, Error> {
        let null = File::options().read(true).write(true).open("/dev/null");
        let mut context = Self {
            degrades: empty_root.is_none() || config.server.isolation == config::Isolation::Degraded,
            empty_root,
            directory,
            launcher: jail::Launcher::this().map_err(during("open this process's own pidfd"))?,
            filters: CompiledFilters::default(),
            reaper: Reaper::default(),
            core_dumps: CoreDumps::below(state),
            background: Rc::new(Background::of(&cgroups)),
            cgroups,
            own_oom_score: sys::oom::own().map_err(during("read this process's oom_score_adj"))?,
            without: RefCell::new(left_out(&config)),
            inspected: RefCell::default(),
            failures: Failures::default(),
            refusals: Failures::default(),
            answers: Answers::default(),
            examines_beside: Cell::new(false),
            opened: Rc::default(),
            copy_into: None,
            operator_programs: OperatorPrograms::default(),
            started: Cell::new(0),
            chains: HashMap::from([(0, chain(&config))]),
            roles_folder,
            null: null.map_err(during("open /dev/null"))?.into(),
            template: None,
            config,
        };
        context.template = context.make_template()?.map(Rc::new);
        Ok(context)
    }

    /// Of what roots are made; nothing where degraded isolation does without.
    fn make_template(&self) -> Result<Option<MountTemplate>, Error> {
        let is_wanted = !self.without.borrow().contains(&"root");
        let Some(staging) = self.empty_root.as_ref().filter(|_| is_wanted) else { return Ok(None) };
        match MountTemplate::make(staging) {
            Ok(template) => Ok(Some(template)),
            Err(failure) => self.do_without(failure).map(|()| None),
        }
    }

    /// The site and the service that `spec` stands for, if it is a service.
    pub fn service(&self, spec: &ProcessSpec) -> Option<(&Site, &Service)> {
        self.messages().service(spec)
    }

    /// The program of the operator's that is the worker of the site of `spec`.
    pub fn worker(&self, spec: &ProcessSpec) -> Option<&(Vec<String>, std::path::PathBuf)> {
        let site = self.config.sites.get(usize::from(spec.site)).filter(|_| spec.role == Role::Site)?;
        site.worker.program.as_ref()
    }

    /// The program of the operator's that `spec` runs in a jail of its own, if it runs one.
    pub fn guest(&self, spec: &ProcessSpec) -> Option<&Service> {
        match spec.role {
            Role::Filter => self.chains.get(&spec.generation)?.get(spec.index),
            _ => self.service(spec).map(|(_, service)| service),
        }
    }

    /// When the process of a site or a service is replaced though nothing is wrong with it.
    pub fn recycle(&self, spec: &ProcessSpec) -> config::Recycle {
        match (spec.role, self.config.sites.get(usize::from(spec.site))) {
            (Role::Site, Some(site)) => site.recycle,
            _ => self.service(spec).map(|(_, service)| service.recycle()).unwrap_or_default(),
        }
    }

    /// The `oom_score_adj` of a child that is so much above this process.
    pub fn oom_score(&self, step: u16) -> i32 {
        sys::oom::above(self.own_oom_score, step, OOM_STEP_MAX)
    }

    /// What opens the paths of the configuration.
    pub fn opener(&self) -> Opener {
        Opener::of(&self.config.dir)
    }

    /// Opens a folder that a site or a service is given, as far as the owners of the links on the way may go.
    pub fn published(&self, path: &Path) -> Result<OwnedFd, Error> {
        self.opener().folder(Class::Published, path).map_err(at("open", path))
    }

    /// The same, opened only to name it.
    pub fn named(&self, path: &Path) -> Result<Found, Error> {
        self.opener().look(Class::Published, path).map_err(at("open", path))
    }

    /// A directory for a role that works below it; as root, a view of it that has nothing above.
    pub fn view_of(&self, path: &Path) -> Result<OwnedFd, Error> {
        let directory = self.published(path)?;
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
        command: filter.command.clone(),
        program: filter.program.clone(),
        read: filter.read.clone(),
        processes_max: FILTER_PROCESSES,
        jit: filter.jit,
        ..Service::default()
    };
    filters.map(service).collect()
}

/// A word of an argument vector or an environment.
pub fn text(word: &str) -> Result<CString, Error> {
    CString::new(word).map_err(during("pass an argument"))
}

/// Another descriptor of the same open file, for a child.
pub fn duplicate(descriptor: &impl std::os::fd::AsFd) -> Result<OwnedFd, Error> {
    descriptor.as_fd().try_clone_to_owned().map_err(during("duplicate a descriptor"))
}
