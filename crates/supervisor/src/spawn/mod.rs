//! Starting one child: its program, its jail, and exactly its descriptors.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: gives a child a descriptor that is
//! not in this file.

pub mod background;
pub mod beginning;
pub mod cgroup;
mod cgroup_claim;
pub mod cgroup_record;
pub mod compiled_filters;
pub mod context;
pub mod core_copy;
pub mod core_dumps;
pub mod examination;
pub mod failures;
mod findings;
pub mod given_programs;
mod guest;
pub mod helper;
pub mod inheritance;
pub mod inspect;
pub mod jails;
pub mod libraries;
pub mod listeners;
pub mod living;
pub mod opening;
pub mod operator_program;
pub mod passed;
pub mod probe;
pub mod process_spec;
pub mod program;
pub mod reach;
pub mod reaper;
pub mod remote_paths;
pub mod stderr;
pub(crate) mod uid_processes;
pub mod uid_range;
pub mod uid_share;
pub mod uids;
pub mod uids_back;
pub mod versions;
pub(crate) mod view;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use config::DOOR;
use jail::policy::Policy;
use jail::{Access, Limits};
use sys::control::{ChildEnds, ControlEnd};
use sys::inherit::{CONTROL, LOG, SAY};
use sys::notify::Listener;
use sys::process::{Child, Pids, Program, StartError, out_of_the_way};
use wire::{OOM_STEP_REAPER, Role};

use crate::error::{Error, during};
use crate::spawn::beginning::Beginning;
use crate::spawn::cgroup::Group;
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::stderr::Stderr;

/// Where a filter finds the channel from which it takes bundles, and the one to which it passes them on: the contract
/// with whoever writes one.
const BUNDLES: i32 = 3;
const ONWARD: i32 = 4;
/// Layers that would keep the reaper from its work: the reaper ends processes of other uids, and outlives the launcher.
const NOT_A_REAPERS: [&str; 3] = ["capabilities", "parent death", "landlock"];
/// The descriptor on which the reaper gets pidfds.
const REAPER_CHANNEL: i32 = 0;
/// LIMIT: processes of the reaper: it makes none.
const REAPER_PROCESSES: u64 = 1;

/// Where a child finds its ends of the channel to the launcher.
pub fn placed(ends: ChildEnds) -> impl Iterator<Item = (OwnedFd, i32)> {
    std::iter::once((ends.control, CONTROL)).chain(ends.say.map(|say| (say, SAY)))
}

/// Whose program is executed in the jail of a service or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// One of ours, which needs no libraries.
    Ours,
    /// One that the operator has named.
    Operators,
}

/// A child that was started, with the launcher's ends of its channels.
#[derive(Debug)]
pub struct Started {
    /// The child in its jail.
    pub jailed: Jailed,
    /// Its control channel; a filter has none.
    pub control: Option<ControlEnd>,
    /// What the logger reads of it.
    pub log: Option<OwnedFd>,
    /// What it writes to standard error.
    pub stderr: Stderr,
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

/// A child on its way to its program.
#[derive(Debug)]
pub struct Begun {
    begun: sys::process::Begun,
    /// Its control group.
    group: Group,
    /// Where it hands over the listener of its calls.
    calls: Option<OwnedFd>,
    core_folder: Option<OwnedFd>,
}

/// A process on its way to its program, with the launcher's ends of its channels.
#[derive(Debug)]
pub struct BegunProcess {
    jailed: Begun,
    control: Option<ControlEnd>,
    log: Option<OwnedFd>,
    stderr: Stderr,
}

impl BegunProcess {
    /// The process as it will be when it executes its program, and what it has yet to say.
    pub fn split(self) -> (Started, Beginning) {
        let Self { jailed: Begun { begun, group, calls, core_folder }, control, log, stderr } = self;
        let (child, report) = begun.split();
        let (child, core_folder) = (child.out_of_the_way(), core_folder.map(out_of_the_way));
        let jailed = Jailed { child, group, calls: None, core_folder };
        (Started { jailed, control, log, stderr }, Beginning { report, calls })
    }

    /// Waits until a time for the end of what it says; whether that has come.
    pub fn is_over_by(&self, until: Instant) -> bool {
        self.jailed.begun.is_over_by(until)
    }
}

impl SpawnContext {
    /// Begins to start a process for `spec`; others can be begun before it is there ([`SpawnContext::finish`]).
    pub fn begin(&self, spec: &ProcessSpec) -> Result<BegunProcess, Error> {
        self.begin_known(spec).map_err(|error| self.explain(spec, error))
    }

    fn begin_known(&self, spec: &ProcessSpec) -> Result<BegunProcess, Error> {
        let (control, its) = ControlEnd::pair().map_err(during("make a channel"))?;
        let pair = || sys::seqpacket::pair_that_takes(false, false).map_err(during("make a channel"));
        let (log, its_log) = (spec.role != Role::Logger).then(pair).transpose()?.unzip();
        let (stderr, mut descriptors) = self.standard_descriptors()?;
        descriptors.extend(placed(its));
        descriptors.extend(its_log.map(|log| (log, LOG)));
        let is_remote = self.guest(spec).is_some_and(|service| service.remote);
        let origin = if is_remote { Origin::Ours } else { Origin::Operators };
        let jailed = self.begin_in_jail(spec, (&self.program(spec)?, origin), &descriptors)?;
        Ok(BegunProcess { jailed, control: Some(control), log, stderr })
    }

    /// Waits until a process that was begun executes its program; `None` if it is to be begun once more, without a
    /// layer of its jail in which it has failed and that degraded isolation may leave out.
    pub fn finish(&self, spec: &ProcessSpec, begun: BegunProcess) -> Result<Option<Started>, Error> {
        let BegunProcess { jailed, control, log, stderr } = begun;
        let jailed = self.finish_in_jail(spec, jailed)?;
        Ok(jailed.map(|jailed| Started { jailed, control, log, stderr }))
    }

    /// As [`SpawnContext::begin_filter`], and waits until the filter executes its program.
    pub fn start_filter(&self, spec: &ProcessSpec, channels: &[OwnedFd; 2]) -> Result<Started, Error> {
        loop {
            if let Some(started) = self.finish(spec, self.begin_filter(spec, channels)?)? {
                return Ok(started);
            }
        }
    }

    /// Begins to start the filter of `spec`, which takes from the first of `channels` and passes on to the second.
    pub fn begin_filter(&self, spec: &ProcessSpec, channels: &[OwnedFd; 2]) -> Result<BegunProcess, Error> {
        let begun = || {
            let (stderr, mut descriptors) = self.standard_descriptors()?;
            for (channel, number) in channels.iter().zip([BUNDLES, ONWARD]) {
                descriptors.push((duplicate(channel)?, number));
            }
            let jailed = self.begin_in_jail(spec, (&self.program(spec)?, Origin::Operators), &descriptors)?;
            Ok(BegunProcess { jailed, control: None, log: None, stderr })
        };
        begun().map_err(|error| self.explain(spec, error))
    }

    /// Starts `program` for `spec`, with `channels` and a pipe for standard error.
    pub fn start_with(
        &self,
        spec: &ProcessSpec,
        program: &Program,
        channels: impl IntoIterator<Item = (OwnedFd, i32)>,
    ) -> Result<Started, Error> {
        let (stderr, mut descriptors) = self.standard_descriptors()?;
        descriptors.extend(channels);
        let jailed = self.start_in_jail(spec, (program, Origin::Operators), &descriptors)?;
        Ok(Started { jailed, control: None, log: None, stderr })
    }

    /// The descriptors that each program expects, and the launcher's ends of the last.
    fn standard_descriptors(&self) -> Result<(Stderr, Vec<(OwnedFd, i32)>), Error> {
        let (reading, writing) = io::pipe().map_err(during("make a pipe"))?;
        let null = || duplicate(&self.null);
        let descriptors = vec![(null()?, 0), (null()?, 1), (duplicate(&writing)?, 2)];
        Ok((Stderr { reading: reading.into(), writing: writing.into() }, descriptors))
    }

    /// Starts `program` in the jail of `spec`; where degraded isolation allows it, without layers that fail.
    pub fn start_in_jail(
        &self,
        spec: &ProcessSpec,
        program: (&Program, Origin),
        descriptors: &[(OwnedFd, i32)],
    ) -> Result<Jailed, Error> {
        loop {
            let begun = self.begin_in_jail(spec, program, descriptors)?;
            if let Some(jailed) = self.finish_in_jail(spec, begun)? {
                return Ok(jailed);
            }
        }
    }

    fn begin_in_jail(
        &self,
        spec: &ProcessSpec,
        (program, origin): (&Program, Origin),
        descriptors: &[(OwnedFd, i32)],
    ) -> Result<Begun, Error> {
        loop {
            let (group, joins) = self.group(spec)?;
            let inherited = descriptors
                .iter()
                .map(|(fd, number)| Ok((duplicate(fd)?, *number)))
                .collect::<Result<_, _>>()?;
            let (calls, its_calls) = self.calls_of(spec)?.unzip();
            let core_folder = self.core_folder(spec)?;
            let file = (&program.file, origin);
            let jail = self.jail(spec, file, inherited, joins, its_calls, core_folder.as_ref())?;
            let highest = jail.highest_descriptor();
            match sys::process::begin_start(program, jail.pids(), highest, || jail::enter(&jail)) {
                Ok(begun) => return Ok(Begun { begun, group, calls, core_folder }),
                Err(failure) => self.do_without(failure)?,
            }
        }
    }

    /// The child, once it executes its program; `None` if it is to be started again without a layer that has failed.
    fn finish_in_jail(&self, spec: &ProcessSpec, begun: Begun) -> Result<Option<Jailed>, Error> {
        let Begun { begun, group, calls, core_folder } = begun;
        let child = match begun.finish() {
            Ok(child) => child.out_of_the_way(),
            Err(failure) => return self.do_without(failure).map(|()| None),
        };
        let calls = beginning::listener(calls);
        self.reap_program(spec, &child)?;
        Ok(Some(Jailed { child, group, calls, core_folder: core_folder.map(out_of_the_way) }))
    }

    /// Has the program of others that a child executes, or will, end with this launcher; the child ends if that cannot
    /// be.
    pub fn reap_program(&self, spec: &ProcessSpec, child: &Child) -> Result<(), Error> {
        let is_others = matches!(spec.role, Role::Service | Role::Filter);
        if is_others && let Err(error) = self.reap_with_launcher(child) {
            child.end();
            return Err(error);
        }
        Ok(())
    }

    /// A channel on which a process that has network hands over where its calls arrive, if `spec` is such a one.
    fn calls_of(&self, spec: &ProcessSpec) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
        let granted = self.service(spec).is_some_and(|(_, service)| service.network.is_granted());
        let pair = || sys::seqpacket::pair_that_takes(true, false).map_err(during("make a channel"));
        granted.then(pair).transpose()
    }

    /// Notes the layer that failed as one to do without, or fails.
    pub(crate) fn do_without(&self, failure: StartError) -> Result<(), Error> {
        if self.leaves_out(&failure) { Ok(()) } else { Err(Error::Start(failure)) }
    }

    /// Whether the layer that failed is one to do without, from here on.
    pub(crate) fn leaves_out(&self, failure: &StartError) -> bool {
        let layer = jail::LAYERS.iter().find(|layer| layer.name == failure.step && !layer.mandatory);
        let Some(layer) = layer.filter(|_| self.degrades) else { return false };
        let mut without = self.without.borrow_mut();
        // Another that was on its way at the same time may have failed there as well.
        if !without.contains(&layer.name) {
            without.push(layer.name);
        }
        true
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
            let file = self.worker_program(path, spec)?;
            let title = text(&format!("bulkhead: {}", spec.title()))?;
            let words = command.iter().skip(1).map(|word| text(word)).collect::<Result<Vec<_>, _>>()?;
            return Ok(Program { file, arguments: [vec![title], words].concat(), environment: vec![] });
        }
        let Some(service) = self.guest(spec) else {
            let file = program::role_program(&self.roles_folder, spec.role.name())?;
            let title = text(&format!("bulkhead: {}", spec.title()))?;
            return Ok(Program { file, arguments: vec![title], environment: vec![] });
        };
        let kind = examination::program_kind(spec, service);
        let file = match service.remote {
            true => program::role_program(&self.roles_folder, DOOR)?,
            false => self.operator_program(kind, &service.program, spec.identity)?,
        };
        // A door has its connections made again long before the site's worker would cut them off.
        let drain = service.remote.then(|| self.config.limits.drain_timeout_ms.to_string());
        let words = service.command.iter().chain(&drain);
        let arguments = words.map(|word| text(word)).collect::<Result<_, _>>()?;
        // Of two with one name, programs see the first.
        let named = service.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let environment = self
            .files_variable(spec)
            .into_iter()
            .chain(named)
            .map(|word| text(&word))
            .collect::<Result<_, _>>()?;
        Ok(Program { file, arguments, environment })
    }

    /// Has `child` ended with this launcher, however that ends.
    pub fn reap_with_launcher(&self, child: &Child) -> Result<(), Error> {
        self.reaper.add(child, || self.start_reaper())
    }

    fn start_reaper(&self) -> Result<(OwnedFd, Child), Error> {
        let (channel, its) =
            sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?;
        let arguments = vec![text("bulkhead: reaper")?, text("reap")?];
        let program = Program { file: program::own()?, arguments, environment: Vec::new() };
        let child = self.start_as_reaper(its, duplicate(&self.null)?, &program)?;
        Ok((channel, child))
    }

    /// Starts the helper that closes foreign descriptors; see [`crate::foreign`].
    pub fn start_closer(&self) -> Result<(OwnedFd, Child), Error> {
        let (channel, its) =
            sys::seqpacket::pair_that_takes(false, true).map_err(during("make a channel"))?;
        let arguments = vec![text("bulkhead: closer")?, text("close")?];
        let program = Program { file: program::own()?, arguments, environment: Vec::new() };
        let child = self.start_as_closer(its, duplicate(&self.null)?, &program)?;
        Ok((channel, child.out_of_the_way()))
    }

    /// Starts `program` in the closer's jail.
    pub fn start_as_closer(
        &self,
        channel: OwnedFd,
        output: OwnedFd,
        program: &Program,
    ) -> Result<Child, Error> {
        self.start_beside(program, self.jail_beside(program, channel, output)?)
    }

    /// Starts `program` in the reaper's jail.
    pub fn start_as_reaper(
        &self,
        channel: OwnedFd,
        output: OwnedFd,
        program: &Program,
    ) -> Result<Child, Error> {
        let mut jail = self.jail_beside(program, channel, output)?;
        jail.without.extend(NOT_A_REAPERS);
        self.start_beside(program, jail)
    }

    fn start_beside(&self, program: &Program, jail: jail::Jail) -> Result<Child, Error> {
        sys::process::start(program, Pids::Shared, || jail::enter(&jail)).map_err(Error::Start)
    }

    /// The jail of what stays beside the launcher to do one thing with descriptors.
    fn jail_beside(&self, program: &Program, channel: OwnedFd, output: OwnedFd) -> Result<jail::Jail, Error> {
        let descriptors = vec![(channel, REAPER_CHANNEL), (output, 1), (duplicate(&self.null)?, 2)];
        let limits = Limits {
            descriptors: u64::from(u32::MAX),
            core_bytes: 0,
            processes: REAPER_PROCESSES,
            memory_bytes: None,
            file_bytes: None,
            cpu_seconds: None,
        };
        let paths = vec![(duplicate(&program.file)?, Access::Execute)];
        let oom_score = Some(self.oom_score(OOM_STEP_REAPER));
        Ok(jail::Jail { oom_score, ..self.helper_jail(None, Policy::Reaper, limits, descriptors, paths)? })
    }
}
