//! Which system calls each kind of process may make: tables, with the reason for every rule.
//!
//! Runs in: the launcher, which compiles them. Sees nothing. Never: lists what a process was not seen to need
//! (roles) or what reaches out of its partition (services).
//!
//! Roles get a strict list: what `strace` shows of them at start, at work and at their end, in every test, and no
//! more. Services are programs that we do not know; their list is broad, without anything that makes namespaces,
//! keeps secrets for others (keyrings), watches or controls other processes, or opens parts of the kernel that only
//! system software needs.

mod roles;
mod services;

use std::slice::Iter;

/// Calls that are allowed under the same conditions for the same reason.
#[derive(Debug)]
pub struct Allow {
    /// Their numbers.
    pub calls: &'static [i64],
    /// What must hold of their arguments; all of it.
    pub when: &'static [When],
    /// Why they are on the list.
    pub why: &'static str,
}

/// What must hold of an argument, counted from nought.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Its lower half is this.
    Is(u8, u64),
    /// Of its lower half, the bits of the mask are as given: argument, mask, bits.
    Bits(u8, u64, u64),
    /// The whole of it is this.
    Exactly(u8, u64),
}

/// Which processes a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Accepts connections, reads their first bytes, passes them on.
    Gate,
    /// Serves files and relays requests.
    Site,
    /// Writes logs.
    Logger,
    /// Takes orders on a socket.
    Admin,
    /// Holds keys, and signs with them.
    Signer,
    /// Connects a site with its upstreams.
    Connector {
        /// Whether some of them have an IP address.
        tcp: bool,
    },
    /// Asks responders about certificates.
    Stapler,
    /// A program of a site, with the kinds of network socket that it was granted.
    Service {
        /// Streams (TCP).
        tcp: bool,
        /// Datagrams (UDP).
        udp: bool,
    },
}

impl Policy {
    /// Its rules.
    pub fn rules(self) -> impl Iterator<Item = &'static Allow> {
        self.tables().iter().flat_map(|table| -> Iter<'_, Allow> { table.iter() })
    }

    fn tables(self) -> &'static [&'static [Allow]] {
        use services::{DATAGRAMS, PROGRAM, STREAMS};
        match self {
            Self::Gate => &[roles::EVERY, roles::GATE],
            Self::Site => &[roles::EVERY, roles::SITE],
            Self::Logger => &[roles::EVERY, roles::LOGGER],
            Self::Admin => &[roles::EVERY, roles::ADMIN],
            // Messages, and nothing else.
            Self::Signer => &[roles::EVERY],
            Self::Connector { tcp: false } => &[roles::EVERY, roles::CONNECTOR],
            Self::Connector { tcp: true } => &[roles::EVERY, roles::CONNECTOR, roles::TCP],
            Self::Stapler => &[roles::EVERY, roles::TCP, roles::STAPLER],
            Self::Service { tcp: false, udp: false } => &[PROGRAM],
            Self::Service { tcp: true, udp: false } => &[PROGRAM, STREAMS],
            Self::Service { tcp: false, udp: true } => &[PROGRAM, DATAGRAMS],
            Self::Service { tcp: true, udp: true } => &[PROGRAM, STREAMS, DATAGRAMS],
        }
    }
}

/// The bit of `mmap`'s and `mprotect`'s third argument that makes memory executable.
const EXECUTABLE: u64 = libc::PROT_EXEC as u64;
/// The bit that makes it writable.
const WRITABLE: u64 = libc::PROT_WRITE as u64;

const fn allow(calls: &'static [i64], why: &'static str) -> Allow {
    Allow { calls, when: &[], why }
}

const fn allow_when(calls: &'static [i64], when: &'static [When], why: &'static str) -> Allow {
    Allow { calls, when, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;

    const ALL: [Policy; 10] = [
        Policy::Gate,
        Policy::Site,
        Policy::Logger,
        Policy::Admin,
        Policy::Signer,
        Policy::Connector { tcp: false },
        Policy::Connector { tcp: true },
        Policy::Stapler,
        Policy::Service { tcp: false, udp: false },
        Policy::Service { tcp: true, udp: true },
    ];

    #[test]
    fn every_policy_compiles() {
        for policy in ALL {
            assert!(Filter::of(policy).is_ok(), "{policy:?}");
        }
    }

    #[test]
    fn every_rule_has_a_reason_and_stands_once() {
        for policy in ALL {
            let mut seen = std::collections::BTreeSet::new();
            for rule in policy.rules() {
                assert!(rule.why.len() > 10, "{rule:?}");
                for call in rule.calls.iter().filter(|_| rule.when.is_empty()) {
                    assert!(seen.insert(*call), "{policy:?} allows call {call} twice");
                }
            }
        }
    }

    #[test]
    fn nothing_that_reaches_out_is_on_a_list() {
        let never = [
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_keyctl,
            libc::SYS_init_module,
            libc::SYS_reboot,
            libc::SYS_clock_settime,
            libc::SYS_open_by_handle_at,
            libc::SYS_process_vm_readv,
            libc::SYS_pidfd_getfd,
            libc::SYS_chroot,
        ];
        for policy in ALL {
            for rule in policy.rules() {
                assert!(!rule.calls.iter().any(|call| never.contains(call)), "{policy:?}: {rule:?}");
            }
        }
    }
}
