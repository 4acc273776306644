//! Which slots a process must know of.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: shows a process that serves one that does
//! not hold yet.

use std::collections::BTreeSet;

use wire::Role;

use crate::Supervisor;
use crate::life::Life;
use crate::lookup::{Lookup, is_pattern};
use crate::spawn::process_spec::ProcessSpec;

impl Supervisor {
    pub(crate) fn lookup(&self) -> &Lookup {
        let new = || {
            let all = (0..).zip(&self.specs).zip(&self.slots);
            let there = all.map(|((number, spec), slot)| (number, spec, slot.life));
            let there = there.filter(|(_, _, life)| *life != Life::Free);
            Lookup::new(&self.context.config, &self.order.numbers, there)
        };
        self.lookup.get_or_init(new)
    }

    /// The slots of the workers of a site, or of the processes of a service, by its partition.
    pub fn slots_of_partition(&self, partition: u16) -> Vec<usize> {
        let is_it = |slot: &usize| self.specs[*slot].role.is_worker() && !self.slots[*slot].life.is_over();
        self.lookup().of_partition(partition).iter().copied().filter(is_it).collect()
    }

    /// Every process that is to run, as the process of a slot of this life sees them, in the order of the file. The
    /// first process of a partition stands for all of them.
    pub fn specs_for(&self, life: Life) -> Vec<&ProcessSpec> {
        self.sorted((0..self.specs.len()).filter(|&slot| self.is_seen(slot, life)).collect())
    }

    /// Those of them that the worker of a site may have to know: those of its site, and of sites with a host of its
    /// own.
    pub fn specs_beside(&self, slot: usize) -> Vec<&ProcessSpec> {
        let (number, life) = (self.specs[slot].site, self.slots[slot].life);
        let Some(site) = self.context.config.sites.get(usize::from(number)) else { return Vec::new() };
        // A pattern may have any host in it.
        if site.hosts.iter().any(|host| is_pattern(host)) {
            return self.specs_for(life);
        }
        let others = site.hosts.iter().flat_map(|host| self.slots_of_host(host));
        let slots: BTreeSet<usize> = others.chain(self.lookup().of_site(number).iter().copied()).collect();
        self.sorted(slots.into_iter().filter(|&slot| self.is_seen(slot, life)).collect())
    }

    /// Those of them that answer for one of these hosts, which are taken as they are written.
    pub fn specs_of_hosts<'h>(
        &self,
        hosts: impl IntoIterator<Item = &'h String>,
        life: Life,
    ) -> Vec<&ProcessSpec> {
        let slots: BTreeSet<usize> = hosts.into_iter().flat_map(|host| self.slots_of_host(host)).collect();
        self.sorted(slots.into_iter().filter(|&slot| self.is_seen(slot, life)).collect())
    }

    /// The slots of the workers and services of sites with a host.
    fn slots_of_host(&self, host: &str) -> impl Iterator<Item = usize> {
        let slots = self.hosts.of(host).iter().flat_map(|&site| self.lookup().of_site(site)).copied();
        slots.filter(|&slot| self.specs[slot].role.is_worker())
    }

    /// The slots of the workers of sites that have one of these hosts, or a pattern, which may have any host in it.
    pub(crate) fn workers_meeting<'h>(&self, hosts: impl IntoIterator<Item = &'h String>) -> BTreeSet<usize> {
        let with_host = hosts.into_iter().flat_map(|host| self.hosts.of(host)).copied();
        let sites: BTreeSet<u16> = with_host.chain(self.hosts.with_patterns()).collect();
        let slots = sites.into_iter().flat_map(|site| self.lookup().of_site(site)).copied();
        slots.filter(|&slot| self.specs[slot].role == Role::Site).collect()
    }

    fn is_seen(&self, slot: usize, by: Life) -> bool {
        let other = if by == Life::Pending { Life::Pending } else { Life::Leaving };
        let life = self.slots[slot].life;
        self.specs[slot].is_first() && (life == Life::Serving || life == other)
    }

    fn sorted(&self, slots: Vec<usize>) -> Vec<&ProcessSpec> {
        let mut specs: Vec<&ProcessSpec> = slots.into_iter().map(|slot| &self.specs[slot]).collect();
        if !self.order.numbers.is_empty() {
            let places = &self.lookup().places;
            specs.sort_by_key(|spec| places.get(usize::from(spec.site)).copied().flatten());
        }
        specs
    }
}
