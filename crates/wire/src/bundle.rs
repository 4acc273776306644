//! Connections on their way from a source (a gate, or a site worker for its services and for sites below its host) to a
//! worker.
//!
//! Runs in: gate, site worker, service worker. Sees: from a source, what it accepted; from a worker, bytes
//! that a compromised service may have made up. Never: more descriptors in a message than bundles.
//!
//! Sources: Park and Pai, "Connection Conditioning", NSDI 2006, "Implementation" (descriptor and request as one atomic
//! bundle);
//! Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.2.

use std::net::SocketAddr;

use crate::codec::{Bytes, DecodeError, Field, Reader, choice, messages, record};

/// The most bytes already read from a connection that may travel with it.
///
/// LIMIT: a whole request head at its largest setting (64 KiB).
pub const PREREAD_MAX: usize = 64 * 1024;

/// In the place of a number that no source gives.
pub const NUMBERLESS: u64 = u64::MAX;

choice! {
    /// What is spoken on a connection, and by whom. Filters and guarded servers see the first two only.
    pub enum Kind {
        /// HTTP/1.1, by a client.
        0 => Plain,
        /// HTTP/1.1, by a site worker, which relays requests of several clients.
        1 => Relayed,
        /// TLS, by a client; nothing was taken of it.
        2 => Tls,
        /// HTTP/2 without TLS, by a client that began with its preface.
        3 => Http2,
        /// HTTP/1.1, by the worker of the site that has the certificate of our host: one request of one client, who
        /// sent it under TLS by HTTP/1.0.
        4 => RelayedTls10,
        /// The same, by HTTP/1.1.
        5 => RelayedTls11,
        /// The same, by HTTP/2.
        6 => RelayedTls2,
    }
}

record! {
    /// What is known of a connection besides its descriptor.
    pub struct Bundle {
        /// The source's number for it, to be named in `done`.
        id: u64,
        /// The client.
        peer: SocketAddr,
        /// The address of ours that it connected to.
        local: SocketAddr,
        /// What is spoken on it.
        kind: Kind,
        /// Bytes that were read from it already; they come before what is still in the socket.
        preread: Bytes<PREREAD_MAX>,
    }
}

/// The most connections in one message.
///
/// LIMIT: as many as a gate accepts in one turn, and as many descriptors as are received at once.
pub const BUNDLES_MAX: usize = 64;

/// Several bundles, at most [`BUNDLES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundles(pub Vec<Bundle>);

impl Field for Bundles {
    fn layout() -> String {
        format!("List({}, {BUNDLES_MAX})", Bundle::layout())
    }
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.0.len() <= BUNDLES_MAX, "a sender keeps the limit of its own message");
        (self.0.len() as u16).put(out);
        self.0.iter().for_each(|bundle| bundle.put(out));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::from(u16::take(reader)?);
        if count > BUNDLES_MAX {
            return Err(DecodeError::Limit(BUNDLES_MAX));
        }
        (0..count).map(|_| Bundle::take(reader)).collect::<Result<_, _>>().map(Self)
    }
}

messages! {
    /// From a source to a worker. The end of the channel answers `Drain`: nothing more will come.
    pub enum ToWorker {
        /// A connection; its descriptor comes along. Sent only against a credit.
        1 => Connection { bundle: Bundle },
        /// Several connections; their descriptors come along, in the same order. Sent only against as many credits, and
        /// never to filters and guarded servers.
        2 => Connections { bundles: Bundles },
    }
}

messages! {
    /// From a worker to a source.
    pub enum FromWorker {
        /// The source may send that many more connections; and these, received earlier, have ended.
        1 => Returns { credits: u16, done: Vec<u64> },
        /// A connection whose next request is another partition's; its descriptor comes along. [`NUMBERLESS`], if it
        /// was
        /// not this source that had sent it.
        2 => Back { id: u64, preread: Bytes<PREREAD_MAX> },
        /// The worker retires: it will take what was sent, and asks for nothing more to be sent.
        3 => Drain {},
        /// A client, its address as in `Ban`, has used so much of what `rate_max` allows it, on connections that the
        /// worker holds, in milliseconds until it has all of it again. Only a gate takes it, for the worker's
        /// partition.
        4 => Rate { address_high: u64, address_low: u64, used_ms: u32 },
        /// A client, its address as in `Ban`, has done so much of what costs it nothing that its connection was ended.
        /// Only a gate takes it, for the worker's partition.
        5 => Offence { address_high: u64, address_low: u64 },
    }
}

messages! {
    /// From one process of a guarded server (its preloaded library, or a program that uses the C library) to the
    /// gate, on a channel of its own: the end of the channel is the end of the process, and of all that it held.
    pub enum FromGuarded {
        /// It has taken the connection `id` of the client `peer` from the channel that all of its kind share.
        1 => Took { id: u64, peer: SocketAddr },
        /// It has closed it.
        2 => Done { id: u64 },
        /// The response is complete and the connection is kept alive: it comes along, with bytes already read from it.
        3 => Back { id: u64, preread: Bytes<PREREAD_MAX> },
        /// It can keep connections between two requests, and wants to hear [`ToGuarded`].
        4 => Keeps {},
        /// So many requests were answered on connections that were kept.
        5 => Served { requests: u32 },
        /// It has taken some, and then closed some.
        6 => Batch { took: Vec<u64>, done: Vec<u64> },
    }
}

messages! {
    /// From the gate to one process of a guarded server that [`FromGuarded::Keeps`].
    pub enum ToGuarded {
        /// It may keep so many connections that wait for their next request, and gives back what it has beyond that;
        /// a request whose head is longer than `head_bytes` goes to the gate.
        1 => Keep { connections: u32, head_bytes: u32 },
    }
}

messages! {
    /// From a guarded server to its guard, on a channel that all of its processes share.
    pub enum ToGuard {
        /// A socket that listens comes along; the gate is to accept on it. `number` tells the server's listeners apart.
        1 => Listening { number: u64 },
        /// The end of a shared channel comes along, on which the gate sends what it accepts on listener `number`.
        2 => Accepting { number: u64 },
        /// The gate's end of a new process's own channel comes along ([`FromGuarded`]).
        3 => Process {},
    }
}
