//! Which sites serve, in the order of the file.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: says anything of a site that has gone.

use std::sync::Arc;

use config::{SharedList, Site};

/// The sites that serve, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct SiteOrder {
    /// Their numbers; none, if the sites are in order at their numbers.
    pub numbers: Vec<u16>,
    /// The sites themselves.
    pub sites: SharedList<Arc<Site>>,
}

impl SiteOrder {
    /// These numbers, of sites by their number.
    pub fn of(numbers: Vec<u16>, numbered: &SharedList<Arc<Site>>) -> Self {
        let sites = numbers.iter().map(|&number| numbered[usize::from(number)].clone()).collect();
        Self { numbers, sites }
    }
}
