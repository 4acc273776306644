//! An address that is listened on: what is spoken there, whose each request is, who may say where a client is.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use conditioning::IpNetwork;
use request::head::RequestHead;
use worker::routes::Routes;

use crate::partition::Partition;

/// The protocol spoken on a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Plain,
    /// TLS, and nothing else.
    Tls,
    /// HTTP/1.1, and HTTP/2 to those who begin with its preface.
    PlainOrHttp2,
}

/// The proxies that may name another client for a connection; without any, connections begin with requests.
#[derive(Debug, Default)]
pub struct Proxies(RefCell<Vec<IpNetwork>>);

impl Proxies {
    /// Adds a network.
    pub fn trust(&self, network: IpNetwork) {
        self.0.borrow_mut().push(network);
    }

    /// Whether connections begin with a header.
    pub fn expected(&self) -> bool {
        !self.0.borrow().is_empty()
    }

    /// Whether this is the address of a proxy that may say so.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.0.borrow().iter().any(|network| network.contains(peer.to_canonical()))
    }
}

/// Whose a request is.
#[derive(Clone)]
pub struct RouteTarget {
    /// The partition that answers.
    pub partition: Rc<Partition>,
    /// The site in whose log it appears.
    pub site: u16,
}

/// One address that is listened on.
pub struct GateListener {
    /// The launcher's number for it.
    pub number: u16,
    address: SocketAddr,
    /// Whose each request is that comes by it.
    routes: RefCell<Routes<RouteTarget>>,
    /// Whether the users of several clients may share one connection, so that its peer's address says nothing.
    pub shared: Cell<bool>,
    /// The protocol spoken on it.
    pub protocol: Cell<Protocol>,
    /// Whether connections on which filters see no requests may pass them by.
    pub unfiltered: Cell<bool>,
    /// Requests that are redirected to https, with the port there; 0 for those that are not.
    redirects: RefCell<Routes<u16>>,
    /// The first site that was named for it.
    first: RefCell<Option<RouteTarget>>,
    /// The proxies that may name a connection's client.
    pub proxies: Proxies,
}

impl GateListener {
    /// A listener without routes, at an address of ours.
    pub fn new(number: u16, address: SocketAddr) -> Self {
        Self {
            number,
            address,
            routes: RefCell::default(),
            shared: Cell::new(false),
            protocol: Cell::default(),
            unfiltered: Cell::default(),
            redirects: RefCell::default(),
            first: RefCell::default(),
            proxies: Proxies::default(),
        }
    }

    /// Adds a route.
    pub fn add_route(&self, host: &str, path: &str, target: RouteTarget) {
        if path == "/" {
            self.first.borrow_mut().get_or_insert_with(|| target.clone());
        }
        self.routes.borrow_mut().add(host, path, target);
    }

    /// Requests for `host` below `path` are redirected to https at `port`; not at all, if the port is 0.
    pub fn add_redirect(&self, host: &str, path: &str, port: u16) {
        self.redirects.borrow_mut().add(host, path, port);
    }

    /// Takes a host out, with all its paths.
    pub fn forget_host(&self, host: &str) {
        self.routes.borrow_mut().remove(host);
        self.redirects.borrow_mut().remove(host);
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether connections to this address of ours come by it.
    pub fn covers(&self, local: SocketAddr) -> bool {
        let any = self.address.ip().is_unspecified() && self.address.is_ipv4() == local.is_ipv4();
        self.address.port() == local.port() && (any || self.address.ip() == local.ip())
    }

    /// Whose a request is.
    pub fn target(&self, head: &RequestHead<'_>) -> Option<RouteTarget> {
        self.routes.borrow().find(head.host, head.path).cloned()
    }

    /// The port at which there is https for a request, if it is to go there.
    pub fn redirect(&self, head: &RequestHead<'_>) -> Option<u16> {
        let redirects = self.redirects.borrow();
        redirects.find(head.host, head.path).copied().filter(|port| *port > 0)
    }

    /// Whose a connection is of which only the host is known; who names none gets the site of every host, or else the
    /// first.
    pub fn target_of_host(&self, host: &[u8]) -> Option<RouteTarget> {
        let found = self.routes.borrow().find(host, "/").cloned();
        found.or_else(|| self.first.borrow().clone().filter(|_| host.is_empty()))
    }

    /// Whose it is what names no host.
    pub fn default_target(&self) -> Option<RouteTarget> {
        self.routes.borrow().find(b"", "/").cloned()
    }
}
