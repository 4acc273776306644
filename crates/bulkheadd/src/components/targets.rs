//! The numbers by which orders name what there is: sites, services, roles, single workers of them.
//!
//! Runs in: the launcher. Sees: names of the checked configuration. Never: gives a number a second time, as an order
//! that is on its way may still have it; keeps the name of what is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use wire::successor::LauncherToSuccessor;
use wire::{Role, Text};

use supervisor::Supervisor;
use supervisor::life::Life;
use supervisor::spawn::process_spec::{ProcessSpec, WORKER_OF};
use supervisor::upgrade::{Handed, Record};

/// LIMIT: numbers without a name that are written down each for itself, as launchers of the version before read them.
const UNNAMED_EACH: usize = 1000;

/// Names, and the slots that they stand for.
#[derive(Debug, Default)]
pub struct Targets {
    named: BTreeMap<u32, (String, Vec<usize>)>,
    /// Where each name is among them.
    numbers: HashMap<String, u32>,
    /// The next number; every number below it is or was a name's.
    next: u32,
}

/// What a change has done to the names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Renamed<'a> {
    /// Those that stand for something now, and stood for nothing before.
    pub(crate) new: Vec<(u32, &'a str)>,
    /// The numbers of those that stand for nothing any more.
    pub(crate) gone: Vec<u32>,
}

impl Targets {
    /// The names of these slots.
    pub(crate) fn new<'a>(specs: impl Iterator<Item = (usize, &'a ProcessSpec)>) -> Self {
        let mut new = Self::default();
        new.add(&specs.collect::<Vec<_>>());
        new
    }

    /// Writes down the numbers of all names.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        self.items().into_iter().for_each(|item| record.add(item));
    }

    /// The names in the order of their numbers. A number that no name has any more is a name without a letter; many of
    /// them, which a server has that sites come to and leave for years, are said in one.
    fn items(&self) -> Vec<LauncherToSuccessor> {
        let says_each = (self.next as usize).saturating_sub(self.named.len()) <= UNNAMED_EACH;
        let (mut items, mut number) = (Vec::new(), 0);
        let ends = self.named.iter().map(|(at, (name, _))| (*at, Some(name))).chain([(self.next, None)]);
        for (at, name) in ends {
            let count = at - number;
            match says_each {
                true => items.extend((0..count).map(|_| LauncherToSuccessor::Target { name: Text::new("") })),
                false if count > 0 => items.push(LauncherToSuccessor::Unnamed { count }),
                false => {}
            }
            items.extend(name.map(|name| LauncherToSuccessor::Target { name: Text::new(name) }));
            number = at + 1;
        }
        items
    }

    /// The names of a launcher before, which stand for nothing yet.
    fn of_items<'i>(items: impl Iterator<Item = &'i LauncherToSuccessor>) -> Self {
        let mut known = Self::default();
        for item in items {
            match item {
                LauncherToSuccessor::Target { name } => drop(known.number_of(name.as_str().to_owned())),
                LauncherToSuccessor::Unnamed { count } => known.next = known.next.saturating_add(*count),
                _ => {}
            }
        }
        known
    }

    /// The table of the launcher before, in which the names have the same numbers.
    pub(crate) fn resume(handed: &Handed, supervisor: &Supervisor) -> Self {
        let mut known = Self::of_items(handed.items());
        let slots = supervisor.specs().iter().enumerate();
        let serving = slots.filter(|(slot, _)| supervisor.slot(*slot).life == Life::Serving);
        known.add(&serving.collect::<Vec<_>>());
        known.forget(known.named.keys().copied().collect());
        known
    }

    /// Has names stand for these slots no more, and for others from here on.
    pub(crate) fn change(
        &mut self,
        removed: &[(usize, &ProcessSpec)],
        added: &[(usize, &ProcessSpec)],
    ) -> Renamed<'_> {
        let mut left = BTreeSet::new();
        for (slot, spec) in removed {
            let names = [&spec.name, &spec.numbered_name()];
            for number in names.into_iter().filter_map(|name| self.numbers.get(name)) {
                if let Some((_, slots)) = self.named.get_mut(number) {
                    slots.retain(|known| known != slot);
                }
                left.insert(*number);
            }
        }
        let before = self.next;
        self.add(added);
        let gone = self.forget(left);
        let new = self.named.range(before..).map(|(number, (name, _))| (*number, &**name));
        Renamed { new: new.collect(), gone }
    }

    fn add(&mut self, specs: &[(usize, &ProcessSpec)]) {
        for (name, slot) in names_of(specs) {
            let number = self.number_of(name);
            if let Some((_, slots)) = self.named.get_mut(&number) {
                let at = slots.partition_point(|&other| other < slot);
                slots.insert(at, slot);
            }
        }
    }

    /// The number of a name, a new one if it has none.
    fn number_of(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        if !name.is_empty() {
            self.numbers.insert(name.clone(), number);
            self.named.insert(number, (name, Vec::new()));
        }
        number
    }

    /// Forgets those that stand for nothing; which these are.
    fn forget(&mut self, numbers: BTreeSet<u32>) -> Vec<u32> {
        let is_over = |number: &u32| self.named.get(number).is_some_and(|(_, slots)| slots.is_empty());
        let gone: Vec<u32> = numbers.into_iter().filter(is_over).collect();
        for number in &gone {
            if let Some((name, _)) = self.named.remove(number) {
                self.numbers.remove(&name);
            }
        }
        gone
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str)> {
        self.named.iter().map(|(number, (name, _))| (*number, &**name))
    }

    /// The names that stand for all of their slots.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all().map(|(_, name)| name).filter(|name| !name.contains(WORKER_OF))
    }

    /// The name and the slots of a number; no slots, if it has gone with a change of the configuration. `None` if it
    /// never was one.
    pub fn target(&self, number: u32) -> Option<(&str, &[usize])> {
        match self.named.get(&number) {
            Some((name, slots)) => Some((name, slots)),
            None => (number < self.next).then_some(("", &[])),
        }
    }

    /// The slots of a number, likewise.
    pub fn slots(&self, number: u32) -> Option<&[usize]> {
        self.target(number).map(|(_, slots)| slots)
    }

    /// The slots that a name stands for.
    pub fn slots_of(&self, name: &str) -> Vec<usize> {
        let number = self.numbers.get(name);
        number.and_then(|number| self.slots(*number)).unwrap_or_default().to_vec()
    }
}

/// The names that stand for slots: one for all slots of a name, and where a partition has several workers, one for each
/// of them.
fn names_of(specs: &[(usize, &ProcessSpec)]) -> Vec<(String, usize)> {
    let beside = specs.iter().filter(|(_, spec)| !spec.is_first());
    let several: HashSet<(Role, &str)> = beside.map(|(_, spec)| (spec.role, &*spec.name)).collect();
    let mut names = Vec::new();
    for &(slot, spec) in specs {
        names.push((spec.name.clone(), slot));
        if several.contains(&(spec.role, &*spec.name)) {
            names.push((spec.numbered_name(), slot));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(role: Role, name: &str, worker: u16) -> ProcessSpec {
        let (partition, site, index, generation) = (0, 0, 0, 0);
        ProcessSpec { role, name: name.into(), partition, site, index, worker, generation, identity: None }
    }

    #[test]
    fn each_of_several_workers_has_a_name_beside_that_of_all() {
        let (site, service) =
            (spec(Role::Site, "main", 0), |worker| spec(Role::Service, "main/search", worker));
        let gate = spec(Role::Gate, "gate", 0);
        let mut targets = Targets::new([&gate, &gate, &site].into_iter().enumerate());
        assert_eq!(targets.names().collect::<Vec<_>>(), ["gate", "main"]);
        assert_eq!((targets.slots_of("gate"), targets.slots_of("gate#2")), (vec![0, 1], vec![]));
        let services = [service(0), service(1)];
        let added = [(3, &services[0]), (4, &services[1])];
        let renamed = targets.change(&[(0, &gate), (1, &gate)], &added);
        assert_eq!(renamed.new, [(2, "main/search"), (3, "main/search#1"), (4, "main/search#2")]);
        assert_eq!(renamed.gone, [0]);
        let slots = |name| targets.slots_of(name);
        assert_eq!((slots("main/search"), slots("main")), (vec![3, 4], vec![2]));
        assert_eq!(
            (slots("main/search#1"), slots("main/search#2"), slots("main#1")),
            (vec![3], vec![4], vec![])
        );
        assert_eq!(targets.names().collect::<Vec<_>>(), ["main", "main/search"]);
        assert_eq!(targets.all().count(), 4);
    }

    #[test]
    fn a_name_that_is_gone_is_forgotten_and_its_number_is_nobodys() {
        let mut targets = Targets::new([&spec(Role::Gate, "gate", 0)].into_iter().enumerate());
        for round in 1..=1000u32 {
            let site = spec(Role::Site, &format!("s{round}"), 0);
            assert_eq!(targets.change(&[], &[(1, &site)]).new, [(round, &*site.name)]);
            assert_eq!(targets.slots(round), Some(&[1][..]));
            assert_eq!(targets.change(&[(1, &site)], &[]), Renamed { new: vec![], gone: vec![round] });
            assert_eq!(targets.slots(round), Some(&[][..]));
        }
        assert_eq!((targets.named.len(), targets.numbers.len()), (1, 1));
        assert_eq!(targets.target(1001), None);
    }

    #[test]
    fn a_record_has_what_lives_and_how_much_does_not() {
        let sites = |numbers: std::ops::Range<u32>| {
            numbers.map(|number| spec(Role::Site, &format!("s{number}"), 0)).collect::<Vec<_>>()
        };
        for (gone, items) in
            [(0..0, 10), (3..5, 12), (0..10, 20), (0..1000, 1010), (0..1001, 11), (5..3005, 11)]
        {
            let all = sites(0..gone.len() as u32 + 10);
            let mut targets = Targets::new(all.iter().enumerate());
            let removed: Vec<_> = all.iter().enumerate().filter(|(at, _)| gone.contains(at)).collect();
            targets.change(&removed, &[]);
            let written = targets.items();
            assert_eq!(written.len(), items, "{gone:?}");
            let read = Targets::of_items(written.iter());
            assert_eq!((read.next, &read.numbers), (targets.next, &targets.numbers), "{gone:?}");
        }
    }

    #[test]
    fn a_name_that_stays_keeps_its_number() {
        let site = spec(Role::Site, "blog", 0);
        let mut targets = Targets::new([&site].into_iter().enumerate());
        assert_eq!(targets.change(&[(0, &site)], &[(7, &site)]), Renamed::default());
        assert_eq!(targets.target(0), Some(("blog", &[7][..])));
    }
}
