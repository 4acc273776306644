//! The calls of one process of the service, and of its descendants.
//!
//! Runs in: the broker. Sees: the arguments of `socket` and `connect`, memory that they point at, descriptors that they
//! name. Never: does anything with what it has copied of a caller before it knows that the caller still waits; only
//! then is it the caller's.
//!
//! A call is received only when somebody can answer it. Until then it waits in the kernel, where the next broker finds
//! it if this one ends.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use sys::foreign::Foreign;
use sys::notify::{CallKind, CallNotification, Listener, copy_descriptor, read_memory};
use wire::BrokerToConnector;
use worker::watch;

use crate::address::{ADDRESS_MAX, Peer, parse, readable};
use crate::broker::Broker;
use crate::connector::{AttemptNumber, ConnectorAnswer};

/// How often is looked whether a caller still waits: the kernel does not tell.
const LOOK: Duration = Duration::from_millis(500);
/// A question, not a wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The kinds of socket there are, in `socket`'s second argument, beside its flags.
const KINDS: u32 = 0xf;

/// Where calls arrive.
#[derive(Debug)]
pub(crate) struct Calls {
    pub listener: Listener,
    /// The process that was started.
    pub leader: i32,
    /// How many wait for their answer.
    pub under_way: Cell<usize>,
}

/// A caller's wish.
struct Wish {
    message: BrokerToConnector,
    /// The socket that goes along.
    socket: Option<Foreign>,
    /// How the caller wants its new socket.
    flags: SocketFlags,
    /// Whether the caller waits for the connection.
    waits: bool,
}

/// A call that was received, and is owed an answer.
struct ReceivedCall {
    calls: Rc<Calls>,
    id: u64,
    broker: Rc<Broker>,
}

impl ReceivedCall {
    fn new(calls: Rc<Calls>, id: u64, broker: Rc<Broker>) -> Self {
        broker.counters.connected();
        calls.under_way.set(calls.under_way.get() + 1);
        Self { calls, id, broker }
    }
}

impl Drop for ReceivedCall {
    fn drop(&mut self) {
        self.broker.counters.disconnected();
        self.calls.under_way.set(self.calls.under_way.get() - 1);
        // A mistake of ours costs one call, and leaves no caller that waits for ever.
        if std::thread::panicking() {
            self.calls.end(self.id, Err(Errno::IO), &self.broker);
        }
    }
}

impl Calls {
    /// Answers calls until no process is left that could make one.
    pub async fn attend(self: Rc<Self>, broker: Rc<Broker>) -> std::io::Result<()> {
        let watched = watch(self.listener.again()?)?;
        loop {
            let mut ready = watched.readable().await?;
            broker.connector.settled().await;
            // Receiving without a call there would wait.
            let mut question = [PollFd::new(&self.listener, PollFlags::IN)];
            poll(&mut question, Some(&AT_ONCE))?;
            match question[0].revents() {
                state if state.contains(PollFlags::IN) => {
                    if let Some(call) = self.listener.receive()? {
                        self.clone().take(call, &broker);
                    }
                }
                state if state.intersects(PollFlags::HUP | PollFlags::ERR) => return Ok(()),
                _ => ready.clear_ready(),
            }
        }
    }

    /// Takes a call that has arrived.
    fn take(self: Rc<Self>, call: CallNotification, broker: &Rc<Broker>) {
        if self.under_way.get() >= broker.waiting_max {
            return self.end(call.id, Err(Errno::AGAIN), broker);
        }
        let taken = ReceivedCall::new(self, call.id, broker.clone());
        tokio::task::spawn_local(async move {
            let (calls, broker) = (&taken.calls, &taken.broker);
            match calls.wish(&call, broker) {
                Ok(wish) => calls.fulfil(call.id, wish, broker).await,
                Err(errno) => calls.end(call.id, Err(errno), broker),
            }
        });
    }

    /// The connection that the call asks for, with all that it points at; nothing, unless the caller still waits.
    fn wish(&self, call: &CallNotification, broker: &Broker) -> Result<Wish, Errno> {
        let wish = match call.kind {
            CallKind::Socket => socket_wish(call),
            CallKind::Connect => self.connect_wish(call, broker),
            // Such calls are not notified.
            _ => Err(Errno::NOSYS),
        };
        // SECURITY: the number of a thread that has gone may be another's by now (`seccomp_unotify(2)`).
        if self.listener.waits(call.id) { wish } else { Err(Errno::INTR) }
    }

    fn connect_wish(&self, call: &CallNotification, broker: &Broker) -> Result<Wish, Errno> {
        let foreign = |error: std::io::Error| match Errno::from_io_error(&error) {
            Some(Errno::BADF) => Errno::BADF,
            Some(Errno::MFILE | Errno::NFILE) => Errno::NOBUFS,
            _ => {
                broker.closed_to_us(&error);
                Errno::ACCESS
            }
        };
        let process = broker.process_of(call.thread).map_err(foreign)?;
        let socket = Foreign::from(copy_descriptor(process, call.descriptor(0)).map_err(foreign)?);
        let mut buffer = [0; ADDRESS_MAX];
        let bytes = &mut buffer[..readable(call.arguments[2])?];
        read_memory(call.thread, call.arguments[1], bytes).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::PERM) => foreign(error),
                _ => Errno::FAULT,
            }
        })?;
        let waits = !rustix::fs::fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        let id = call.id;
        let message = match parse(bytes)? {
            Peer::None => BrokerToConnector::Disconnect { id },
            Peer::At(address, scope) => BrokerToConnector::Connect { id, address, scope, waits },
        };
        Ok(Wish { message, socket: Some(socket), flags: SocketFlags::empty(), waits })
    }

    /// Has the wish fulfilled, unless the caller goes away.
    async fn fulfil(&self, id: u64, wish: Wish, broker: &Broker) {
        let answered = tokio::select! {
            biased;
            answered = broker.connector.ask(id, &wish.message, wish.socket.as_ref()) => Some(answered),
            () = self.left(id) => None,
        };
        match answered {
            Some((ConnectorAnswer::Made(socket), _)) => self.give(id, &socket, wish.flags, broker),
            Some((ConnectorAnswer::Ended(result), asked)) => {
                // A connector that ended has perhaps begun it, and could not tidy up.
                let result = match result {
                    Err(Errno::ALREADY) if asked == AttemptNumber::Again && !wish.waits => {
                        Err(Errno::INPROGRESS)
                    }
                    Err(Errno::NETUNREACH) if wish.waits => wish.restored(),
                    result => result,
                };
                self.end(id, result, broker);
            }
            None => broker.connector.forget(id),
        }
    }

    /// Waits until the caller has left.
    async fn left(&self, id: u64) {
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.listener.waits(id) {
                return;
            }
        }
    }

    /// Ends a call with a new descriptor.
    fn give(&self, id: u64, socket: &Foreign, flags: SocketFlags, broker: &Broker) {
        let blocks = !flags.contains(SocketFlags::NONBLOCK);
        let ready = if blocks { Ok(()) } else { rustix::io::ioctl_fionbio(socket, true) };
        let close_on_exec = flags.contains(SocketFlags::CLOEXEC);
        let given = ready.and_then(|()| {
            let given = self.listener.end_with(id, socket, close_on_exec);
            given.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        });
        match given {
            Ok(_) => broker.counters.answered(),
            // It may have no more descriptors.
            Err(errno) => self.end(id, Err(errno), broker),
        }
    }

    /// Ends a call; one that was interrupted or has gone needs no answer.
    pub fn end(&self, id: u64, result: Result<(), Errno>, broker: &Broker) {
        broker.counters.answered();
        let _ = self.listener.end(id, result.err().map_or(0, Errno::raw_os_error));
    }
}

impl Wish {
    /// No connector has come: the socket blocks again, if one that has ended had not yet seen to that.
    fn restored(&self) -> Result<(), Errno> {
        if let Some(socket) = &self.socket {
            rustix::io::ioctl_fionbio(socket, false)?;
        }
        Err(Errno::NETUNREACH)
    }
}

fn socket_wish(call: &CallNotification) -> Result<Wish, Errno> {
    let [family, kind, protocol] = [0, 1, 2].map(|index: usize| call.arguments[index] as u32);
    let flags = SocketFlags::from_bits(kind & !KINDS).ok_or(Errno::INVAL)?;
    if !(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).contains(flags) {
        return Err(Errno::INVAL);
    }
    let datagram = match (SocketType::from_raw(kind & KINDS), protocol) {
        (SocketType::STREAM, 0) => false,
        (SocketType::DGRAM, 0) => true,
        (SocketType::STREAM, protocol) if protocol == ipproto::TCP.as_raw().get() => false,
        (SocketType::DGRAM, protocol) if protocol == ipproto::UDP.as_raw().get() => true,
        _ => return Err(Errno::PROTONOSUPPORT),
    };
    let v6 = family == u32::from(AddressFamily::INET6.as_raw());
    let message = BrokerToConnector::Socket { id: call.id, v6, datagram };
    Ok(Wish { message, socket: None, flags, waits: false })
}
