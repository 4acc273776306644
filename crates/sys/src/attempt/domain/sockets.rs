//! Sockets: families, types, protocols, options, and the flags of what is sent and received.
//!
//! Runs in: the probe. Never: sends, connects or listens: the descriptor is -1 wherever there is one, and a socket
//! that could be made is closed at once.

use super::{CallAttempt, Form, NONE, ValueNames, bits, named, topic};
use libc as l;

const FAMILIES: ValueNames = &[
    (l::AF_UNIX as u64, "unix"),
    (l::AF_INET as u64, "inet"),
    (l::AF_INET6 as u64, "inet6"),
    (l::AF_NETLINK as u64, "netlink"),
    (l::AF_PACKET as u64, "packet"),
    (l::AF_ALG as u64, "alg"),
    (l::AF_VSOCK as u64, "vsock"),
];
const TYPES: ValueNames = &[
    (l::SOCK_STREAM as u64, "stream"),
    (l::SOCK_DGRAM as u64, "dgram"),
    (l::SOCK_RAW as u64, "raw"),
    (l::SOCK_RDM as u64, "rdm"),
    (l::SOCK_SEQPACKET as u64, "seqpacket"),
];
const TYPE_FLAGS: ValueNames = named![SOCK_NONBLOCK SOCK_CLOEXEC];
const PROTOCOLS: ValueNames =
    &[(6, "TCP"), (17, "UDP"), (33, "DCCP"), (132, "SCTP"), (136, "UDPLITE"), (262, "MPTCP")];
const FLAGS: ValueNames = named![
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL MSG_FIN MSG_SYN MSG_CONFIRM
    MSG_RST MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_FASTOPEN MSG_CMSG_CLOEXEC
];
/// Levels of options, and names that their options have.
const LEVELS: &[(u64, &str, ValueNames)] = &[
    (
        l::SOL_SOCKET as u64,
        "socket",
        named![
            SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF SO_KEEPALIVE
            SO_OOBINLINE
            SO_NO_CHECK SO_PRIORITY SO_LINGER SO_REUSEPORT SO_PASSCRED SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO
            SO_SNDTIMEO SO_BINDTODEVICE SO_ATTACH_FILTER SO_DETACH_FILTER SO_PEERNAME SO_ACCEPTCONN SO_PEERSEC
            SO_SNDBUFFORCE SO_RCVBUFFORCE SO_PASSSEC SO_MARK SO_PROTOCOL SO_DOMAIN SO_PEEK_OFF SO_BUSY_POLL
            SO_INCOMING_CPU SO_ATTACH_BPF SO_COOKIE SO_PEERGROUPS SO_ZEROCOPY SO_PEERPIDFD
        ],
    ),
    (
        l::IPPROTO_IP as u64,
        "ip",
        named![
            IP_TOS IP_TTL IP_OPTIONS IP_RECVERR IP_TRANSPARENT IP_FREEBIND IP_MTU_DISCOVER IP_MTU IP_PKTINFO
            IP_BIND_ADDRESS_NO_PORT IP_ADD_MEMBERSHIP
        ],
    ),
    (
        l::IPPROTO_TCP as u64,
        "tcp",
        named![
            TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2
            TCP_DEFER_ACCEPT
            TCP_WINDOW_CLAMP TCP_INFO TCP_QUICKACK TCP_CONGESTION TCP_MD5SIG TCP_USER_TIMEOUT TCP_REPAIR TCP_FASTOPEN
            TCP_NOTSENT_LOWAT TCP_FASTOPEN_CONNECT TCP_ULP TCP_TIMESTAMP
        ],
    ),
    (l::IPPROTO_UDP as u64, "udp", &[]),
    (
        l::IPPROTO_IPV6 as u64,
        "ipv6",
        named![
            IPV6_UNICAST_HOPS IPV6_RECVERR IPV6_V6ONLY IPV6_TCLASS IPV6_TRANSPARENT IPV6_FREEBIND IPV6_MTU IPV6_ADDRFORM
        ],
    ),
    (l::IPPROTO_ICMPV6 as u64, "icmpv6", &[]),
    (l::IPPROTO_RAW as u64, "raw", &[]),
    (l::IPPROTO_SCTP as u64, "sctp", &[]),
    (l::IPPROTO_UDPLITE as u64, "udplite", &[]),
    (263, "packet", &[]),
    (268, "aal", &[]),
    (269, "dccp", &[]),
    (270, "netlink", &[]),
    (279, "alg", &[]),
    (282, "tls", &[]),
    (283, "xdp", &[]),
    (284, "mptcp", &[]),
    (287, "vsock", &[]),
];

pub(super) fn sweep(lines: &mut Vec<CallAttempt>) {
    families(lines);
    let flags = Form::Bit(FLAGS);
    for (name, call, at) in [
        ("sendto", l::SYS_sendto, 3),
        ("sendmsg", l::SYS_sendmsg, 2),
        ("sendmmsg", l::SYS_sendmmsg, 3),
        ("recvfrom", l::SYS_recvfrom, 3),
        ("recvmsg", l::SYS_recvmsg, 2),
        ("recvmmsg", l::SYS_recvmmsg, 3),
        ("accept4", l::SYS_accept4, 3),
    ] {
        let flags = if call == l::SYS_accept4 { Form::Bit(TYPE_FLAGS) } else { flags };
        topic(lines, (format!("{name} flags"), flags, call), bits(), |value| {
            let mut arguments = [NONE, 0, 0, 0, 0, 0];
            arguments[at] = value;
            arguments
        });
    }
    for (name, call) in [("setsockopt", l::SYS_setsockopt), ("getsockopt", l::SYS_getsockopt)] {
        for &(level, of, names) in LEVELS {
            let about = (format!("{name} {of}"), Form::Number(names), call);
            topic(lines, about, 0..=130, |option| [NONE, level, option, 0, 0, 0]);
        }
    }
}

/// Every family, type and protocol, without flags and with those that programs use; then each other flag.
fn families(lines: &mut Vec<CallAttempt>) {
    let usual = (l::SOCK_NONBLOCK | l::SOCK_CLOEXEC) as u64;
    // A pair's two descriptors would be written to the address 0: the call fails before anything is made.
    for (name, call) in [("socket", l::SYS_socket), ("socketpair", l::SYS_socketpair)] {
        for family in (0..=50).chain([99, 255, 0xffff_ffff]) {
            for kind in 0..=10 {
                let about = format!("{name} <{} {}>", called(FAMILIES, family), called(TYPES, kind));
                let internet = family == l::AF_INET as u64 || family == l::AF_INET6 as u64;
                let last = if internet && (1..=3).contains(&kind) { 262 } else { 2 };
                for (flags, with) in [(0, ""), (usual, " nonblock, cloexec")] {
                    let of = (format!("{about}{with}"), Form::Number(PROTOCOLS), call);
                    topic(lines, of, 0..=last, |protocol| [family, kind | flags, protocol, 0, 0, 0]);
                }
                if FAMILIES.iter().any(|known| known.0 == family) && (1..=5).contains(&kind) {
                    let of = (format!("{about} flags"), Form::Bit(TYPE_FLAGS), call);
                    let other = (4..32).map(|bit| 1 << bit);
                    topic(lines, of, other, |flag| [family, kind | flag, 0, 0, 0, 0]);
                }
            }
        }
    }
}

fn called(names: ValueNames, value: u64) -> String {
    let known = names.iter().find(|(number, _)| *number == value);
    known.map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned())
}
