//! D: sockets of every family, and whom they reach.
//!
//! Runs in: the probe. Never: sends a byte to anybody but the machine's own discard port and
//! the server's admin role.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use sys::attempt::{Arg, Errno, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, denied, refused, short, succeeded, tried};

/// STREAM, DGRAM, RAW, SEQPACKET.
const TYPES: [(i64, &str); 4] = [(1, "stream"), (2, "dgram"), (3, "raw"), (5, "seqpacket")];
/// The families that have an attempt of their own.
const NAMED: [i64; 8] = [1, 2, 10, 16, 17, 38, 40, 44];

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('D', "socket-unix", "a Unix socket", "seccomp", socket).number(1).either(),
    attempt('D', "socket-inet", "an IPv4 socket", "seccomp", socket).number(2),
    attempt('D', "socket-inet6", "an IPv6 socket", "seccomp", socket).number(10),
    attempt('D', "socket-netlink", "a netlink socket", "seccomp", socket).number(16),
    attempt('D', "socket-packet", "a packet socket", "seccomp", socket).number(17),
    attempt('D', "socket-alg", "a socket into the kernel's cryptography", "seccomp", socket)
        .number(38)
        .refused_anyway("where the kernel has no AF_ALG"),
    attempt('D', "socket-vsock", "a socket to the virtual machine's host", "seccomp", socket).number(40),
    attempt('D', "socket-xdp", "an XDP socket", "seccomp", socket)
        .number(44)
        .refused_anyway("where the kernel has no AF_XDP"),
    attempt('D', "socket-others", "a socket of any other family, 0 to 45", "seccomp", other_families)
        .refused_anyway("where the kernel has no other family"),
    attempt('D', "connect-loopback", "connect to a listener on 127.0.0.1", "network namespace", loopback),
    attempt('D', "connect-outside", "reach other machines", "network namespace", outside),
    attempt('D', "udp", "send a datagram", "network namespace", udp),
    attempt('D', "bind-loopback", "listen on 127.0.0.1", "network namespace", bind),
    attempt('D', "bind-low", "listen on a port below 1024", "capabilities", bind_low),
    attempt('D', "listen-inherited", "listen on a socket that it holds", "seccomp", listen_inherited)
        .refused_anyway("where no socket that can listen is held"),
    attempt('D', "interfaces", "see the machine's network interfaces", "network namespace", interfaces),
    attempt('D', "unix-path", "connect to a Unix socket by its path", "root", unix_path),
    attempt('D', "give-orders", "give the server an administrator's orders", "landlock", give_orders),
    attempt('D', "unix-abstract", "connect to an abstract Unix socket", "network namespace", unix_abstract),
    attempt('D', "unix-abstract-listen", "offer an abstract Unix socket", "seccomp", unix_abstract_listen)
        .services_may(),
    attempt('D', "unix-path-listen", "offer a Unix socket by path", "root", unix_path_listen),
];

fn open(family: i64, kind: i64) -> Result<OwnedFd, Errno> {
    const CLOEXEC: i64 = 0o2_000_000;
    calls::SOCKET.open(&mut [Arg::Int(family), Arg::Int(kind | CLOEXEC), Arg::Int(0)])
}

fn socket(cx: &Cx<'_>) -> AttemptOutcome {
    any(TYPES.map(|(_, name)| name), |name| tried(open(cx.number, number_of(name))))
}

fn other_families(_: &Cx<'_>) -> AttemptOutcome {
    let families = (0..=45).filter(|family| !NAMED.contains(family));
    any(families, |family| any(TYPES.map(|(_, name)| name), |name| tried(open(*family, number_of(name)))))
}

fn number_of(name: &str) -> i64 {
    TYPES.iter().find(|(_, known)| *known == name).map_or(0, |(number, _)| *number)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn loopback(cx: &Cx<'_>) -> AttemptOutcome {
    // Without hints, services that machines often have.
    let usual = [22, 25, 53, 80, 111, 443, 631, 3306, 5432, 6379, 8080, 11_211, 27_017];
    let ports = if cx.hints.tcp.is_empty() { usual.to_vec() } else { cx.hints.tcp.clone() };
    any(ports, |port| tried(TcpStream::connect_timeout(&address(*port), Duration::from_millis(500))))
}

/// Connects, without waiting, to an address that nobody has: who is told "in progress" has a way out.
fn outside(_: &Cx<'_>) -> AttemptOutcome {
    let documentation = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    let tcp = match TcpStream::connect_timeout(&documentation, Duration::from_millis(50)) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => succeeded("a route leads out"),
        result => tried(result),
    };
    if tcp.has_succeeded() {
        return tcp;
    }
    // Connecting a datagram socket sends nothing, and needs a route.
    let udp = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(documentation));
    if udp.is_ok() { succeeded("a route leads out") } else { tcp }
}

fn udp(_: &Cx<'_>) -> AttemptOutcome {
    tried(UdpSocket::bind(address(0)).and_then(|socket| socket.send_to(b"", address(9))))
}

fn bind(_: &Cx<'_>) -> AttemptOutcome {
    tried(TcpListener::bind(address(0)))
}

fn bind_low(_: &Cx<'_>) -> AttemptOutcome {
    // Ports that hardly anybody has.
    any([1021, 1022, 1023], |port| tried(TcpListener::bind(address(*port))))
}

fn listen_inherited(_: &Cx<'_>) -> AttemptOutcome {
    let held = crate::look::descriptors_of(rustix::fs::FileType::Socket);
    any(held.iter().map(|(number, _)| number), |number| {
        let socket = held.iter().find(|(of, _)| of == *number).map(|(_, socket)| socket);
        match socket {
            // Connected ones say EINVAL, message channels that are no listeners as well.
            Some(socket) if !rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false) => {
                tried(rustix::net::listen(socket, 1))
            }
            _ => refused("it listens already"),
        }
    })
}

/// SIOCGIFCONF needs a socket; `/proc` needs none.
fn interfaces(_: &Cx<'_>) -> AttemptOutcome {
    let text =
        std::fs::read_to_string("/proc/self/net/dev").or_else(|_| std::fs::read_to_string("/proc/net/dev"));
    let mut names: Vec<String> = text
        .unwrap_or_default()
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .filter(|name| name != "lo")
        .collect();
    let socket = open(2, 2).or_else(|_| open(1, 2));
    if names.is_empty()
        && let Ok(socket) = &socket
    {
        for index in 2..16 {
            names.extend(rustix::net::netdevice::index_to_name(socket, index));
        }
    }
    match socket {
        _ if !names.is_empty() => succeeded(short(&names)),
        Ok(_) => refused("none but its own lo"),
        Err(errno) => denied(errno, "no socket, and nothing in /proc"),
    }
}

fn unix_path(cx: &Cx<'_>) -> AttemptOutcome {
    let usual = ["/run/dbus/system_bus_socket", "/run/systemd/notify", "/var/run/docker.sock", "/dev/log"];
    let mut paths = cx.hints.unix.clone();
    if paths.is_empty() {
        paths = usual.map(str::to_owned).to_vec();
    }
    any(paths, |path| {
        let stream = UnixStream::connect(path).map(OwnedFd::from);
        tried(stream.or_else(|error| {
            match error.raw_os_error() {
                // EPROTOTYPE: it is one for datagrams, which can be sent to then.
                Some(91) => std::os::unix::net::UnixDatagram::unbound()
                    .and_then(|socket| socket.connect(path).map(|()| OwnedFd::from(socket))),
                _ => Err(error),
            }
        }))
    })
}

/// Asks the admin role for what needs the same right as to stop the server, with the secret beside its socket if that
/// can be read.
fn give_orders(cx: &Cx<'_>) -> AttemptOutcome {
    any(&cx.hints.unix, |path| {
        let path = Path::new(path);
        let secret = std::fs::read(path.with_extension("secret")).unwrap_or_else(|_| b"none\n".to_vec());
        match ask_for_status(path, &secret) {
            Ok(answer) if answer.starts_with(b"{\"ok\":true") => succeeded("every process was told of"),
            Ok(answer) => refused(String::from_utf8_lossy(&answer[..answer.len().min(80)]).trim_end()),
            Err(error) => tried::<(), _>(Err(error)),
        }
    })
}

fn ask_for_status(path: &Path, secret: &[u8]) -> io::Result<Vec<u8>> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&[secret, b"{\"command\":\"status\"}\n"].concat())?;
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer)?;
    answer.truncate(count);
    Ok(answer)
}

fn unix_abstract(cx: &Cx<'_>) -> AttemptOutcome {
    let mut names = cx.hints.abstract_names.clone();
    let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    names.extend(listed.lines().filter_map(|line| Some(line.split_once('@')?.1.to_owned())).take(16));
    any(names, |name| {
        let connected = UnixAddr::from_abstract_name(name).and_then(|name| UnixStream::connect_addr(&name));
        tried(connected)
    })
}

fn unix_abstract_listen(_: &Cx<'_>) -> AttemptOutcome {
    let name = format!("bulkhead-probe-{}", std::process::id());
    tried(UnixAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name)))
}

fn unix_path_listen(_: &Cx<'_>) -> AttemptOutcome {
    match crate::look::Own::new() {
        Ok(own) => tried(UnixListener::bind(own.0.join("socket"))),
        Err(error) => tried::<(), _>(Err(error)).or_detail("no folder for it"),
    }
}
