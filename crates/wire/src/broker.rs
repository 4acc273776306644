//! Sockets and connections for services: what the launcher tells a broker, and what a broker asks its connector for.
//!
//! Runs in: the launcher, brokers, connectors. Sees: in a connector, bytes of a broker, which reads its service's
//! memory and may be compromised. Never: a descriptor of a service's on the way to the launcher.

use std::net::SocketAddr;

use crate::codec::messages;

messages! {
    /// From the launcher to a broker.
    pub enum LauncherToBroker {
        /// First of all: how many calls of a process may wait at once, how long they wait for a connector, and how
        /// often buffered log records are handed to the logger.
        1 => Limits { waiting_max: u32, connect_timeout_ms: u32, flush_ms: u32 },
        /// All of the above has been said: answer.
        2 => Begin {},
        /// The channel to the service's connector comes along; it takes the place of an earlier one.
        3 => Connector {},
        /// Where the calls of a process of the service arrive comes along; `leader` is its number in the machine's PID
        /// namespace. A broker that takes another's place gets those of all processes that live.
        4 => Listener { leader: u32 },
        /// Asks for `Counters`.
        5 => Report {},
    }
}

messages! {
    /// From a service's broker to its connector. `id` is the kernel's number of the call.
    pub enum BrokerToConnector {
        /// A socket is wanted: of IPv6 or IPv4, of UDP or TCP.
        1 => Socket { id: u64, v6: bool, datagram: bool },
        /// The socket that comes along is to be connected. If the caller `waits`, so does the answer, and the socket is
        /// one that blocks, before and after. `scope` is an IPv6 address's.
        2 => Connect { id: u64, address: SocketAddr, scope: u32, waits: bool },
        /// The UDP socket that comes along is to have no peer any more.
        3 => Disconnect { id: u64 },
        /// The answer is not wanted any more. It may be on its way already.
        4 => Cancel { id: u64 },
    }
}

messages! {
    /// From a service's connector to its broker. An answer may name a call of which an earlier broker has asked.
    pub enum ConnectorToBroker {
        /// The new socket comes along.
        1 => Made { id: u64 },
        /// It is done (0), or this is why not; `EINPROGRESS` for a socket that does not wait.
        2 => Ended { id: u64, errno: u16 },
    }
}
