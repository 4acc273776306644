//! Listening and accepting in the place of a server that loads no library: its system calls are answered here.
//!
//! Runs in: the guard. Sees: numbers and addresses of the server's own. Never: waits for one call while others come; an
//! accept that has to wait is answered when a connection is there.
//!
//! At `listen`, the server's descriptor becomes a channel of the gate's, so that poll, epoll and inheritance work as
//! they do; at `accept`, the guard takes a connection from it and gives it to the server. Kept-alive connections stay
//! with the server until it closes them: what it writes is not seen here.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use sys::foreign::Foreign;
use sys::notify::{CallKind, CallNotification, Listener, read_memory, write_memory};
use wire::{Bundle, MESSAGE_MAX, Message, ToWorker};

use crate::listeners::is_tcp;
use crate::reactor::{EventSource, Reactor};
use crate::servers::Servers;

/// LIMIT: as many as the launcher's own sockets have; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// A socket of the server's that is a channel now.
#[derive(Debug)]
struct Channel {
    number: u64,
    local: SocketAddr,
}

/// An accept that waits.
#[derive(Debug)]
struct WaitingAccept {
    call: CallNotification,
    process: i32,
    channel: Foreign,
    inode: u64,
}

/// The answering side.
#[derive(Debug)]
pub struct Supervisor {
    /// Where calls arrive.
    pub listener: Listener,
    servers: Servers,
    /// By inode.
    channels: HashMap<u64, Channel>,
    waiting: VecDeque<WaitingAccept>,
    listened: u64,
    buffer: Vec<u8>,
}

/// The decision about a call.
enum CallAnswer {
    /// The kernel does it.
    Allow,
    /// It returns nought, or fails with this.
    End(Result<(), Errno>),
    /// It was answered, or waits.
    Done,
}

impl Supervisor {
    /// For the calls that arrive at `listener`.
    pub fn new(listener: Listener) -> Self {
        Self {
            listener,
            servers: Servers::default(),
            channels: HashMap::new(),
            waiting: VecDeque::new(),
            listened: 0,
            buffer: vec![0; MESSAGE_MAX],
        }
    }

    /// Says what has waited for room; returns whether something is to be looked at again soon, of which no event will
    /// tell.
    pub fn flush(&mut self) -> bool {
        self.servers.flush() | !self.waiting.is_empty()
    }

    /// Answers the call that has arrived.
    pub fn on_call(&mut self, reactor: &mut Reactor) {
        let Ok(Some(call)) = self.listener.receive() else {
            return;
        };
        // The kernel judges a call whose caller cannot be examined.
        let answer = self.answer(&call, reactor).unwrap_or(CallAnswer::Allow);
        // A caller that was interrupted or has ended needs no answer.
        let _ = match answer {
            CallAnswer::Allow => self.listener.allow(call.id),
            CallAnswer::End(Ok(())) => self.listener.end(call.id, 0),
            CallAnswer::End(Err(errno)) => self.listener.end(call.id, errno.raw_os_error()),
            CallAnswer::Done => Ok(()),
        };
    }

    fn answer(&mut self, call: &CallNotification, reactor: &mut Reactor) -> io::Result<CallAnswer> {
        if self.channels.is_empty() && call.kind != CallKind::Listen {
            return Ok(CallAnswer::Allow);
        }
        let Some(process) = self.servers.process_of(call.thread) else {
            return Ok(CallAnswer::Allow);
        };
        let at = call.descriptor(0);
        if call.kind == CallKind::Close {
            if let Some(server) = self.servers.known(process) {
                server.closed(at);
            }
            return Ok(CallAnswer::Allow);
        }
        let server =
            self.servers.get(process, |pidfd| reactor.watch(pidfd, EventSource::Server, process as u32))?;
        if server.holds(at) {
            return Ok(CallAnswer::Allow);
        }
        let socket = server.descriptor(at)?;
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        match (call.kind, self.channels.get(&inode)) {
            (CallKind::Listen, None) => self.listen(call, process, socket, reactor),
            (CallKind::Listen, Some(_)) => Ok(CallAnswer::End(Ok(()))),
            (CallKind::GetSockName, Some(channel)) => {
                let local = channel.local;
                Ok(CallAnswer::End(self.write_address(call, &local)))
            }
            (CallKind::Accept | CallKind::Accept4, Some(_)) => {
                self.accept(WaitingAccept { call: *call, process, channel: socket, inode }, reactor)
            }
            _ => Ok(CallAnswer::Allow),
        }
    }

    /// Puts a channel in the place of a socket that is to listen.
    fn listen(
        &mut self,
        call: &CallNotification,
        process: i32,
        socket: Foreign,
        reactor: &mut Reactor,
    ) -> io::Result<CallAnswer> {
        if !is_tcp(&socket) {
            return Ok(CallAnswer::Allow);
        }
        if !reactor.listeners.own
            && let Err(errno) = rustix::net::listen(&socket, BACKLOG)
        {
            return Ok(CallAnswer::End(Err(errno)));
        }
        let at = call.descriptor(0);
        let local = rustix::net::getsockname(&socket)?.try_into()?;
        let close_on_exec = descriptor_flags(process, at)?.contains(OFlags::CLOEXEC);
        let blocks = !rustix::fs::fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        let (servers_end, gates_end) = sys::seqpacket::pair()?;
        rustix::io::ioctl_fionbio(&servers_end, !blocks)?;
        let inode = rustix::fs::fstat(&servers_end)?.st_ino;
        self.listener.put(call.id, &servers_end, at, close_on_exec)?;
        self.listened += 1;
        let number = self.listened;
        reactor.listening(number, socket);
        reactor.accepting(number, gates_end.into());
        self.channels.insert(inode, Channel { number, local });
        Ok(CallAnswer::End(Ok(())))
    }

    /// Gives the caller a connection, or has it wait for one.
    fn accept(&mut self, waiting: WaitingAccept, reactor: &mut Reactor) -> io::Result<CallAnswer> {
        let blocks = !rustix::fs::fcntl_getfl(&waiting.channel)?.contains(OFlags::NONBLOCK);
        match self.take(&waiting, reactor) {
            Err(Errno::AGAIN) if blocks => {
                reactor.watch(&waiting.channel, EventSource::Waiting, 0)?;
                self.waiting.push_back(waiting);
                Ok(CallAnswer::Done)
            }
            Err(errno) => Ok(CallAnswer::End(Err(errno))),
            Ok(()) => Ok(CallAnswer::Done),
        }
    }

    /// Takes the next connection for a call and ends the call with it.
    fn take(&mut self, waiting: &WaitingAccept, reactor: &mut Reactor) -> Result<(), Errno> {
        let (bundle, connection) = loop {
            match sys::seqpacket::receive(&waiting.channel, &mut self.buffer) {
                Ok(None) => return Err(Errno::CONNABORTED),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Errno::AGAIN),
                // Bytes that were taken cannot be put before those in the socket; with filters, this way is refused.
                Ok(Some(got)) => {
                    match (ToWorker::decode(&self.buffer[..got.len]), got.descriptor.map(Foreign::from)) {
                        (Ok(ToWorker::Connection { bundle }), Some(connection))
                            if bundle.preread.0.is_empty() =>
                        {
                            break (bundle, connection);
                        }
                        _ => {}
                    }
                }
                Err(_) => {}
            }
        };
        self.give(waiting, bundle, connection, reactor)
    }

    fn give(
        &mut self,
        waiting: &WaitingAccept,
        bundle: Bundle,
        connection: Foreign,
        reactor: &mut Reactor,
    ) -> Result<(), Errno> {
        let call = &waiting.call;
        let process = waiting.process;
        let watch = |pidfd: &OwnedFd| reactor.watch(pidfd, EventSource::Server, process as u32);
        let server = self.servers.get(process, watch).map_err(|_| Errno::CONNABORTED)?;
        if let Some(gates_end) = server.connect().map_err(|_| Errno::MFILE)? {
            reactor.process(gates_end.into());
        }
        let flags = match call.kind {
            CallKind::Accept4 => SocketFlags::from_bits_retain(call.arguments[3] as u32),
            _ => SocketFlags::empty(),
        };
        rustix::io::ioctl_fionbio(&connection, flags.contains(SocketFlags::NONBLOCK))?;
        // The socket's own word, as it is of the family that the server listens with.
        let peer = rustix::net::getpeername(&connection).ok().flatten().and_then(|peer| peer.try_into().ok());
        let written = self.write_address(call, &peer.unwrap_or(bundle.peer));
        let given = written.and_then(|()| {
            let given = self.listener.end_with(call.id, &connection, flags.contains(SocketFlags::CLOEXEC));
            given.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        });
        let Some(server) = self.servers.known(process) else {
            return Err(Errno::CONNABORTED);
        };
        match given {
            // The server has it, and may have closed it.
            Ok(number) => server.took(number, bundle.id, bundle.peer),
            // It was interrupted, or has a bad pointer: somebody else shall have it.
            Err(errno) => {
                server.back(bundle, connection.into_inner());
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Writes an address where the caller wants it, if it does: arguments 1 and 2, as of accept and getsockname.
    fn write_address(&self, call: &CallNotification, address: &SocketAddr) -> Result<(), Errno> {
        let (to, length) = (call.arguments[1], call.arguments[2]);
        if to == 0 {
            return Ok(());
        }
        // The thread must still be the one that called when its memory is looked at.
        let fault = |_| Errno::FAULT;
        let mut room = [0; 4];
        read_memory(call.thread, length, &mut room).map_err(fault)?;
        if !self.listener.waits(call.id) {
            return Err(Errno::CONNABORTED);
        }
        let bytes = socket_address(address);
        let room = usize::try_from(i32::from_ne_bytes(room)).map_err(|_| Errno::INVAL)?;
        write_memory(call.thread, to, &bytes[..room.min(bytes.len())]).map_err(fault)?;
        write_memory(call.thread, length, &(bytes.len() as u32).to_ne_bytes()).map_err(fault)
    }

    /// A channel has something for a call that waits, or it is time to look whether those still wait.
    pub fn on_waiting(&mut self, reactor: &mut Reactor) {
        let mut empty = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            if !self.listener.waits(waiting.call.id) {
                reactor.unwatch(&waiting.channel);
                continue;
            }
            let result = match empty.contains(&waiting.inode) {
                true => Err(Errno::AGAIN),
                false => self.take(&waiting, reactor),
            };
            match result {
                Err(Errno::AGAIN) => {
                    empty.push(waiting.inode);
                    self.waiting.push_back(waiting);
                    continue;
                }
                Err(errno) => drop(self.listener.end(waiting.call.id, errno.raw_os_error())),
                Ok(()) => {}
            }
            reactor.unwatch(&waiting.channel);
        }
    }

    /// A process of the server has ended.
    pub fn on_end(&mut self, process: i32, reactor: &mut Reactor) {
        if let Some(server) = self.servers.known(process) {
            reactor.unwatch(&server.pidfd);
        }
        self.servers.gone(process);
    }

    /// The server has closed what it called `number`.
    pub fn closed(&mut self, number: u64) {
        self.channels.retain(|_, channel| channel.number != number);
    }
}

/// The flags of another process's descriptor, close-on-exec among them.
fn descriptor_flags(process: i32, at: i32) -> io::Result<OFlags> {
    let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{at}"))?;
    let octal = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default().trim();
    let bits = u32::from_str_radix(octal, 8).map_err(io::Error::other)?;
    Ok(OFlags::from_bits_retain(bits))
}

/// An address as the kernel has it: `sockaddr_in` or `sockaddr_in6`.
fn socket_address(address: &SocketAddr) -> Vec<u8> {
    let (family, port) = match address {
        SocketAddr::V4(_) => (rustix::net::AddressFamily::INET, address.port()),
        SocketAddr::V6(_) => (rustix::net::AddressFamily::INET6, address.port()),
    };
    let mut bytes = family.as_raw().to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_be_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn addresses_are_as_the_kernel_has_them() {
        let v4 = socket_address(&"127.0.0.1:258".parse().unwrap());
        assert_eq!(v4, [2, 0, 1, 2, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let v6 = socket_address(&"[::1%7]:258".parse().unwrap());
        assert_eq!((v6.len(), &v6[..4], v6[23], v6[24]), (28, &[10, 0, 1, 2][..], 1, 7));
    }

    #[test]
    fn flags_of_a_descriptor_are_read() {
        let (socket, _) = sys::seqpacket::pair().unwrap();
        let flags = descriptor_flags(std::process::id() as i32, socket.as_raw_fd()).unwrap();
        assert!(flags.contains(OFlags::CLOEXEC | OFlags::NONBLOCK));
        assert!(descriptor_flags(std::process::id() as i32, 1 << 20).is_err());
    }
}
