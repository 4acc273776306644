//! Connections to upstreams, FastCGI servers and databases: who may ask for which, and how they come.
//!
//! Runs in: the launcher, connectors, site workers, data proxies. Sees: in a connector, bytes of a site's worker or a
//! data proxy, which may be compromised. Never: an address or a name on the way to a connector: who asks knows targets
//! by number alone.

use std::net::SocketAddr;

use crate::codec::{Text, choice, messages};

/// The longest file name of a Unix socket, so that it fits into an address.
///
/// LIMIT: `sun_path` has 108 bytes, the last of which is nought.
pub const SOCKET_NAME_MAX: usize = 107;

/// The longest name of a server (RFC 1035 2.3.4).
pub const SERVER_NAME_MAX: usize = 253;

messages! {
    /// From the launcher to a connector.
    pub enum LauncherToConnector {
        /// First of all: how long a connection may take to come about, how many may be wanted at once, and how often
        /// buffered log records are handed to the logger.
        1 => Limits { connect_timeout_ms: u32, waiting_max: u32, flush_ms: u32 },
        /// `target` can be reached at this address. A target with several addresses has several of these messages.
        2 => Tcp { target: u16, address: SocketAddr },
        /// `target` can be reached at the Unix socket `name` in the directory that comes along.
        3 => Unix { target: u16, name: Text<SOCKET_NAME_MAX> },
        /// All of the above has been said: connect.
        4 => Begin {},
        /// A channel from the site's worker or the data proxy comes along.
        5 => Attach {},
        /// Asks for `Counters`.
        6 => Report {},
        /// Before `Begin`: the service may connect by TCP to `port` of the hosts in `network` (`10.0.0.0/8`,
        /// `0.0.0.0/0`, `::/0`).
        7 => Grant { network: Text<64>, port: u16 },
        /// Before `Begin`: the service may use UDP, with whatever host and port.
        8 => GrantUdp {},
        /// A channel from the service's broker comes along.
        9 => AttachBroker {},
        /// `target` can be reached at `port` of the addresses that `name` has.
        10 => Name { target: u16, name: Text<SERVER_NAME_MAX>, port: u16 },
        /// The file comes along that says which servers know names (`resolv.conf`); it replaces an earlier one.
        11 => Resolver {},
        /// The file comes along with names that are known (`hosts`); it replaces an earlier one.
        12 => Hosts {},
    }
}

messages! {
    /// From a site's worker or a data proxy to its connector.
    pub enum ToConnector {
        /// A connection to `target` is wanted; the answer names `id`.
        1 => Connect { id: u64, target: u16 },
        /// The connection is not wanted any more. Its answer may be on its way already.
        2 => Cancel { id: u64 },
        /// Sockets are wanted that connect to `target` with the first bytes that are written to them.
        3 => Aim { target: u16 },
        /// A server has not answered in time on the connection `id`: others of its target are to be tried before it for
        /// a while.
        4 => Silent { id: u64 },
    }
}

choice! {
    /// Why there is no connection.
    pub enum Unreachable {
        /// Nobody listens there, or the way is cut.
        0 => Refused,
        /// It was not accepted in time.
        1 => Late,
        /// Too many connections are wanted at once.
        2 => Crowded,
        /// There is no such target.
        3 => Unknown,
        /// The system refuses: no right to the socket, or no descriptor left.
        4 => Forbidden,
        /// Its name has no address.
        5 => Unresolved,
    }
}

messages! {
    /// From a connector to its site's worker or data proxy.
    pub enum FromConnector {
        /// The connection `id` comes along.
        1 => Connected { id: u64 },
        /// There will be none.
        2 => Failed { id: u64, why: Unreachable },
        /// `target` is no longer at some of its addresses: connections from before are not for further requests.
        3 => Moved { target: u16 },
        /// Sockets come along that connect to `target` with the first bytes that are written to them; none if that
        /// cannot be.
        4 => Aimed { target: u16 },
    }
}
