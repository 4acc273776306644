//! What Landlock lets a process reach, whatever its root and its network are.
//!
//! Runs in: the jail's test, as root.

use std::net::TcpListener;

use jail::policy::Policy;
use jail::{Access, Jail, Network, Ports};

use super::{TempDir, assert_found, probe, role, uid};
use crate::Test;
use crate::process::filter;

pub const TESTS: &[Test] = &[
    ("only_listed_paths_are_reached", only_listed_paths_are_reached),
    ("only_granted_ports_are_reached", only_granted_ports_are_reached),
    ("a_port_does_not_help_without_the_network", a_port_does_not_help_without_the_network),
    ("only_granted_kinds_of_socket_are_made", only_granted_kinds_of_socket_are_made),
];

fn only_listed_paths_are_reached() {
    let [readable, executable, writable, other] = ["read", "execute", "write", "other"].map(TempDir::new);
    std::os::unix::fs::chown(&writable.0, Some(uid()), Some(uid())).expect("chown");
    std::os::unix::fs::chown(&other.0, Some(uid()), Some(uid())).expect("chown");
    let jail = |without: &[&'static str]| {
        let mut jail = Jail { root: None, without: without.to_vec(), ..role() };
        jail.reach.paths.push((readable.open(), Access::Read));
        jail.reach.paths.push((executable.open(), Access::Execute));
        jail.reach.paths.push((writable.open(), Access::Write));
        jail
    };
    // What is tried, what comes of it, and what would without the layer.
    let table = [
        (readable.attempt("open", "file"), "ok", "ok"),
        (readable.attempt("execute", "program"), "EACCES", "ENOEXEC"),
        (executable.attempt("open", "file"), "ok", "ok"),
        (executable.attempt("execute", "program"), "ENOEXEC", "ENOEXEC"),
        (writable.attempt("open", "file"), "ok", "ok"),
        (writable.attempt("write", "new"), "ok", "ok"),
        (writable.attempt("mkdir", "directory"), "ok", "ok"),
        (writable.attempt("program", "made"), "EACCES", "ENOEXEC"),
        (other.attempt("open", "file"), "EACCES", "ok"),
        (other.attempt("write", "new"), "EACCES", "ok"),
        (other.attempt("mkdir", "directory"), "EACCES", "ok"),
        ("open /etc/passwd".into(), "EACCES", "ok"),
        ("open /proc/self/maps".into(), "EACCES", "ok"),
        ("write /dev/null".into(), "EACCES", "ok"),
    ];
    for (without, column) in [(&[][..], 0), (&["landlock"][..], 1)] {
        let expected: Vec<_> =
            table.iter().map(|(what, with, free)| (what.as_str(), [*with, *free][column])).collect();
        // Both are to make it.
        let _ = std::fs::remove_dir(writable.0.join("directory"));
        assert_found(&probe(&super::tries(&expected), jail(without)), &expected);
    }
}

/// A jail with the machine's network and these ports, as a connector's.
fn connected(connect: Vec<u16>, without: &[&'static str]) -> Jail {
    let mut jail = Jail { network: Network::Host, without: without.to_vec(), ..role() };
    jail.filter = filter(Policy::Connector { unix: false, tcp: true, udp: true, names: false });
    jail.reach.ports = Ports { connect };
    jail
}

fn only_granted_ports_are_reached() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let [granted, other] =
        listeners.each_ref().map(|listener| listener.local_addr().expect("an address").port());
    let [to_granted, to_other] = [granted, other].map(|port| format!("connect {port}"));
    for (without, refused) in [(&[][..], "EACCES"), (&["landlock"][..], "ok")] {
        // Nobody listens, whatever Landlock says.
        let expected = [(to_granted.as_str(), "ok"), (to_other.as_str(), refused), ("listen", "EPERM")];
        assert_found(&probe(&super::tries(&expected), connected(vec![granted], without)), &expected);
    }
    let none = probe(&[&to_granted], connected(vec![], &[]));
    assert_eq!(none.found(), "EACCES", "no port, no connection");
}

fn a_port_does_not_help_without_the_network() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let jail = Jail { network: Network::None, ..connected(vec![port], &[]) };
    assert_eq!(probe(&[&format!("connect {port}")], jail).found(), "ENETUNREACH");
}

fn only_granted_kinds_of_socket_are_made() {
    let table = [
        (false, false, ["EPERM", "EPERM", "EPERM", "EPERM"]),
        (true, false, ["ok", "ok", "EPERM", "EPERM"]),
        (false, true, ["EPERM", "EPERM", "ok", "ok"]),
        (true, true, ["ok", "ok", "ok", "ok"]),
    ];
    let inet = ["socket 2 1", "socket 10 1", "socket 2 2", "socket 10 2"];
    // Raw; of the kernel's own talk; of frames; of the hypervisor; of algorithms.
    let never = ["socket 2 3", "socket 10 3", "socket 16 3", "socket 17 3", "socket 40 1", "socket 38 5"];
    for (tcp, udp, answers) in table {
        let mut expected: Vec<_> = inet.into_iter().zip(answers).collect();
        expected.extend(never.map(|what| (what, "EPERM")));
        expected.extend([("socket 1 1", "EPERM"), ("socket 1 2", "EPERM"), ("pair", "EPERM")]);
        let jail =
            Jail { filter: filter(Policy::Connector { unix: false, tcp, udp, names: false }), ..role() };
        assert_found(&probe(&super::tries(&expected), jail), &expected);
    }
}
