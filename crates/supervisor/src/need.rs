//! What a configuration needs of processes, descriptors and memory, beside what the launcher may have.
//!
//! Runs in: the launcher, as root, and `bulkhead check`. Sees: the checked configuration, and the kernel's figures. Never: keeps
//! anything from starting.

use std::thread::available_parallelism;

use config::Config;
use wire::Role;

use crate::Supervisor;
use crate::error::Error;
use crate::limits::{self, Holder, ProcessLimit, RAISE_DESCRIPTORS, RAISE_MEMORY};
use crate::memory::Memory;
use crate::setup::process_table::process_table;
use crate::spawn::inheritance;
use crate::spawn::jails::DATA_PROXY_BEGINS;
use crate::spawn::process_spec::ProcessSpec;

/// The launcher, the reaper and the closer.
pub(crate) const BESIDE: u64 = 3;
/// Roles of one process: logger, admin, signer and stapler.
const SINGLE_ROLES: u64 = 4;
/// LIMIT: processes that work for the launcher for a moment (examinations, helpers, a rehearsal), for which sites leave room.
const HELPERS: u64 = 8;
/// Descriptors of the launcher for a process: its control channel, its log, both ends of its standard error, its pidfd, and the access
/// log of its site.
pub(crate) const DESCRIPTORS_EACH: u64 = 6;
/// Descriptors that a new logger is sent of each process, and has yet to take: both logs, and standard error.
pub(crate) const DESCRIPTORS_SENT: u64 = 3;
/// Descriptors of the launcher for itself, and for what it opens for a moment.
const DESCRIPTORS_BESIDE: u64 = 320;
/// Bytes that a process takes at the least, those of the kernel's included. What a service's program keeps is not known.
const BYTES_EACH: u64 = 384 << 10;
/// Bytes of the launcher, the reaper and the closer, and of the programs' files.
const BYTES_BESIDE: u64 = 16 << 20;

/// Threads that a process of a role begins with.
pub(crate) fn threads_of(role: Role) -> u64 {
    if role == Role::DataProxy { DATA_PROXY_BEGINS } else { 1 }
}

/// Processes that sites leave to so many roles: one more of each, as a crash, a relaunch and an upgrade make, and helpers.
pub(crate) fn reserve(roles: u64) -> u64 {
    roles + HELPERS
}

/// How many processes work for all sites, at the most.
pub(crate) fn role_count(config: &Config, gates: usize) -> u64 {
    SINGLE_ROLES + gates as u64 + config.conditioning.filters.len() as u64
}

/// What is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    processes: u64,
    /// Of the launcher.
    descriptors: u64,
    memory: u64,
}

impl Need {
    /// Of processes of these roles, so many times, and of so many listening sockets; `reserve` is what sites leave to roles.
    fn of(roles: impl Iterator<Item = Role>, reserve: u64, sockets: u64, times: u64) -> Self {
        let (count, threads) = roles.fold((0, 0), |(count, all), role| (count + 1, all + threads_of(role)));
        Self {
            processes: threads * times + BESIDE + reserve,
            descriptors: (count * times + reserve) * DESCRIPTORS_EACH
                + count * DESCRIPTORS_SENT
                + sockets
                + DESCRIPTORS_BESIDE,
            memory: count * BYTES_EACH * times + BYTES_BESIDE,
        }
    }

    /// Which limits are too low for it, in one sentence.
    fn lack(self, what: &str, descriptors: Option<u64>) -> Option<String> {
        let memory = Memory::of_launcher();
        let lacks = [
            self.lack_of_processes(),
            self.lack_of_descriptors(descriptors),
            self.lack_of_memory(memory.all()),
        ];
        let lacks: Vec<String> = lacks.into_iter().flatten().collect();
        (!lacks.is_empty()).then(|| format!("{what} may need {}", lacks.join("; and ")))
    }

    fn lack_of_processes(self) -> Option<String> {
        let groups = limits::of_groups(&limits::process_groups());
        let all = groups.into_iter().chain(limits::of_kernel()).chain(limits::of_user());
        let ProcessLimit { most, holder, .. } =
            all.filter(|limit| limit.most < self.processes).min_by_key(|limit| limit.most)?;
        let (needed, remedy) = (self.processes, holder.remedy());
        Some(format!("{needed} processes and threads, and {holder} may have {most}: {remedy}"))
    }

    fn lack_of_descriptors(self, descriptors: Option<u64>) -> Option<String> {
        let needed = self.descriptors;
        if let Some(most) = descriptors.filter(|most| *most < needed) {
            return Some(format!(
                "{needed} descriptors of the launcher, which may have {most}: {RAISE_DESCRIPTORS}"
            ));
        }
        let most = limits::kernel_number("/proc/sys/fs/file-max").filter(|most| *most < needed)?;
        let remedy = Holder::Kernel("fs.file-max").remedy();
        Some(format!("{needed} open files, and the machine may have {most}: {remedy}"))
    }

    fn lack_of_memory(self, all: Option<u64>) -> Option<String> {
        let most = all.filter(|most| *most < self.memory)?;
        let mib = |bytes: u64| bytes >> 20;
        Some(format!(
            "{} MiB of memory, without what programs of services keep, and {} MiB are there: {RAISE_MEMORY}, or have sites start on \
             demand",
            mib(self.memory),
            mib(most)
        ))
    }
}

impl Supervisor {
    /// Which limits are too low for all that is always to run, in one sentence; in an upgrade, all of it may be there twice.
    pub fn lack(&self, is_upgrade: bool) -> Option<String> {
        let is_counted = |slot: &usize| !self.slots[*slot].life.is_over() && !self.is_on_demand(*slot);
        let roles = (0..self.specs.len()).filter(is_counted).map(|slot| self.specs[slot].role);
        let sockets = self.listeners.iter().map(Vec::len).sum::<usize>() as u64;
        let reserve = reserve(self.role_count());
        let (what, times) = if is_upgrade { ("an upgrade", 2) } else { ("the configuration", 1) };
        Need::of(roles, reserve, sockets, times).lack(what, limits::descriptors())
    }
}

/// Which limits are too low for a server with this configuration that would be started from here, in one sentence.
///
/// # Errors
/// There are too many processes for a table of them.
pub fn lack_from_here(config: &Config) -> Result<Option<String>, Error> {
    let gates = config
        .server
        .gates
        .map_or_else(|| available_parallelism().map_or(1, usize::from), |gates| gates as usize);
    let specs = process_table(config, gates, None)?;
    let is_on_demand = |spec: &ProcessSpec| {
        let site = config.sites.get(usize::from(spec.site));
        site.is_some_and(|site| site.is_on_demand(&config.server))
    };
    let roles = specs.iter().filter(|spec| !is_on_demand(spec)).map(|spec| spec.role);
    let sockets = (config.listeners.len() * gates) as u64;
    let reserve = reserve(role_count(config, gates));
    let what = "a server that is started from here with this configuration";
    Ok(Need::of(roles, reserve, sockets, 1).lack(what, inheritance::descriptor_limit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_counts_with_its_threads_and_twice_for_an_upgrade() {
        let roles = || [Role::Gate, Role::Site, Role::DataProxy].into_iter();
        let (once, twice) = (Need::of(roles(), 14, 4, 1), Need::of(roles(), 14, 4, 2));
        let threads = 2 + DATA_PROXY_BEGINS;
        assert_eq!((once.processes, twice.processes), (threads + 17, 2 * threads + 17));
        assert_eq!(
            (once.descriptors, twice.descriptors),
            (17 * 6 + 9 + 4 + DESCRIPTORS_BESIDE, 20 * 6 + 9 + 4 + DESCRIPTORS_BESIDE)
        );
        assert_eq!(twice.memory - once.memory, 3 * BYTES_EACH);
    }

    #[test]
    fn what_is_too_low_is_said_with_what_to_raise() {
        let need = Need { processes: 10, descriptors: 2000, memory: 3 << 30 };
        assert_eq!(need.lack_of_memory(Some(3 << 30)), None);
        let text = need.lack_of_memory(Some(1 << 30)).unwrap();
        assert!(
            text.starts_with("3072 MiB of memory") && text.contains("1024 MiB are there: raise `MemoryMax=")
        );
        assert_eq!(need.lack_of_descriptors(Some(2000)), None);
        let text = need.lack_of_descriptors(Some(1999)).unwrap();
        assert!(text.contains("which may have 1999: raise `LimitNOFILE="), "{text}");
        let most = limits::of_kernel().iter().map(|limit| limit.most).min().unwrap();
        let text = Need { processes: most + 1, ..need }.lack_of_processes().unwrap();
        assert!(text.contains("raise `"), "{text}");
        let all = Need { processes: u64::MAX, descriptors: u64::MAX, memory: u64::MAX };
        let text = all.lack("an upgrade", Some(1)).unwrap();
        assert!(text.starts_with("an upgrade may need ") && text.matches("; and ").count() == 2, "{text}");
    }
}
