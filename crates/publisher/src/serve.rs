//! The life of the process: told its folder and values, then one task per process of a service, until the launcher is
//! done with it.
//!
//! Sees: the launcher's messages (trusted: a malformed one ends the process). Never: publishes two versions at once.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use templates::Sources;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use wire::log::Level;
use wire::templates::LauncherToPublisher;
use wire::{ChildToLauncher, NO_PARTITION};
use worker::channel::Channel;
use worker::counters::Counters;
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::kept::{self, Memory};
use crate::member;
use crate::members::{Members, Version};
use crate::publish::{publish, read};
use crate::report::PublishReport;

type PublisherControl = Channel<LauncherToPublisher, ChildToLauncher>;

/// The state that all tasks share.
#[derive(Debug)]
pub(crate) struct PublisherState {
    pub(crate) members: Members,
    pub(crate) counters: Counters,
    pub(crate) log: Log,
    folder: OwnedFd,
    /// The public values, and no templates.
    values: Sources,
    /// Where each version is kept before it is activated.
    memory: RefCell<Memory>,
    /// Held while a version is published.
    turn: Mutex<()>,
}

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, or the templates have mistakes: with every one.
pub async fn serve(start: ProcessStart) -> Result<(), ProcessFault> {
    let control = PublisherControl::control(start.control, start.say)?;
    let Some((mut setup, flush_ms)) = PublisherSetup::receive(&control).await? else { return Ok(()) };
    let log = Log::new(start.log, NO_PARTITION, flush_ms)?;
    let folder = setup.folder.take().ok_or_else(|| ProcessFault::Launcher("it has sent no folder".into()))?;
    let memory = setup.memory.take().ok_or_else(|| ProcessFault::Launcher("it has sent no memory".into()))?;
    let (first, mut memory) = (first(&folder, &mut setup, &log).await?, Memory::new(memory));
    memory.keep(&first)?;
    let (members, memory) = (Members::new(first), RefCell::new(memory));
    let (values, turn) = (setup.values, Mutex::new(()));
    let shared =
        Rc::new(PublisherState { members, counters: Counters::default(), log, folder, values, memory, turn });
    control.send(&ChildToLauncher::Ready {}, None).await?;
    let (mut tasks, mut next) = (JoinSet::new(), 0);
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToPublisher::Attach { service }, Some(channel)) => {
                next += 1;
                tasks.spawn_local(member::attend(shared.clone(), next, service.as_str().to_owned(), channel));
            }
            (LauncherToPublisher::Republish {}, Some(socket)) => {
                tasks.spawn_local(republish(shared.clone(), socket));
            }
            (LauncherToPublisher::Report {}, _) => control.report(shared.counters.snapshot()),
            (other, _) => return Err(ProcessFault::Launcher(format!("after Begin: {other:?}"))),
        }
        while tasks.try_join_next().is_some() {}
    }
    // A version that is being published is published to the end; services keep what they have.
    let _turn = shared.turn.lock().await;
    shared.log.flush().await;
    Ok(())
}

/// The version that holds first: what the publisher before has kept last, or else what the folder has.
async fn first(folder: &OwnedFd, setup: &mut PublisherSetup, log: &Log) -> Result<Version, ProcessFault> {
    match setup.kept.take().map(|kept| kept::version(kept, &setup.values)) {
        Some(Ok(version)) => {
            log.event(Level::Info, format_args!("version {:016x} holds, as before", version.number));
            return Ok(version);
        }
        Some(Err(reason)) => {
            let why = "the version that held cannot be told, as what the publisher before has kept is not to be used";
            log.event(Level::Warning, format_args!("{why} ({reason}); what the folder has holds"));
            log.flush().await;
        }
        None => {}
    }
    read(folder, &setup.values).map_err(|mistakes| {
        let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        ProcessFault::Operator(format!("the templates: {}", mistakes.join("; ")))
    })
}

/// Reads the folder again and publishes it; one after the other.
async fn republish(shared: Rc<PublisherState>, socket: OwnedFd) {
    let report = {
        let _turn = shared.turn.lock().await;
        match read(&shared.folder, &shared.values) {
            Ok(version) => publish(&shared.members, &shared.memory, version).await,
            Err(mistakes) => PublishReport::wrong(&mistakes),
        }
    };
    let PublishReport { published, version, templates, processes, mistakes, reasons } = &report;
    match published {
        true => shared.log.event(
            Level::Info,
            format_args!("version {version}: {templates} templates hold in {processes} processes"),
        ),
        false => shared.log.event(
            Level::Warning,
            format_args!("not published: {} mistakes; {}", mistakes.len(), reasons.join("; ")),
        ),
    }
    report.send(socket).await;
}

/// The launcher's settings before `Begin`.
#[derive(Debug, Default)]
struct PublisherSetup {
    folder: Option<OwnedFd>,
    memory: Option<OwnedFd>,
    /// The memory of the publisher before.
    kept: Option<OwnedFd>,
    values: Sources,
}

impl PublisherSetup {
    /// Receives everything up to `Begin`; `None` if the launcher wants no publisher any more.
    async fn receive(control: &PublisherControl) -> Result<Option<(Self, u32)>, ProcessFault> {
        let Some((LauncherToPublisher::Limits { flush_ms }, _)) = control.receive().await? else {
            return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
        };
        let mut setup = Self::default();
        while let Some((message, descriptor)) = control.receive().await? {
            match (message, descriptor) {
                (LauncherToPublisher::Folder {}, Some(folder)) => setup.folder = Some(folder),
                (LauncherToPublisher::Memory {}, Some(memory)) => setup.memory = Some(memory),
                (LauncherToPublisher::Kept {}, Some(kept)) => setup.kept = Some(kept),
                (LauncherToPublisher::Value { name, value }, _) => {
                    setup.values.values.insert(name.as_str().to_owned(), value);
                }
                (LauncherToPublisher::Begin {}, _) => return Ok(Some((setup, flush_ms))),
                (other, _) => return Err(ProcessFault::Launcher(format!("before Begin: {other:?}"))),
            }
        }
        Ok(None)
    }
}
