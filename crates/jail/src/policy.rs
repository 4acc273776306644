//! Which system calls each kind of process may make: tables, with the reason for every rule.
//!
//! Runs in: the launcher, which compiles them. Sees nothing. Never: lists what a process was not seen to need
//! (roles) or what reaches out of its partition (services).
//!
//! Roles get a strict list: what `strace` shows of them at start, at work and at their end, in every test, and no
//! more. Services are programs that we do not know; their list is broad, without anything that makes namespaces,
//! keeps secrets for others (keyrings), watches or controls other processes, or opens parts of the kernel that only
//! system software needs.

mod keeper;
mod lists;
mod roles;
mod services;

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
    /// Its lower half is one of these.
    In(u8, &'static [u64]),
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
    /// Connects a site with its upstreams, or a service with what `network` grants.
    Connector {
        /// Whether some upstreams have a Unix socket.
        unix: bool,
        /// Whether anything is reached by TCP.
        tcp: bool,
        /// Whether anything is reached by UDP.
        udp: bool,
        /// Whether some upstreams have names, for which DNS servers are asked.
        names: bool,
    },
    /// Answers the calls by which a service makes and connects sockets.
    Broker,
    /// Asks responders about certificates.
    Stapler,
    /// Works on a database.
    DataProxy {
        /// Whether that is at a server, to which another process connects; else it is in a folder of the proxy's own.
        server: bool,
    },
    /// Reads the templates of a site.
    Publisher,
    /// Copies a core file, or inspects a program.
    Keeper,
    /// Ends processes when their launcher has died.
    Reaper,
    /// A program of a site, or a filter.
    Service(Grants),
}

/// The kinds of process, as tables of their calls are called; each other policy is one of these with more or less
/// granted.
pub const KINDS: &[(&str, Policy)] = &[
    ("gate", Policy::Gate),
    ("site", Policy::Site),
    ("logger", Policy::Logger),
    ("admin", Policy::Admin),
    ("signer", Policy::Signer),
    ("stapler", Policy::Stapler),
    ("connector", Policy::Connector { unix: true, tcp: true, udp: false, names: false }),
    ("connector-unix", Policy::Connector { unix: true, tcp: false, udp: false, names: false }),
    ("connector-names", Policy::Connector { unix: true, tcp: true, udp: false, names: true }),
    ("connector-of-service", Policy::Connector { unix: false, tcp: true, udp: true, names: false }),
    ("broker", Policy::Broker),
    ("dataproxy", Policy::DataProxy { server: false }),
    ("dataproxy-at-server", Policy::DataProxy { server: true }),
    ("publisher", Policy::Publisher),
    ("keeper", Policy::Keeper),
    ("reaper", Policy::Reaper),
    ("service", Policy::Service(Grants::NONE)),
    ("service-network", Policy::Service(Grants { tcp: true, udp: true, jit: false })),
    ("service-jit", Policy::Service(Grants { tcp: false, udp: false, jit: true })),
];

/// What a program may do besides what every program may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Have streams over IP (TCP) made for it.
    pub tcp: bool,
    /// Have sockets for datagrams over IP (UDP) made for it.
    pub udp: bool,
    /// Make code while it runs.
    pub jit: bool,
}

impl Grants {
    /// Nothing besides.
    pub const NONE: Self = Self { tcp: false, udp: false, jit: false };
}

/// What becomes of a call under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel makes it.
    Allowed,
    /// The service's broker answers it; the kernel does not make it.
    Notified,
    /// It fails.
    Refused,
}

/// The calls of a program with network grants that its broker answers: what is allowed of them is never made by the
/// kernel in the program's name, so that neither a race for the address in its memory nor a socket that belongs to
/// another network gets it any further.
pub const NOTIFIED: &[i64] = &[libc::SYS_socket, libc::SYS_connect];

impl Policy {
    /// Its rules.
    pub fn rules(self) -> impl Iterator<Item = &'static Allow> {
        self.tables().into_iter().flatten()
    }

    /// What becomes of a call with these arguments: the tables as they are compiled, for whoever compares.
    pub fn answer(self, call: i64, arguments: [u64; 6]) -> Answer {
        match self.rules().any(|rule| rule.covers(call, &arguments)) {
            true if self.notifies() && NOTIFIED.contains(&call) => Answer::Notified,
            true => Answer::Allowed,
            false => Answer::Refused,
        }
    }

    /// Whether calls of such a process are answered by a broker.
    pub fn notifies(self) -> bool {
        matches!(self, Self::Service(Grants { tcp: true, .. } | Grants { udp: true, .. }))
    }

    fn tables(self) -> Vec<&'static [Allow]> {
        let given = |table: &'static [Allow], given: bool| if given { table } else { &[] };
        match self {
            Self::Gate => vec![roles::EVERY, roles::CLOSING, roles::GATE],
            Self::Site => vec![roles::EVERY, roles::CLOSING, roles::SITE],
            Self::Logger => vec![roles::EVERY, roles::CLOSING, roles::LOGGER],
            Self::Admin => vec![roles::EVERY, roles::CLOSING, roles::ADMIN],
            // Messages, and nothing else.
            Self::Signer => vec![roles::EVERY, roles::CLOSING],
            Self::Connector { unix, tcp, udp, names } => vec![
                roles::EVERY,
                roles::CLOSING,
                roles::CONNECTOR,
                given(roles::UNIX, unix),
                given(roles::TCP, tcp),
                given(roles::AIM, tcp),
                given(roles::UDP, udp),
                given(roles::ASKING, names),
            ],
            Self::Broker => vec![roles::EVERY, roles::CLOSING, roles::BROKER],
            Self::DataProxy { server: false } => vec![roles::EVERY, roles::CLOSING, roles::DATA_PROXY],
            Self::DataProxy { server: true } => {
                vec![roles::EVERY, roles::CLOSING, roles::DATA_PROXY_AT_SERVER]
            }
            Self::Publisher => vec![roles::EVERY, roles::CLOSING, roles::PUBLISHER],
            Self::Keeper => vec![roles::EVERY, keeper::KEEPER],
            Self::Reaper => vec![roles::EVERY, roles::REAPER],
            Self::Stapler => vec![roles::EVERY, roles::CLOSING, roles::TCP, roles::STAPLER, roles::ASKING],
            Self::Service(Grants { tcp, udp, jit }) => vec![
                services::PROGRAM,
                given(services::CONNECT, tcp || udp),
                given(roles::TCP, tcp),
                given(roles::UDP, udp),
                given(services::JIT, jit),
            ],
        }
    }
}

impl Allow {
    /// Whether it is about this call and allows it with these arguments.
    pub fn covers(&self, call: i64, arguments: &[u64; 6]) -> bool {
        self.calls.contains(&call) && self.when.iter().all(|when| when.holds(arguments))
    }
}

impl When {
    fn holds(self, arguments: &[u64; 6]) -> bool {
        let lower = |argument: u8| arguments[usize::from(argument)] & u64::from(u32::MAX);
        match self {
            Self::Is(argument, value) => lower(argument) == value,
            Self::In(argument, values) => values.contains(&lower(argument)),
            Self::Bits(argument, mask, bits) => lower(argument) & mask == bits,
            Self::Exactly(argument, value) => arguments[usize::from(argument)] == value,
        }
    }
}

/// The flags with which anybody sends: it does not wait, gets no signal, says that more follows, ends a record.
///
/// SECURITY: not MSG_FASTOPEN, which connects, past Landlock; nor MSG_OOB.
const SENDING: u64 = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR) as u64;
/// All flags but those.
///
/// The receiving calls have no such condition: no flag of theirs connects, makes a socket or sends. Without one the
/// kernel answers from its table of calls that are allowed whatever their arguments, and runs no program.
const NO_OTHER_SENDING: u64 = !SENDING & 0xffff_ffff;

/// The second argument of `socket` without the flags that may come with a type.
const TYPE: u64 = !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u64 & 0xffff_ffff;
const STREAM: When = When::Bits(1, TYPE, libc::SOCK_STREAM as u64);
const DATAGRAM: When = When::Bits(1, TYPE, libc::SOCK_DGRAM as u64);
/// The two versions of IP.
const INTERNET: When = When::In(0, &[libc::AF_INET as u64, libc::AF_INET6 as u64]);

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

    /// One of each kind, and programs with one grant each.
    fn all() -> impl Iterator<Item = Policy> {
        let granted = |tcp, udp, jit| Policy::Service(Grants { tcp, udp, jit });
        let kinds = KINDS.iter().map(|(_, policy)| *policy);
        kinds.chain([granted(true, false, false), granted(false, true, false), granted(true, true, true)])
    }

    /// A policy that is not named here does not compile: it is to be one of the kinds as well.
    #[test]
    fn every_policy_is_a_kind() {
        let number = |policy: &Policy| match policy {
            Policy::Gate => 0,
            Policy::Site => 1,
            Policy::Logger => 2,
            Policy::Admin => 3,
            Policy::Signer => 4,
            Policy::Stapler => 5,
            Policy::Connector { .. } => 6,
            Policy::Broker => 7,
            Policy::DataProxy { .. } => 8,
            Policy::Publisher => 9,
            Policy::Keeper => 10,
            Policy::Reaper => 11,
            Policy::Service(_) => 12,
        };
        let found: std::collections::BTreeSet<usize> =
            KINDS.iter().map(|(_, policy)| number(policy)).collect();
        assert!(found.into_iter().eq(0..13));
    }

    #[test]
    fn every_policy_compiles() {
        for policy in all() {
            assert!(Filter::of(policy).is_ok(), "{policy:?}");
        }
    }

    #[test]
    fn every_rule_has_a_reason_and_stands_once() {
        for policy in all() {
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
        // What a broker is there for, and the kernel lets it do to its own service alone.
        let a_brokers = [libc::SYS_process_vm_readv, libc::SYS_pidfd_getfd];
        for policy in all() {
            for rule in policy.rules() {
                let excepted = |call| policy == Policy::Broker && a_brokers.contains(call);
                let reaches_out = rule.calls.iter().any(|call| never.contains(call) && !excepted(call));
                assert!(!reaches_out, "{policy:?}: {rule:?}");
            }
        }
    }
    const INET: u64 = libc::AF_INET as u64;
    const STREAM_TYPE: u64 = libc::SOCK_STREAM as u64;

    #[test]
    fn sockets_of_a_program_are_made_for_it() {
        let none = Policy::Service(Grants::NONE);
        let tcp = Policy::Service(Grants { tcp: true, ..Grants::NONE });
        let socket = |policy: Policy, family, kind, protocol| {
            policy.answer(libc::SYS_socket, [family, kind, protocol, 0, 0, 0])
        };
        assert_eq!(socket(none, INET, STREAM_TYPE, 0), Answer::Refused);
        assert_eq!(socket(tcp, INET, STREAM_TYPE, 0), Answer::Notified);
        assert_eq!(socket(tcp, INET, STREAM_TYPE | libc::SOCK_CLOEXEC as u64, 6), Answer::Notified);
        for (family, kind, protocol) in [
            (INET, STREAM_TYPE, libc::IPPROTO_MPTCP as u64),
            (INET, STREAM_TYPE | 0x10, 0),
            (INET, libc::SOCK_DGRAM as u64, 0),
            (INET, libc::SOCK_RAW as u64, 6),
            (libc::AF_UNIX as u64, STREAM_TYPE, 0),
            (libc::AF_NETLINK as u64, STREAM_TYPE, 0),
        ] {
            assert_eq!(socket(tcp, family, kind, protocol), Answer::Refused, "{family} {kind} {protocol}");
        }
        assert_eq!(none.answer(libc::SYS_connect, [0; 6]), Answer::Refused);
        assert_eq!(tcp.answer(libc::SYS_connect, [0; 6]), Answer::Notified);
        for call in [libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
            assert_eq!(tcp.answer(call, [0; 6]), Answer::Refused);
        }
    }

    #[test]
    fn nobody_connects_by_sending() {
        let flags = libc::MSG_FASTOPEN as u64;
        for policy in all() {
            for (call, at) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
                let mut arguments = [0; 6];
                arguments[at] = flags | libc::MSG_NOSIGNAL as u64;
                assert_eq!(policy.answer(call, arguments), Answer::Refused, "{policy:?} {call}");
            }
        }
    }

    #[test]
    fn the_tie_to_the_launcher_is_not_cut() {
        let set = libc::PR_SET_PDEATHSIG as u64;
        for policy in all() {
            for signal in (0..65).filter(|&signal| signal != libc::SIGKILL as u64) {
                assert_eq!(policy.answer(libc::SYS_prctl, [set, signal, 0, 0, 0, 0]), Answer::Refused);
            }
        }
    }
}
