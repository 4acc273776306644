//! The table: every attempt there is, by the lists of the threat model.
//!
//! Runs in: the probe. Never: holds an attempt that cannot succeed anywhere.

mod abi;
mod devices;
mod escape;
mod execute;
mod files;
mod identity;
mod inherited;
mod ipc;
mod kernel;
mod limits;
mod mounts;
mod namespaces;
mod network;
mod processes;
mod resources;
mod scheduling;
mod sweep;
mod terminal;

pub(crate) use limits::{ambient_set, bounding_set};

use crate::attempt::Attempt;

/// Every attempt, in parts.
pub const ALL: &[&[Attempt]] = &[
    inherited::ATTEMPTS,
    limits::ATTEMPTS,
    processes::ATTEMPTS,
    scheduling::ATTEMPTS,
    files::ATTEMPTS,
    escape::ATTEMPTS,
    mounts::ATTEMPTS,
    network::ATTEMPTS,
    ipc::ATTEMPTS,
    namespaces::ATTEMPTS,
    kernel::ATTEMPTS,
    sweep::ATTEMPTS,
    abi::ATTEMPTS,
    execute::ATTEMPTS,
    devices::ATTEMPTS,
    terminal::ATTEMPTS,
    resources::ATTEMPTS,
    identity::ATTEMPTS,
];

/// Every attempt.
pub fn all() -> impl Iterator<Item = &'static Attempt> {
    ALL.iter().flat_map(|part| part.iter())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_is_complete_and_has_its_own_name() {
        let ids: BTreeSet<_> = all().map(|attempt| attempt.id).collect();
        assert_eq!(ids.len(), all().count());
        for attempt in all() {
            assert!(('A'..='G').contains(&attempt.group), "{}", attempt.id);
            assert!(!attempt.name.is_empty() && !attempt.closed_by.is_empty(), "{}", attempt.id);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(attempt.id.chars().all(plain), "{}", attempt.id);
        }
        for group in 'A'..='G' {
            assert!(all().any(|attempt| attempt.group == group), "{group}");
        }
    }
}
