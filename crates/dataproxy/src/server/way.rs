//! The way to a server: who connects, and how to log in, which may change while connections are there.
//!
//! Sees: passwords and authorities of the operator's; what the server says at a login. Never: gives a login up that
//! works for one that the server does not take.

use std::cell::RefCell;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use wire::data::DATABASE_TARGET;
use worker::dialer::Dialer;
use worker::server_stream::ServerStream;

use super::session::ServerSession;
use super::tls::ServerTls;

/// LIMIT: how long a server may take to let the proxy log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How to log in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    /// The check of the server's certificate; without, there is no TLS.
    pub(crate) tls: Option<ServerTls>,
}

/// How a connection comes about.
pub(crate) enum Road {
    /// A connector makes it.
    Connector(Rc<Dialer<ServerStream>>),
    /// This process makes it, to `unix:PATH` or `HOST:PORT`.
    Direct(String),
}

/// Logs in on a new connection.
pub(crate) trait LogIn<T>: AsyncFn(ServerStream, &Login) -> Result<T, String> {}

impl<T, F: AsyncFn(ServerStream, &Login) -> Result<T, String>> LogIn<T> for F {}

/// See the file's head.
pub(crate) struct Way {
    road: Road,
    login: RefCell<Rc<Login>>,
    /// A login that was read again, and that the server has not taken yet.
    newer: RefCell<Option<Rc<Login>>>,
    taken: Notify,
}

impl Way {
    pub(crate) fn new(road: Road, login: Login) -> Self {
        let login = RefCell::new(Rc::new(login));
        Self { road, login, newer: RefCell::default(), taken: Notify::new() }
    }

    /// The login that the server takes, as far as anybody knows.
    pub(super) fn login(&self) -> Rc<Login> {
        self.login.borrow().clone()
    }

    /// Has new connections log in like this, from when on the server takes it.
    pub(crate) fn offer(&self, login: Login) {
        *self.newer.borrow_mut() = Some(Rc::new(login));
    }

    /// Whether the server has taken what was read last.
    pub(crate) fn is_taken(&self) -> bool {
        self.newer.borrow().is_none()
    }

    /// Waits until the server has taken what was read last.
    pub(crate) async fn taken(&self) {
        while !self.is_taken() {
            self.taken.notified().await;
        }
    }

    /// Has the server say whether it takes what was offered.
    pub(crate) async fn try_newer<T>(&self, how: impl LogIn<T>) -> Result<(), String> {
        let newer = self.newer.borrow().clone();
        match newer {
            Some(newer) => self.log_in_newer(newer, &how).await.map(drop),
            None => Ok(()),
        }
    }

    /// A session on a new connection.
    pub(super) async fn log_in<S: ServerSession>(&self) -> Result<S, String> {
        self.log_in_by(async |stream, login| S::log_in(stream, login).await).await
    }

    /// Logs in on a new connection: by the login that was read last; or by the one before, as long as the server takes
    /// that alone.
    pub(crate) async fn log_in_by<T>(&self, how: impl LogIn<T>) -> Result<T, String> {
        let newer = self.newer.borrow().clone();
        let refused = match newer {
            Some(newer) => match self.log_in_newer(newer, &how).await {
                Ok(session) => return Ok(session),
                Err(reason) => Some(reason),
            },
            None => None,
        };
        self.log_in_as(&self.login(), &how).await.map_err(|reason| refused.unwrap_or(reason))
    }

    async fn log_in_newer<T>(&self, newer: Rc<Login>, how: &impl LogIn<T>) -> Result<T, String> {
        let session = self.log_in_as(&newer, how).await?;
        // Meanwhile an even newer one may have been read, or have been taken.
        if self.newer.borrow_mut().take_if(|waits| Rc::ptr_eq(waits, &newer)).is_some() {
            *self.login.borrow_mut() = newer;
            self.taken.notify_waiters();
        }
        Ok(session)
    }

    async fn log_in_as<T>(&self, login: &Login, how: &impl LogIn<T>) -> Result<T, String> {
        let session = async { how(self.connect().await?, login).await };
        let silent = match &login.tls {
            Some(_) => "the server does not answer; it may speak no TLS, which `server_ca` asks for",
            None => "the server does not answer",
        };
        timeout(LOGIN_TIMEOUT, session).await.unwrap_or_else(|_| Err(silent.into()))
    }

    pub(super) async fn connect(&self) -> Result<ServerStream, String> {
        let connected = match &self.road {
            Road::Connector(dialer) => {
                dialer.connect(DATABASE_TARGET).await.map_err(|why| in_words(why).into())
            }
            Road::Direct(address) => direct(address).map_err(|error| error.to_string()),
        };
        connected.map_err(|why: String| format!("the server cannot be connected to: {why}"))
    }
}

fn direct(address: &str) -> io::Result<ServerStream> {
    let socket: OwnedFd = match address.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path)?.into(),
        None => TcpStream::connect(address)?.into(),
    };
    socket.try_into()
}

fn in_words(why: wire::Unreachable) -> &'static str {
    use wire::Unreachable::{Crowded, Forbidden, Late, Refused, Unknown, Unresolved};
    match why {
        Refused | Unknown => "nobody listens there",
        Late => "it does not answer",
        Crowded => "too many connections are wanted",
        Forbidden => "the system refuses; its connector has said why",
        Unresolved => "its name has no address",
    }
}
