//! What a configuration needs of processes, descriptors and memory, beside what the launcher may have.
//!
//! Runs in: the launcher, as root, and `bulkhead check`. Sees: the checked configuration, and the kernel's figures.
//! Never: keeps anything from starting.

use std::collections::BTreeMap;
use std::thread::available_parallelism;

use config::Config;
use wire::{Role, Scope};

use crate::Supervisor;
use crate::error::Error;
use crate::footprint::{BYTES_BESIDE, BYTES_OF_A_WAY, bytes_of, threads_of};
use crate::limits::{self, Bound};
use crate::memory::{self, Memory};
use crate::setup::process_table::process_table;
use crate::spawn::inheritance;
use crate::spawn::process_spec::ProcessSpec;

/// The launcher, the reaper and the closer.
pub(crate) const BESIDE: u64 = 3;
/// LIMIT: processes that work for the launcher for a moment (examinations, helpers, a rehearsal), for which sites leave
/// room.
const HELPERS: u64 = 8;
/// Descriptors of the launcher for a process: its control channel, its log, both ends of its standard error, its pidfd,
/// and the access log of its site.
pub(crate) const DESCRIPTORS_EACH: u64 = 6;
/// Descriptors that a new logger is sent of each process, and has yet to take: both logs, and standard error.
pub(crate) const DESCRIPTORS_SENT: u64 = 3;
/// Descriptors of the launcher for itself, and for what it opens for a moment.
const DESCRIPTORS_BESIDE: u64 = 320;
/// Processes that sites leave to so many roles: one more of each, as a crash, a relaunch and an upgrade make, and
/// helpers.
pub(crate) fn reserve(roles: u64) -> u64 {
    roles + HELPERS
}

/// How many processes work for all sites, at the most.
pub(crate) fn role_count(config: &Config, gates: usize) -> u64 {
    let is_single = |role: &&Role| {
        let facts = role.facts();
        **role != Role::Launcher && facts.scope == Scope::Server && !facts.is_numbered
    };
    let singles = Role::ALL.iter().filter(is_single).count() as u64;
    singles + gates as u64 + config.conditioning.filters.len() as u64
}

/// What there may be too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Processes and threads, of the server as a whole.
    Processes,
    /// Those of one uid.
    ProcessesOfAUid,
    /// Descriptors of the launcher.
    Descriptors,
    /// Bytes of memory.
    Memory,
}

impl Resource {
    /// As in `bulkhead check --json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::ProcessesOfAUid => "processes_of_a_uid",
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
        }
    }
}

/// What is needed of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Of what.
    pub resource: Resource,
    /// How much.
    pub amount: u64,
    /// The limit that is reached first, if there is one.
    pub bound: Option<Bound>,
}

impl Needed {
    fn new(resource: Resource, amount: u64, bounds: impl IntoIterator<Item = Bound>) -> Self {
        Self { resource, amount, bound: bounds.into_iter().min_by_key(|bound| bound.most) }
    }

    /// What the limit is too low for, and how it is raised; nothing if it is not.
    fn lack(&self) -> Option<String> {
        let amount = self.amount;
        let Bound { most, whose, remedy, .. } = self.bound.as_ref().filter(|bound| bound.most < amount)?;
        let what = match self.resource {
            Resource::Processes => "processes and threads",
            Resource::ProcessesOfAUid => "processes and threads of one uid",
            Resource::Descriptors => "descriptors of the launcher",
            Resource::Memory => {
                let mib = |bytes: u64| bytes >> 20;
                return Some(format!(
                    "{} MiB of memory, without what programs of services keep, {whose} {} MiB are there: {remedy}, or have sites start on \
                     demand",
                    mib(amount),
                    mib(*most)
                ));
            }
        };
        Some(format!("{amount} {what}, {whose} may have {most}: {remedy}"))
    }
}

/// What a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What needs it, as the beginning of a sentence.
    what: &'static str,
    /// Each resource.
    pub each: Vec<Needed>,
}

/// Of what it is computed.
struct Parts {
    /// What sites leave to roles, in processes.
    reserve: u64,
    /// Listening sockets.
    sockets: u64,
    /// How often everything may be there.
    times: u64,
    /// How many descriptors the launcher may have.
    descriptors: Option<u64>,
}

impl Need {
    /// Of processes of these specs.
    fn of<'s>(what: &'static str, specs: impl Iterator<Item = &'s ProcessSpec>, parts: &Parts) -> Self {
        let Parts { reserve, sockets, times, descriptors } = *parts;
        let (mut count, mut threads, mut bytes, mut uids) = (0, 0, 0, BTreeMap::new());
        let (mut gates, mut partitions) = (0, 0);
        for spec in specs {
            let of_role = threads_of(spec.role);
            gates += u64::from(spec.role == Role::Gate);
            partitions += u64::from(spec.role.is_worker());
            (count, threads, bytes) = (count + 1, threads + of_role, bytes + bytes_of(spec.role));
            *uids.entry(owner(spec)).or_default() += of_role;
        }
        bytes += gates * partitions * BYTES_OF_A_WAY;
        let of_launcher = (count * times + reserve) * DESCRIPTORS_EACH
            + count * DESCRIPTORS_SENT
            + sockets
            + DESCRIPTORS_BESIDE;
        let of_processes = limits::of_groups(&limits::process_groups()).into_iter();
        let of_processes = of_processes.chain(limits::of_kernel()).chain(limits::of_user());
        let of_descriptors = limits::of_descriptors(descriptors).into_iter().chain(limits::of_open_files());
        // A successor is there before the process whose place it takes.
        let of_a_uid = 2 * uids.into_values().max().unwrap_or(0);
        let memory = memory::all_for(bytes * times + BYTES_BESIDE);
        let each = vec![
            Needed::new(
                Resource::Processes,
                threads * times + BESIDE + reserve,
                of_processes.map(Bound::from),
            ),
            Needed::new(Resource::ProcessesOfAUid, of_a_uid, limits::of_each_uid().map(Bound::from)),
            Needed::new(Resource::Descriptors, of_launcher, of_descriptors),
            Needed::new(Resource::Memory, memory, Memory::of_launcher().bound()),
        ];
        Self { what, each }
    }

    /// Which limits are too low for it, in one sentence.
    pub fn lack(&self) -> Option<String> {
        let lacks: Vec<String> = self.each.iter().filter_map(Needed::lack).collect();
        (!lacks.is_empty()).then(|| format!("{} may need {}", self.what, lacks.join("; and ")))
    }
}

/// Whose uid the processes of a spec have: all gates have one, each filter its own, and a broker that of its service.
fn owner(spec: &ProcessSpec) -> (&'static str, &str, usize) {
    let place = if spec.role == Role::Filter { spec.index } else { 0 };
    (spec.role.facts().uid_of, spec.role.base(&spec.name), place)
}

impl Supervisor {
    /// Which limits are too low for all that is always to run, in one sentence; in an upgrade, all of it may be there
    /// twice.
    pub fn lack(&self, is_upgrade: bool) -> Option<String> {
        let is_counted = |slot: &usize| !self.slots[*slot].life.is_over() && !self.is_on_demand(*slot);
        let specs = (0..self.specs.len()).filter(is_counted).map(|slot| &self.specs[slot]);
        let sockets = self.listeners.iter().map(Vec::len).sum::<usize>() as u64;
        let (what, times) = if is_upgrade { ("an upgrade", 2) } else { ("the configuration", 1) };
        let reserve = reserve(self.role_count());
        Need::of(what, specs, &Parts { reserve, sockets, times, descriptors: limits::descriptors() }).lack()
    }
}

/// What a server with this configuration needs that would be started from here.
///
/// # Errors
/// There are too many processes for a table of them.
pub fn from_here(config: &Config) -> Result<Need, Error> {
    let gates = config
        .server
        .gates
        .map_or_else(|| available_parallelism().map_or(1, usize::from), |gates| gates as usize);
    let specs = process_table(config, gates, None)?;
    let is_always = |spec: &&ProcessSpec| {
        let site = config.sites.get(usize::from(spec.site));
        !site.is_some_and(|site| site.is_on_demand(&config.server))
    };
    let parts = Parts {
        reserve: reserve(role_count(config, gates)),
        sockets: (config.listeners.len() * gates) as u64,
        times: 1,
        descriptors: inheritance::descriptor_limit(),
    };
    let what = "a server that is started from here with this configuration";
    Ok(Need::of(what, specs.iter().filter(is_always), &parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Holder, ProcessLimit, RAISE_MEMORY};
    use crate::spawn::process_spec::BROKER_OF;

    fn spec(role: Role, name: &str, index: usize) -> ProcessSpec {
        let (partition, site, worker, generation, identity) = (0, 0, 0, 0, None);
        ProcessSpec { role, name: name.into(), partition, site, index, worker, generation, identity }
    }

    fn amounts(specs: &[ProcessSpec], times: u64) -> Vec<u64> {
        let parts = Parts { reserve: 14, sockets: 4, times, descriptors: None };
        Need::of("it", specs.iter(), &parts).each.iter().map(|needed| needed.amount).collect()
    }

    #[test]
    fn each_process_counts_with_its_threads_and_its_memory_and_twice_for_an_upgrade() {
        let specs = [spec(Role::Gate, "gate", 0), spec(Role::Site, "a", 0), spec(Role::DataProxy, "a/b", 0)];
        let (once, twice) = (amounts(&specs, 1), amounts(&specs, 2));
        let proxy = threads_of(Role::DataProxy);
        assert_eq!((once[0], twice[0]), (2 + proxy + 17, 2 * (2 + proxy) + 17));
        assert_eq!((once[1], twice[1]), (2 * proxy, 2 * proxy));
        assert_eq!(once[2], 17 * 6 + 9 + 4 + DESCRIPTORS_BESIDE);
        assert_eq!(twice[2], 20 * 6 + 9 + 4 + DESCRIPTORS_BESIDE);
        let bytes = specs.iter().map(|spec| bytes_of(spec.role)).sum::<u64>() + BYTES_OF_A_WAY;
        assert_eq!(twice[3], memory::all_for(2 * bytes + BYTES_BESIDE));
    }

    #[test]
    fn processes_that_share_a_uid_count_together() {
        let gates: Vec<_> = (0..20).map(|index| spec(Role::Gate, "gate", index)).collect();
        assert_eq!(amounts(&gates, 1)[1], 40);
        let filters: Vec<_> = (0..20).map(|index| spec(Role::Filter, "filter", index)).collect();
        assert_eq!(amounts(&filters, 1)[1], 2);
        let broker = format!("a/b{BROKER_OF}");
        let service =
            [spec(Role::Service, "a/b", 0), spec(Role::Service, "a/b", 0), spec(Role::Broker, &broker, 0)];
        assert_eq!(amounts(&service, 1)[1], 6);
    }

    #[test]
    fn what_is_too_low_is_said_with_what_to_raise() {
        let said = |resource, amount, bounds: Vec<Bound>| Needed::new(resource, amount, bounds).lack();
        let memory =
            |most| Bound { most, from: "MemTotal".into(), whose: "and".into(), remedy: RAISE_MEMORY.into() };
        assert_eq!(said(Resource::Memory, 3 << 30, vec![memory(3 << 30)]), None);
        assert_eq!(said(Resource::Memory, 3 << 30, vec![]), None);
        let text = said(Resource::Memory, 3 << 30, vec![memory(1 << 30)]).unwrap();
        assert!(
            text.starts_with("3072 MiB of memory") && text.contains("1024 MiB are there: raise `MemoryMax=")
        );
        let descriptors = |most| limits::of_descriptors(Some(most)).into_iter().collect::<Vec<_>>();
        assert_eq!(said(Resource::Descriptors, 2000, descriptors(2000)), None);
        let text = said(Resource::Descriptors, 2000, descriptors(1999)).unwrap();
        assert!(text.contains("which may have 1999: raise `LimitNOFILE="), "{text}");
        let of = |most, holder| Bound::from(ProcessLimit { most, now: None, holder });
        let processes =
            vec![of(7, Holder::Kernel("kernel.pid_max")), of(5, Holder::User), of(9, Holder::Uid)];
        let text = said(Resource::Processes, 10, processes).unwrap();
        assert_eq!(
            text,
            "10 processes and threads, and this user may have 5: raise `LimitNPROC=` of the unit, or `ulimit -Hu`"
        );
        let each = vec![
            Needed::new(Resource::Processes, 10, [of(1, Holder::User)]),
            Needed::new(Resource::ProcessesOfAUid, 10, [of(1, Holder::Uid)]),
            Needed::new(Resource::Memory, 10, [memory(10)]),
        ];
        let text = Need { what: "an upgrade", each }.lack().unwrap();
        assert!(text.starts_with("an upgrade may need ") && text.matches("; and ").count() == 1, "{text}");
    }
}
