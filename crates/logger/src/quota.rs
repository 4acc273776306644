//! How much the processes of a site may write into the error log in the long run, whatever they say in a second and
//! however often they start anew.
//!
//! Runs in: the logger. Sees: labels, which the launcher gives. Never: takes from one site what another has written.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// LIMIT: bytes that a site may write at once: some hundred thousand lines.
pub(crate) const BYTES_MAX: u64 = 256 << 20;
/// LIMIT: bytes that come back in a second: 345 MiB a day.
pub(crate) const BYTES_PER_SECOND: u64 = 4 << 10;
/// LIMIT: sites that are remembered before those that have written nothing for long are forgotten.
const SITES_MAX: usize = 4096;

/// The remaining quota of a site, and when that was.
#[derive(Clone, Copy, Debug)]
struct RemainingQuota {
    bytes: u64,
    at: Instant,
}

impl RemainingQuota {
    fn now(self, now: Instant) -> Self {
        let came = now.saturating_duration_since(self.at);
        // Parts of a second are kept for later.
        let seconds = came.as_secs();
        let bytes = self.bytes.saturating_add(seconds.saturating_mul(BYTES_PER_SECOND)).min(BYTES_MAX);
        Self { bytes, at: self.at + Duration::from_secs(seconds) }
    }
}

/// The remaining quotas of all sites.
#[derive(Debug, Default)]
pub(crate) struct Quotas(HashMap<String, RemainingQuota>);

impl Quotas {
    /// Whether so many bytes may be written of who has this label, which are taken from its site's.
    pub(crate) fn take(&mut self, label: &str, bytes: usize, now: Instant) -> bool {
        let site = site_of(label);
        if !self.0.contains_key(site) {
            if self.0.len() >= SITES_MAX {
                self.0.retain(|_, left| left.now(now).bytes < BYTES_MAX);
            }
            self.0.insert(site.to_owned(), RemainingQuota { bytes: BYTES_MAX, at: now });
        }
        let Some(left) = self.0.get_mut(site) else { return true };
        *left = left.now(now);
        let Some(rest) = left.bytes.checked_sub(bytes as u64) else { return false };
        left.bytes = rest;
        true
    }
}

/// The site of a process: `main` of `site main`, `service main/shop` and `dataproxy main/catalog`; or the label itself,
/// of a process that is of no site.
fn site_of(label: &str) -> &str {
    let name = label.split_once(' ').map_or(label, |(_, name)| name);
    name.split(['/', ':', ' ']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_one_quota_for_all_of_its_processes_and_gets_it_back_slowly() {
        let (mut quotas, now) = (Quotas::default(), Instant::now());
        let half = (BYTES_MAX / 2) as usize;
        assert!(
            quotas.take("service main/shop", half, now) && quotas.take("dataproxy main/catalog", half, now)
        );
        for label in ["site main", "service main/shop", "connector main/shop"] {
            assert!(!quotas.take(label, 1, now), "{label}");
        }
        assert!(quotas.take("service other/shop", half, now) && quotas.take("gate", half, now));
        let later = now + Duration::from_millis(2500);
        assert!(
            quotas.take("site main", 2 * BYTES_PER_SECOND as usize, later)
                && !quotas.take("site main", 1, later)
        );
        let third = now + Duration::from_secs(3);
        assert!(
            quotas.take("site main", BYTES_PER_SECOND as usize, third) && !quotas.take("site main", 1, third)
        );
        // No more comes back than there was.
        let days = now + Duration::from_secs(1_000_000);
        assert!(quotas.take("site main", 2 * half, days) && !quotas.take("site main", 1, days));
    }

    #[test]
    fn sites_that_write_nothing_are_forgotten() {
        let (mut quotas, now) = (Quotas::default(), Instant::now());
        for number in 0..SITES_MAX {
            quotas.take(&format!("site s{number}"), 1, now);
        }
        quotas.take("site one-more", 1, now + Duration::from_secs(1));
        assert_eq!(quotas.0.len(), 1);
    }
}
