//! Every host and path that there is, with the process that answers; found by host, as there may be thousands.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: changes what it was made of.

use std::collections::HashMap;

use config::Config;
use wire::{NO_PARTITION, Role};

use crate::spawn::process_spec::ProcessSpec;

/// A host and a path, and whose requests for them are.
#[derive(Clone, Copy, Debug)]
pub struct Routed<'a> {
    /// The host.
    pub host: &'a str,
    /// The path.
    pub path: &'a str,
    /// The site or the service.
    pub spec: &'a ProcessSpec,
}

/// See the file's head.
#[derive(Debug)]
pub struct RouteTable<'a> {
    /// In the order of the file.
    all: Vec<Routed<'a>>,
    /// Where those of a host are among them.
    by_host: HashMap<&'a str, Vec<usize>>,
    /// The processes of each site.
    of_site: HashMap<u16, Vec<&'a ProcessSpec>>,
}

impl<'a> RouteTable<'a> {
    /// The table of these processes.
    pub fn new(config: &'a Config, specs: &[&'a ProcessSpec]) -> Self {
        let mut table = Self { all: Vec::new(), by_host: HashMap::new(), of_site: HashMap::new() };
        for &spec in specs {
            let Some(site) = config.sites.get(usize::from(spec.site)) else { continue };
            table.of_site.entry(spec.site).or_default().push(spec);
            if !spec.role.is_worker() {
                continue;
            }
            let path = if spec.role == Role::Service { &site.services[spec.index].path } else { &site.path };
            for host in &site.hosts {
                table.by_host.entry(host).or_default().push(table.all.len());
                table.all.push(Routed { host, path, spec });
            }
        }
        table
    }

    /// All of it.
    pub fn all(&self) -> &[Routed<'a>] {
        &self.all
    }

    /// Those of these hosts, and if one of them is a pattern, all, in the order of the file.
    pub fn of_hosts(&self, hosts: &[String]) -> Vec<Routed<'a>> {
        if hosts.iter().any(|host| host.contains('*')) {
            return self.all.clone();
        }
        let found = hosts.iter().filter_map(|host| self.by_host.get(host.as_str())).flatten();
        let mut found: Vec<usize> = found.copied().collect();
        found.sort_unstable();
        found.into_iter().map(|at| self.all[at]).collect()
    }

    /// The processes of a site.
    pub fn of_site(&self, site: u16) -> &[&'a ProcessSpec] {
        self.of_site.get(&site).map_or(&[], Vec::as_slice)
    }

    /// The partition of a site's worker.
    pub fn partition_of(&self, site: u16) -> u16 {
        let worker = self.of_site(site).iter().find(|spec| spec.role == Role::Site);
        worker.map_or(NO_PARTITION, |spec| spec.partition)
    }
}
