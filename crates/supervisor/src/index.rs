//! The processes by their roles and sites: a start looks at those that it has to do with, and not at all there are.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: knows a process that the supervisor does not.

use std::collections::{BTreeMap, BTreeSet};

use wire::Role;

use crate::spawn::process_spec::ProcessSpec;

/// Serial numbers of processes.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_role: BTreeMap<Role, BTreeSet<u64>>,
    /// Those of no site are those of [`wire::NO_PARTITION`].
    by_site: BTreeMap<u16, BTreeSet<u64>>,
}

impl Index {
    /// Adds a process.
    pub(crate) fn insert(&mut self, spec: &ProcessSpec, serial: u64) {
        self.by_role.entry(spec.role).or_default().insert(serial);
        self.by_site.entry(spec.site).or_default().insert(serial);
    }

    /// Removes a process.
    pub(crate) fn remove(&mut self, spec: &ProcessSpec, serial: u64) {
        self.by_role.get_mut(&spec.role).map(|of| of.remove(&serial));
        if let Some(of) = self.by_site.get_mut(&spec.site) {
            of.remove(&serial);
            if of.is_empty() {
                self.by_site.remove(&spec.site);
            }
        }
    }

    /// The processes of a role, in the order in which they were started.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = u64> {
        self.by_role.get(&role).into_iter().flatten().copied()
    }

    /// The processes of a site.
    pub(crate) fn of_site(&self, site: u16) -> impl Iterator<Item = u64> {
        self.by_site.get(&site).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_role_and_site_until_they_are_removed() {
        let spec = |role, site| ProcessSpec {
            role,
            name: String::new(),
            partition: site,
            site,
            index: 0,
            worker: 0,
            generation: 0,
            identity: None,
        };
        let (worker, service) = (spec(Role::Site, 1), spec(Role::Service, 1));
        let (other, gate) = (spec(Role::Site, 2), spec(Role::Gate, wire::NO_PARTITION));
        let all = [(7, &other), (3, &worker), (5, &service), (4, &gate), (9, &worker)];
        let mut index = Index::default();
        all.iter().for_each(|(serial, spec)| index.insert(spec, *serial));
        assert_eq!(index.of_role(Role::Site).collect::<Vec<_>>(), [3, 7, 9]);
        assert_eq!(index.of_site(1).collect::<Vec<_>>(), [3, 5, 9]);
        index.remove(&worker, 3);
        assert_eq!(index.of_role(Role::Site).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(index.of_site(1).collect::<Vec<_>>(), [5, 9]);
        index.remove(&other, 7);
        assert_eq!((index.of_site(2).count(), index.of_role(Role::Admin).count()), (0, 0));
    }
}
