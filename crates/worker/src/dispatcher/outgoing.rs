//! The connections that a dispatcher sends, its owner, and the clients that wait for room.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sys::foreign::Foreign;

/// A connection to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its descriptor.
    pub stream: Foreign,
    /// The client.
    pub peer: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
    /// The protocol spoken on it; `Relayed` where this process is at its other end.
    pub kind: wire::Kind,
    /// Bytes that were read from it already.
    pub preread: Vec<u8>,
}

/// Whose share a connection takes, if it is counted.
pub type CountedClient = Option<IpAddr>;

/// A connection that is counted into its ranges of addresses.
#[derive(Debug)]
pub struct Ready {
    /// The connection.
    pub outgoing: Outgoing,
    /// Whose share it takes.
    pub client: CountedClient,
    /// Until when it may wait, if it has waited already.
    pub deadline: Option<Instant>,
}

/// The events that the owner of a [`Dispatcher`] learns of.
pub trait Owner {
    /// A worker has been sent a connection; it is out of our hands.
    fn delivered(&self);
    /// No worker took this connection in time, or too many wait already.
    fn undelivered(&self, outgoing: Outgoing);
    /// A worker hands this connection back: its next request is another partition's. `client` is whose it was when it
    /// was sent, if it is one of ours.
    fn handed_back(&self, stream: Foreign, preread: Vec<u8>, client: Option<SocketAddr>);
    /// A worker says how much a client has used of what it may ask for; whether that is for this owner to hear.
    fn rate_used(&self, client: IpAddr, used: Duration) -> bool {
        let _ = (client, used);
        false
    }
    /// A worker says that a client has offended; whether that is for this owner to hear.
    fn offended(&self, client: IpAddr) -> bool {
        let _ = client;
        false
    }
    /// A guarded server has answered so many requests on connections that it kept.
    fn served(&self, requests: u32) {
        let _ = requests;
    }
    /// Something waits, and there is no worker: said once, until one comes. Or none that there is keeps up: said again
    /// and again.
    fn wanted(&self) {}
    /// So many wait, and every worker has all that it was sent and asks for no more: until something ends there, none
    /// is sent.
    fn full(&self, waiting: usize) {
        let _ = waiting;
    }
    /// So many workers take connections: one has come, or one retires or is gone, and what was sent to that should not
    /// be used for new work.
    fn workers_changed(&self, count: usize) {
        let _ = count;
    }
}

/// A partition of a guarded server, as the server's processes see it.
pub trait WaitingPartition {
    /// No process holds a connection of `client` any more; `serve_others` gives other partitions of the server their
    /// turn.
    fn connection_ended(self: Rc<Self>, client: CountedClient, serve_others: &dyn Fn());
    /// There may be room for connections that wait.
    fn serve_queue(&self);
    /// A process hands a connection back.
    fn handed_back(&self, stream: Foreign, preread: Vec<u8>);
    /// A process has answered so many requests on connections that it kept.
    fn served(&self, requests: u32);
    /// Since when the oldest connection waits of those that do.
    fn waits_since(&self) -> Option<Instant>;
}
