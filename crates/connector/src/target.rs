//! A target: one or several servers of which any will do.
//!
//! Runs in: the connector. Sees: which connections come about. Never: waits without a deadline.
//!
//! A full queue of a Unix socket is a server that is busy, not one that is gone: who wants a connection waits for a
//! place, in the order in which they came, and is not answered with an error at once. Source:
//! `epoll_unixconnect_forgiving` of the web server rwasa (2ton.com.au).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use wire::Unreachable;

use crate::address::{Address, Tried};

/// LIMIT: how long a server that could not be connected to is left out, where there are others.
const LEFT_OUT: Duration = Duration::from_secs(5);

/// LIMIT: how often a full queue is tried again: a server takes a connection within a millisecond or is busy for
/// longer, so the pause grows.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Some servers that do the same.
#[derive(Debug, Default)]
pub struct Target {
    members: Vec<Member>,
    /// Whose turn it is.
    next: Cell<usize>,
}

#[derive(Debug)]
struct Member {
    address: Address,
    /// Until when it is left out.
    out_until: Cell<Option<Instant>>,
    /// Held by who is the first of those that wait for a place in its queue.
    queue: Mutex<()>,
    /// What was wrong the last time, so that it is told once.
    fault: RefCell<Option<String>>,
}

/// What came of one round of attempts.
enum Round {
    Connected(OwnedFd),
    /// A server is there whose queue is full.
    Full(usize),
    None(Unreachable),
}

impl Target {
    /// Adds a server.
    pub fn add(&mut self, address: Address) {
        self.members.push(Member {
            address,
            out_until: Cell::new(None),
            queue: Mutex::new(()),
            fault: RefCell::new(None),
        });
    }

    /// A connection to one of the servers, by `deadline`. What changes for the better or the worse is told to `log`.
    pub async fn connect(&self, deadline: Instant, log: &dyn Fn(String)) -> Result<OwnedFd, Unreachable> {
        match self.try_each(deadline, log).await {
            Round::Connected(socket) => Ok(socket),
            Round::None(why) => Err(why),
            Round::Full(member) => {
                let waited = timeout_at(deadline, self.members[member].wait_for_place()).await;
                match waited {
                    Ok(Ok(socket)) => Ok(socket),
                    Ok(Err(error)) => Err(self.members[member].failed(&error, log)),
                    Err(_) => Err(Unreachable::Late),
                }
            }
        }
    }

    /// Tries one server after the other, those that failed lately last.
    async fn try_each(&self, deadline: Instant, log: &dyn Fn(String)) -> Round {
        let (mut full, mut why) = (None, Unreachable::Unknown);
        let order = self.order();
        for (tried, &number) in order.iter().enumerate() {
            let member = &self.members[number];
            // Each of those that are left gets its part of what is left of the time.
            let now = Instant::now();
            let part = deadline.saturating_duration_since(now) / (order.len() - tried) as u32;
            match timeout_at(now + part, member.try_once()).await {
                Ok(Ok(Tried::Connected(socket))) => {
                    member.succeeded(log);
                    return Round::Connected(socket);
                }
                Ok(Ok(Tried::Full)) => full = full.or(Some(number)),
                Ok(Err(error)) => why = member.failed(&error, log),
                Err(_) => {
                    member.failed(&io::ErrorKind::TimedOut.into(), log);
                    why = Unreachable::Late;
                }
            }
        }
        full.map_or(Round::None(why), Round::Full)
    }

    /// In which order the servers are tried: in turn, those that are left out at the end.
    fn order(&self) -> Vec<usize> {
        let count = self.members.len();
        let first = self.next.get();
        self.next.set((first + 1) % count.max(1));
        let now = Instant::now();
        let mut order: Vec<usize> = (0..count).map(|at| (first + at) % count).collect();
        order.sort_by_key(|&number| self.members[number].out_until.get().is_some_and(|until| until > now));
        order
    }
}

impl Member {
    /// One attempt, not past those who wait for a place already.
    async fn try_once(&self) -> io::Result<Tried> {
        match self.queue.try_lock() {
            Ok(_) => self.address.connect().await,
            // It is full for others, and so for us.
            Err(_) if matches!(self.address, Address::Unix(..)) => Ok(Tried::Full),
            Err(_) => self.address.connect().await,
        }
    }

    /// Waits for those who came before, and then for a place.
    async fn wait_for_place(&self) -> io::Result<OwnedFd> {
        let _first = self.queue.lock().await;
        let mut pause = PAUSE_MIN;
        loop {
            if let Tried::Connected(socket) = self.address.connect().await? {
                return Ok(socket);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn succeeded(&self, log: &dyn Fn(String)) {
        self.out_until.set(None);
        if self.fault.take().is_some() {
            log(format!("{} can be connected to again", self.address));
        }
    }

    fn failed(&self, error: &io::Error, log: &dyn Fn(String)) -> Unreachable {
        self.out_until.set(Some(Instant::now() + LEFT_OUT));
        let text = error.to_string();
        let known = self.fault.replace(Some(text.clone()));
        if known.as_ref() != Some(&text) {
            log(format!("{} cannot be connected to: {text}", self.address));
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
