//! What of a status somebody wants to see: a role, a site, a page of the list.
//!
//! Runs in: the launcher. Sees: enumerations and numbers of the admin role, which may be compromised. Never: asks or
//! describes a process that is not on the page.

use std::collections::{HashMap, HashSet};

use wire::{Counters, LauncherToAdmin, Role, Text};

use crate::entry::VERSION;
use supervisor::Supervisor;
use supervisor::process::Process;
use supervisor::spawn::process_spec::ProcessSpec;

/// What is wanted; by default everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusSelection {
    /// The processes of one role.
    pub(crate) role: Option<Role>,
    /// Those of one site, by its name.
    pub(crate) site: Option<String>,
    /// Besides these the launcher, and all processes that have its uid or that of one of these.
    pub(crate) with_alike: bool,
    /// From the slot before this number on; 0 is the launcher, and all slots.
    pub(crate) from: u32,
    /// So many lines, or a few more where the processes of the first slot are more.
    pub(crate) limit: u32,
}

impl Default for StatusSelection {
    fn default() -> Self {
        Self { role: None, site: None, with_alike: false, from: 0, limit: u32::MAX }
    }
}

/// The lines of a status that are wanted.
#[derive(Debug, Default)]
pub(crate) struct StatusPage {
    has_launcher: bool,
    /// The slots, each with the processes that fill it.
    slots: Vec<(usize, Vec<u64>)>,
    /// Where the next page begins, if there is one.
    pub(crate) next: Option<u32>,
}

impl StatusSelection {
    fn fits(&self, spec: &ProcessSpec) -> bool {
        let is_of = |site: &String| {
            let rest = spec.name.strip_prefix(&**site);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
        };
        self.role.is_none_or(|role| role == spec.role) && self.site.as_ref().is_none_or(is_of)
    }

    /// The uids of the processes that fit and of the launcher, where others of these uids are wanted as well.
    fn uids(&self, supervisor: &Supervisor) -> HashSet<u32> {
        let fitting = supervisor.specs().iter().filter(|spec| self.with_alike && self.fits(spec));
        fitting.map(uid).chain(self.with_alike.then(own_uid)).collect()
    }

    /// The page that this is.
    pub(crate) fn page(&self, supervisor: &Supervisor) -> StatusPage {
        let mut of_slot: HashMap<usize, Vec<u64>> = HashMap::new();
        for (serial, process) in supervisor.processes() {
            of_slot.entry(process.slot).or_default().push(*serial);
        }
        let is_launchers = self.role.is_none_or(|role| role == Role::Launcher) && self.site.is_none();
        let (is_launchers, uids) = (is_launchers || self.with_alike, self.uids(supervisor));
        let mut page = StatusPage { has_launcher: is_launchers && self.from == 0, ..StatusPage::default() };
        let mut left = (self.limit as usize).saturating_sub(usize::from(page.has_launcher));
        let specs = supervisor.specs().iter().enumerate().skip(self.from.saturating_sub(1) as usize);
        for (slot, _) in specs.filter(|(_, spec)| self.fits(spec) || uids.contains(&uid(spec))) {
            let serials = of_slot.remove(&slot).unwrap_or_default();
            let is_said =
                !serials.is_empty() || !supervisor.slot(slot).life.is_over() && !supervisor.is_vacant(slot);
            let lines = serials.len().max(usize::from(is_said));
            if lines > left && (page.has_launcher || !page.slots.is_empty()) {
                page.next = u32::try_from(slot + 1).ok();
                break;
            }
            left = left.saturating_sub(lines);
            if is_said {
                page.slots.push((slot, serials));
            }
        }
        page
    }
}

impl StatusPage {
    /// The processes on it.
    pub(crate) fn serials(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flat_map(|(_, serials)| serials).copied()
    }

    /// One line for the launcher, one for each process, and one for each slot that nobody fills.
    pub(crate) fn lines(&self, supervisor: &Supervisor, ticket: u32) -> Vec<LauncherToAdmin> {
        let mut lines = Vec::new();
        lines.extend(self.has_launcher.then(|| of_launcher(supervisor, ticket)));
        for (slot, serials) in &self.slots {
            let processes = serials.iter().filter_map(|serial| supervisor.process(*serial));
            lines.extend(processes.map(|process| of_process(supervisor, ticket, *slot, Some(process))));
            if serials.is_empty() {
                lines.push(of_process(supervisor, ticket, *slot, None));
            }
        }
        lines
    }
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The uid that processes of a slot have.
fn uid(spec: &ProcessSpec) -> u32 {
    spec.identity.map_or_else(own_uid, jail::Identity::id)
}

fn of_launcher(supervisor: &Supervisor, ticket: u32) -> LauncherToAdmin {
    LauncherToAdmin::Process {
        ticket,
        role: Role::Launcher,
        name: Text::new(""),
        pid: std::process::id(),
        uid: own_uid(),
        state: Text::new("serving"),
        restarts: 0,
        age_ms: supervisor.age().as_millis() as u64,
        counters: Counters::default(),
        last_exit: Text::new(""),
        jit: false,
        oom_kills: supervisor.oom_kills(),
        version: Text::new(VERSION),
        is_before: false,
    }
}

/// A process of a slot, or what is to be said of one that nobody fills.
fn of_process(
    supervisor: &Supervisor,
    ticket: u32,
    index: usize,
    process: Option<&Process>,
) -> LauncherToAdmin {
    let (spec, slot) = (supervisor.spec(index), supervisor.slot(index));
    let state = match (process, slot.broken.is_some(), slot.rests) {
        (Some(process), ..) => process.stage.word(),
        _ if supervisor.waits_for(index).is_some() => "waits for room",
        (None, true, _) => "broken",
        (None, false, true) => "resting",
        (None, false, false) => "waiting",
    };
    let before = process.and_then(|process| process.before.as_deref());
    LauncherToAdmin::Process {
        ticket,
        role: spec.role,
        name: Text::new(spec.label()),
        pid: process.map_or(0, |process| process.child.pid),
        uid: uid(spec),
        state: Text::new(state),
        restarts: slot.restarts,
        age_ms: process.map_or(0, |process| process.since.elapsed().as_millis() as u64),
        counters: process.map(|process| process.counters.clone()).unwrap_or_default(),
        last_exit: Text::new(supervisor.waits_for(index).map_or(&*slot.last_exit, |lack| lack.words())),
        jit: supervisor.context().guest(spec).is_some_and(|service| service.jit),
        oom_kills: slot.oom_kills,
        version: Text::new(before.unwrap_or(VERSION)),
        is_before: before.is_some(),
    }
}
