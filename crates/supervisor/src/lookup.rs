//! Where slots are found by partition and site, sites by host, and sites by their place in the file: there may be
//! thousands.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: says whether a slot still counts; its life
//! does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use config::{Config, SharedList, Site};
use wire::{NO_PARTITION, Role};

use crate::life::Life;
use crate::spawn::process_spec::ProcessSpec;

/// Made anew after a change; no more is done for a slot than to look at its numbers.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The place of each site in the file, by number; nothing, if their numbers say that.
    pub(crate) places: Vec<Option<u32>>,
    by_partition: Groups,
    by_site: Groups,
}

impl Lookup {
    /// Of these slots.
    pub(crate) fn new<'a>(
        config: &Config,
        order: &[u16],
        specs: impl Iterator<Item = (usize, &'a ProcessSpec, Life)> + Clone,
    ) -> Self {
        let partitioned = specs.clone().filter(|(_, spec, _)| spec.partition != NO_PARTITION);
        let of_sites = specs.clone().filter(|(_, spec, _)| usize::from(spec.site) < config.sites.len());
        Self {
            by_partition: Groups::new(partitioned.map(|(slot, spec, _)| (spec.partition, slot))),
            by_site: Groups::new(of_sites.map(|(slot, spec, _)| (spec.site, slot))),
            places: if order.is_empty() { Vec::new() } else { places(config, order, specs) },
        }
    }

    /// The slots of a partition, the lowest first.
    pub(crate) fn of_partition(&self, partition: u16) -> &[usize] {
        self.by_partition.of(partition)
    }

    /// The slots of a site, the lowest first.
    pub(crate) fn of_site(&self, site: u16) -> &[usize] {
        self.by_site.of(site)
    }
}

/// The place of each site. One that goes, as it has changed, has that of the site which takes its place.
fn places<'a>(
    config: &Config,
    order: &[u16],
    specs: impl Iterator<Item = (usize, &'a ProcessSpec, Life)> + Clone,
) -> Vec<Option<u32>> {
    let mut places = vec![None; config.sites.len()];
    for (&number, place) in order.iter().zip(0..) {
        if let Some(of) = places.get_mut(usize::from(number)) {
            *of = Some(place);
        }
    }
    let of_life = |wanted| {
        let workers = specs.clone().filter(move |(_, spec, life)| *life == wanted && spec.role == Role::Site);
        workers.map(|(_, spec, _)| (spec.name.as_str(), usize::from(spec.site)))
    };
    let new: HashMap<&str, usize> = of_life(Life::Pending).collect();
    for (name, number) in of_life(Life::Leaving) {
        let successor = new.get(name).and_then(|&new| places.get(new).copied().flatten());
        places.get_mut(number).into_iter().for_each(|place| *place = successor);
    }
    places
}

/// Slots by a number.
#[derive(Debug)]
struct Groups {
    /// Where the slots of each number begin; one more, for the end.
    starts: Vec<usize>,
    slots: Vec<usize>,
}

impl Groups {
    fn new(numbered: impl Iterator<Item = (u16, usize)> + Clone) -> Self {
        let mut starts = Vec::new();
        for (number, _) in numbered.clone() {
            let end = usize::from(number) + 2;
            if starts.len() < end {
                starts.resize(end, 0);
            }
            starts[end - 1] += 1;
        }
        for number in 1..starts.len() {
            starts[number] += starts[number - 1];
        }
        let (mut next, mut slots) = (starts.clone(), vec![0; starts.last().copied().unwrap_or_default()]);
        for (number, slot) in numbered {
            let at = &mut next[usize::from(number)];
            slots[*at] = slot;
            *at += 1;
        }
        Self { starts, slots }
    }

    fn of(&self, number: u16) -> &[usize] {
        let number = usize::from(number);
        match (self.starts.get(number), self.starts.get(number + 1)) {
            (Some(&start), Some(&end)) => &self.slots[start..end],
            _ => &[],
        }
    }
}

/// The numbers of sites by their hosts. What has not changed is not looked at when others come and go.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    by_host: HashMap<String, Vec<u16>>,
    with_patterns: BTreeSet<u16>,
}

impl Hosts {
    /// Has some sites, by number, take the place of those that were there.
    pub(crate) fn update(&mut self, old: &SharedList<Arc<Site>>, new: &SharedList<Arc<Site>>) {
        for number in old.differing(new, Arc::ptr_eq) {
            let (before, after) = (old.get(number), new.get(number));
            before.into_iter().for_each(|site| self.remove(number as u16, site));
            after.into_iter().for_each(|site| self.add(number as u16, site));
        }
    }

    /// Has one site take the place of another.
    pub(crate) fn replace(&mut self, number: u16, before: &Site, after: &Site) {
        self.remove(number, before);
        self.add(number, after);
    }

    /// The sites with this host.
    pub(crate) fn of(&self, host: &str) -> &[u16] {
        self.by_host.get(host).map_or(&[], Vec::as_slice)
    }

    /// The sites that have a pattern among their hosts.
    pub(crate) fn with_patterns(&self) -> impl Iterator<Item = u16> {
        self.with_patterns.iter().copied()
    }

    fn add(&mut self, number: u16, site: &Site) {
        for host in &site.hosts {
            self.by_host.entry(host.clone()).or_default().push(number);
        }
        if site.hosts.iter().any(|host| is_pattern(host)) {
            self.with_patterns.insert(number);
        }
    }

    fn remove(&mut self, number: u16, site: &Site) {
        for host in &site.hosts {
            if let Some(of) = self.by_host.get_mut(host) {
                of.retain(|&other| other != number);
                if of.is_empty() {
                    self.by_host.remove(host);
                }
            }
        }
        self.with_patterns.remove(&number);
    }
}

/// Whether a host stands for several.
pub(crate) fn is_pattern(host: &str) -> bool {
    host.contains('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_what_belongs_to_a_number() {
        let all = [(3, 0), (1, 1), (3, 2), (0, 5), (3, 9)];
        let groups = Groups::new(all.into_iter());
        assert_eq!((groups.of(3), groups.of(1), groups.of(0)), (&[0, 2, 9][..], &[1][..], &[5][..]));
        assert_eq!((groups.of(2), groups.of(4), groups.of(u16::MAX)), (&[][..], &[][..], &[][..]));
        assert!(Groups::new(std::iter::empty()).of(0).is_empty());
    }

    #[test]
    fn hosts_follow_sites_that_come_and_go() {
        let sites = |hosts: &[&str]| {
            let site = |(at, host): (usize, &&str)| {
                format!("[[site]]\nname = 's{at}'\nhost = ['{host}']\npath = '/{at}/'\nroot = 'a'\n")
            };
            let text: String = hosts.iter().enumerate().map(site).collect();
            let text = format!("[[listen]]\naddress = '127.0.0.1:1'\n{text}");
            Config::parse(&text, "f", std::path::Path::new("/srv")).unwrap().sites
        };
        let (first, mut hosts) = (sites(&["a", "b", "a", "*.c"]), Hosts::default());
        hosts.update(&SharedList::default(), &first);
        assert_eq!((hosts.of("a"), hosts.of("b"), hosts.of("c")), (&[0, 2][..], &[1][..], &[][..]));
        assert_eq!(hosts.with_patterns().collect::<Vec<_>>(), [3]);
        let mut second = first.clone();
        second.put(0, sites(&["b"])[0].clone());
        second.put(3, sites(&["c"])[0].clone());
        hosts.update(&first, &second);
        assert_eq!((hosts.of("a"), hosts.of("b"), hosts.of("c")), (&[2][..], &[1, 0][..], &[3][..]));
        assert_eq!(hosts.with_patterns().count(), 0);
        hosts.replace(2, &second[2], &first[3]);
        assert_eq!((hosts.of("a"), hosts.with_patterns().collect::<Vec<_>>()), (&[][..], vec![2]));
        hosts.replace(2, &first[3], &second[2]);
        hosts.update(&second, &second.iter().take(1).cloned().collect());
        assert_eq!((hosts.of("b"), hosts.by_host.len()), (&[0][..], 1));
    }
}
