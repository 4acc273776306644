//! Listening sockets that this process was started with: a service manager's, or those of a launcher before this one.
//!
//! Runs in: the launcher, before its first child, and at each reload. Sees: sockets that its starter has opened. Never:
//! opens one; gives one to a listener of another address; closes one before the end, as its starter may keep it open.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use config::Listener;
use rustix::net::{SocketType, getsockname, ipproto, sockopt};

use crate::error::{Error, during};
use crate::spawn::context::duplicate;
use crate::spawn::listeners::listen_on;

/// What a socket has to be.
const KIND: &str = "is no listening TCP socket, and listeners are nothing else; have a socket unit pass it by \
                    `ListenStream=` with a port, without `Accept=yes`";
/// What a socket for all addresses of IPv6 has to be.
const IPV6_ONLY: &str = "takes connections of IPv4 as well, and a listener of an IPv6 address takes none; write \
                         `BindIPv6Only=ipv6-only` into the socket unit, and a `ListenStream=` of its own for IPv4";

/// One of them.
#[derive(Debug)]
pub struct PassedSocket {
    /// What its starter calls it; only messages name it.
    pub name: String,
    /// Where it listens, as the kernel says.
    pub address: SocketAddr,
    /// It does not block, and no program inherits it.
    pub socket: OwnedFd,
}

/// All of them, whether a listener uses them or not: one that a reload removes may come back.
#[derive(Debug, Default)]
pub struct PassedSockets {
    sockets: Vec<PassedSocket>,
}

impl PassedSockets {
    /// Takes sockets over, each with its name.
    ///
    /// # Errors
    /// One is no listening TCP socket, or one for all addresses of both IPv6 and IPv4.
    pub fn new(sockets: impl IntoIterator<Item = (String, OwnedFd)>) -> Result<Self, Error> {
        let sockets = sockets.into_iter().map(|(name, socket)| PassedSocket::new(name, socket));
        Ok(Self { sockets: sockets.collect::<Result<_, _>>()? })
    }

    /// The sockets, to be passed on.
    pub fn iter(&self) -> impl Iterator<Item = &PassedSocket> {
        self.sockets.iter()
    }

    /// Fails if a socket has an address at which nothing is to listen: its clients would wait for ever.
    pub fn check(&self, listeners: &[Listener]) -> Result<(), Error> {
        let is_used = |one: &&PassedSocket| listeners.iter().any(|listener| listener.address == one.address);
        match self.sockets.iter().find(|one| !is_used(one)) {
            Some(one) => Err(one.unused()),
            None => Ok(()),
        }
    }

    /// One socket per gate for `address`: those that were passed, which gates share if there are fewer, or new ones.
    ///
    /// # Errors
    /// More were passed than there are gates, or the address cannot be listened on.
    pub fn listen_on(&self, address: SocketAddr, gates: usize) -> Result<Vec<OwnedFd>, Error> {
        let passed: Vec<_> = self.sockets.iter().filter(|one| one.address == address).collect();
        match passed.get(gates) {
            _ if passed.is_empty() => listen_on(address, gates),
            Some(one) => Err(one.error(format!(
                "is one of {} on {address}, and {gates} gates take connections from one each: those of the others would wait for \
                 ever; pass fewer, or raise `gates`",
                passed.len()
            ))),
            None => passed.iter().cycle().take(gates).map(|one| duplicate(&one.socket)).collect(),
        }
    }
}

impl PassedSocket {
    fn new(name: String, socket: OwnedFd) -> Result<Self, Error> {
        let wrong = |name: &str, problem: &str| Error::Passed { name: name.into(), problem: problem.into() };
        let address = getsockname(&socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
        let Some(address) = address.filter(|_| is_listening_tcp(&socket)) else {
            return Err(wrong(&name, KIND));
        };
        let is_for_all = address.is_ipv6() && address.ip().is_unspecified();
        if is_for_all && !sockopt::ipv6_v6only(&socket).map_err(during("look at a passed socket"))? {
            return Err(wrong(&name, IPV6_ONLY));
        }
        // The flag is the open socket's, not the descriptor's: its starter sees it as well, and only polls.
        rustix::io::ioctl_fionbio(&socket, true).map_err(during("prepare a passed socket"))?;
        Ok(Self { name, address, socket })
    }

    fn error(&self, problem: String) -> Error {
        Error::Passed { name: self.name.clone(), problem }
    }

    fn unused(&self) -> Error {
        let address = self.address;
        self.error(format!(
            "listens on {address}, and each passed socket must be a listener of the configuration; write `[[listen]]` with \
             `address = \"{address}\"`, or take `ListenStream={address}` out of the socket unit"
        ))
    }
}

fn is_listening_tcp(socket: &OwnedFd) -> bool {
    matches!(sockopt::socket_type(socket), Ok(SocketType::STREAM))
        && matches!(sockopt::socket_protocol(socket), Ok(Some(ipproto::TCP)))
        && matches!(sockopt::socket_acceptconn(socket), Ok(true))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn named(socket: impl Into<OwnedFd>) -> [(String, OwnedFd); 1] {
        [("web".into(), socket.into())]
    }

    fn listening() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn only_listening_tcp_sockets_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let listener = listening();
        let others: [OwnedFd; 4] = [
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            UnixListener::bind(folder.path().join("socket")).unwrap().into(),
            TcpStream::connect(listener.local_addr().unwrap()).unwrap().into(),
            std::fs::File::open("/dev/null").unwrap().into(),
        ];
        for other in others {
            let error = PassedSockets::new(named(other)).unwrap_err().to_string();
            assert!(error.contains("`web` is no listening TCP socket"), "{error}");
        }
        assert_eq!(PassedSockets::new(named(listener)).unwrap().iter().count(), 1);
    }

    #[test]
    fn a_socket_for_both_families_is_none_for_a_listener() {
        // A machine may be without IPv6.
        let Ok(both) = TcpListener::bind("[::]:0") else { return };
        if sockopt::ipv6_v6only(&both).unwrap() {
            return;
        }
        let error = PassedSockets::new(named(both)).unwrap_err().to_string();
        assert!(error.contains("BindIPv6Only=ipv6-only"), "{error}");
    }

    #[test]
    fn gates_share_a_socket_and_none_is_without_a_gate() {
        let listener = listening();
        let address = listener.local_addr().unwrap();
        let twice = [named(listener.try_clone().unwrap()), named(listener)].into_iter().flatten();
        let passed = PassedSockets::new(twice).unwrap();
        let of = |gates| passed.listen_on(address, gates);
        assert_eq!(of(3).unwrap().len(), 3);
        for socket in of(2).unwrap() {
            assert_eq!(SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap(), address);
        }
        assert!(of(1).unwrap_err().to_string().contains("one of 2 on"));
        // At another address, a socket is made.
        let free = listening().local_addr().unwrap();
        assert_eq!(passed.listen_on(free, 2).unwrap().len(), 2);
    }

    #[test]
    fn a_socket_that_no_listener_has_is_refused_with_a_remedy() {
        let listener = listening();
        let address = listener.local_addr().unwrap();
        let error = PassedSockets::new(named(listener)).unwrap().check(&[]).unwrap_err().to_string();
        assert!(error.contains(&format!("`address = \"{address}\"`")), "{error}");
    }
}
