//! One address of a target, and how the attempts to connect to it went.
//!
//! Runs in: the connector. Sees: which connections come about. Never: says the same fault twice in a row.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use wire::Unreachable;

use crate::address::{Address, ConnectOutcome};

/// LIMIT: how long a server that could not be connected to is left out, where there are others.
const LEFT_OUT: Duration = Duration::from_secs(5);

/// LIMIT: how long a server that has left a request unanswered for all of its time is left out, likewise: as long as
/// nginx does.
const SILENT: Duration = Duration::from_secs(10);

/// LIMIT: how often a full queue is tried again: a server takes a connection within a millisecond or is busy for
/// longer, so the pause grows.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// One address.
#[derive(Debug)]
pub(crate) struct TargetAddress {
    address: Address,
    /// The name that has the address.
    name: Option<Rc<str>>,
    /// Until when it is left out.
    out_until: Cell<Option<Instant>>,
    /// Held by who is the first of those that wait for a place in its queue.
    queue: Mutex<()>,
    /// The last fault, so that it is logged once.
    fault: RefCell<Option<String>>,
    /// Whether the system has not said that it has no sockets that connect with their first bytes.
    can_be_aimed_at: Cell<bool>,
}

impl TargetAddress {
    /// An address, and the name that has it.
    pub fn new(address: Address, name: Option<Rc<str>>) -> Self {
        let (out_until, queue, fault) = (Cell::new(None), Mutex::new(()), RefCell::new(None));
        Self { address, name, out_until, queue, fault, can_be_aimed_at: Cell::new(true) }
    }

    /// Whether it is this address.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        matches!(self.address, Address::Tcp(own) if own == address)
    }

    /// Whether attempts failed lately.
    pub fn is_left_out(&self, now: Instant) -> bool {
        self.out_until.get().is_some_and(|until| until > now)
    }

    /// One attempt, not past those who wait for a place already.
    pub async fn try_once(&self) -> io::Result<ConnectOutcome> {
        match self.queue.try_lock() {
            Ok(_) => self.address.connect().await,
            // It is full for others, and so for us.
            Err(_) if matches!(self.address, Address::Unix(..)) => Ok(ConnectOutcome::Full),
            Err(_) => self.address.connect().await,
        }
    }

    /// A socket that connects with its first bytes; `None` if that cannot be.
    pub fn aim(&self) -> Option<OwnedFd> {
        if !self.can_be_aimed_at.get() || self.is_left_out(Instant::now()) {
            return None;
        }
        let aimed = self.address.aim()?;
        let is_unsupported = |error: &io::Error| error.kind() == io::ErrorKind::Unsupported;
        self.can_be_aimed_at.set(!aimed.as_ref().is_err_and(is_unsupported));
        aimed.ok()
    }

    /// Waits for those who came before, and then for a place.
    pub async fn wait_for_place(&self) -> io::Result<OwnedFd> {
        let _first = self.queue.lock().await;
        let mut pause = PAUSE_MIN;
        loop {
            if let ConnectOutcome::Connected(socket) = self.address.connect().await? {
                return Ok(socket);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Leaves it out, as it takes connections and answers nothing.
    pub fn fell_silent(&self, log: &dyn Fn(String)) {
        let now = Instant::now();
        if !self.is_left_out(now) {
            let (shown, seconds) = (self.shown(), SILENT.as_secs());
            log(format!(
                "{shown} has not answered in time; for {seconds} s, the others are asked in its place"
            ));
        }
        self.out_until.set(Some(now + SILENT));
    }

    fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} at {}", self.address),
            None => self.address.to_string(),
        }
    }

    /// Forgets the last fault.
    pub fn succeeded(&self, log: &dyn Fn(String)) {
        self.out_until.set(None);
        if self.fault.take().is_some() {
            log(format!("{} can be connected to again", self.shown()));
        }
    }

    /// Remembers a fault, and says it if it is news.
    pub fn failed(&self, error: &io::Error, log: &dyn Fn(String)) -> Unreachable {
        self.out_until.set(Some(Instant::now() + LEFT_OUT));
        let text = error.to_string();
        let known = self.fault.replace(Some(text.clone()));
        if known.as_ref() != Some(&text) {
            log(format!("{} cannot be connected to: {text}{}", self.shown(), remedy(error)));
        }
        match error.kind() {
            io::ErrorKind::TimedOut => Unreachable::Late,
            io::ErrorKind::PermissionDenied => Unreachable::Forbidden,
            _ if error.raw_os_error().is_some_and(is_shortage) => Unreachable::Forbidden,
            _ => Unreachable::Refused,
        }
    }
}

/// Whether the system is at its own end, and the server not to blame.
fn is_shortage(error: i32) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS]
        .iter()
        .any(|known| known.raw_os_error() == error)
}

/// The operator's remedy for a server that cannot be reached.
fn remedy(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let uid = rustix::process::getuid().as_raw();
            format!(
                "; uid {uid} needs write permission for it, and `x` for its folder: `setfacl -m u:{uid}:rwx`"
            )
        }
        io::ErrorKind::NotFound => "; its server does not run, or listens elsewhere".to_owned(),
        io::ErrorKind::ConnectionRefused => "; no server listens there any more".to_owned(),
        _ => String::new(),
    }
}
