//! Where slots are found by partition, site and host, and sites by their place in the file: there may be thousands.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: says whether a slot still counts; its life does.

use std::collections::HashMap;

use config::Config;
use wire::{NO_PARTITION, Role};

use crate::spawn::process_spec::ProcessSpec;

/// Made anew after a change.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The place of each site in the file, by name; nothing, if their numbers say that.
    pub(crate) places: HashMap<String, usize>,
    by_partition: HashMap<u16, Vec<usize>>,
    by_site: HashMap<u16, Vec<usize>>,
    /// Sites and services by the hosts of their sites.
    by_host: HashMap<String, Vec<usize>>,
}

impl Lookup {
    /// Of these slots.
    pub(crate) fn new<'a>(
        config: &Config,
        order: &[String],
        specs: impl Iterator<Item = (usize, &'a ProcessSpec)>,
    ) -> Self {
        let places = order.iter().cloned().zip(0..).collect();
        let mut lookup =
            Self { places, by_partition: HashMap::new(), by_site: HashMap::new(), by_host: HashMap::new() };
        for (slot, spec) in specs {
            if spec.partition != NO_PARTITION {
                lookup.by_partition.entry(spec.partition).or_default().push(slot);
            }
            let Some(site) = config.sites.get(usize::from(spec.site)) else { continue };
            lookup.by_site.entry(spec.site).or_default().push(slot);
            if matches!(spec.role, Role::Site | Role::Service) {
                for host in &site.hosts {
                    lookup.by_host.entry(host.clone()).or_default().push(slot);
                }
            }
        }
        lookup
    }

    /// The slots of a partition.
    pub(crate) fn of_partition(&self, partition: u16) -> &[usize] {
        self.by_partition.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// The slots of sites and services with a host.
    pub(crate) fn of_host(&self, host: &str) -> &[usize] {
        self.by_host.get(host).map_or(&[], Vec::as_slice)
    }

    /// The slots of a site.
    pub(crate) fn of_site(&self, site: u16) -> &[usize] {
        self.by_site.get(&site).map_or(&[], Vec::as_slice)
    }
}
