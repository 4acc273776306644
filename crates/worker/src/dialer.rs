//! Connections to servers, which a connector makes for those that have no network.
//!
//! Runs in: site workers and data proxies, under their own uids. Untrusted input: the connector's messages, as far as
//! that may be compromised. Must never: wait for the connector without a deadline.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use sys::foreign::{Connection, connection, leave};
use tokio::sync::{Notify, oneshot};
use wire::{FromConnector, ToConnector, Unreachable};

use crate::channel::{Channel, Foreign};
use crate::stock::Stock;

/// LIMIT: how long a connection waits for a connector that has died to be there again; it starts within milliseconds.
const CONNECTOR_TIMEOUT: Duration = Duration::from_secs(5);

/// LIMIT: how many connectors are asked for a connection, each of which has died meanwhile.
const CONNECTORS_MAX: u32 = 3;

type ConnectorChannel = Channel<FromConnector, ToConnector>;
type ConnectResult<S> = Result<S, Unreachable>;

/// The way to the connector, whose sockets become connections of the kind `S`.
pub struct Dialer<S> {
    line: RefCell<Option<Rc<ConnectorChannel>>>,
    attached: Notify,
    /// Connections that were asked for.
    wanted: RefCell<HashMap<u64, oneshot::Sender<ConnectResult<S>>>>,
    next_id: Cell<u64>,
    /// Callbacks for targets whose addresses change.
    on_moved: RefCell<HashMap<u16, Box<dyn Fn()>>>,
    /// Sockets that connect with their first bytes.
    stock: RefCell<HashMap<u16, Rc<Stock>>>,
}

/// A connection that was asked for; it is not wanted any more once this is dropped.
struct Wish<'a, S> {
    dialer: &'a Dialer<S>,
    line: Rc<ConnectorChannel>,
    id: u64,
}

impl<S> Drop for Wish<'_, S> {
    fn drop(&mut self) {
        if self.dialer.wanted.borrow_mut().remove(&self.id).is_some() {
            let _ = self.line.try_send(&ToConnector::Cancel { id: self.id }, None);
        }
    }
}

impl<S> Default for Dialer<S> {
    fn default() -> Self {
        Self {
            line: RefCell::default(),
            attached: Notify::default(),
            wanted: RefCell::default(),
            next_id: Cell::default(),
            on_moved: RefCell::default(),
            stock: RefCell::default(),
        }
    }
}

impl<S: TryFrom<Connection, Error = io::Error> + 'static> Dialer<S> {
    /// Takes over the channel to a connector, in place of an earlier one.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn attach(self: &Rc<Self>, channel: OwnedFd) -> io::Result<()> {
        let line: Rc<ConnectorChannel> = Rc::new(Channel::new(channel)?);
        *self.line.borrow_mut() = Some(line.clone());
        self.attached.notify_waiters();
        let dialer = self.clone();
        tokio::task::spawn_local(async move {
            let take = |arrived: Result<(_, &mut Vec<_>), _>| match arrived {
                Ok((message, descriptors)) => dialer.receive(&message, descriptors),
                Err(_) => 1,
            };
            line.receive_all_many("the connector", take).await;
            dialer.lose(&line);
        });
        Ok(())
    }

    /// Takes what a connector says, and the descriptors that it is about; how much nonsense that was.
    fn receive(&self, message: &FromConnector, descriptors: &mut Vec<OwnedFd>) -> u32 {
        match (message, descriptors.len()) {
            (&FromConnector::Connected { id }, 1) => {
                descriptors.pop().map_or(1, |socket| self.take_socket(id, socket))
            }
            (&FromConnector::Failed { id, why }, 0) => self.take(id, Err(why)),
            (&FromConnector::Moved { target }, 0) => self.moved(target),
            (FromConnector::Aimed { target }, _) => match self.stock.borrow().get(target) {
                Some(stock) => stock.put(descriptors.drain(..).map(Foreign::from)),
                None => 1,
            },
            _ => 1,
        }
    }

    /// Has `act` done whenever `target` is no longer at some of its addresses.
    pub fn on_moved(&self, target: u16, act: impl Fn() + 'static) {
        self.on_moved.borrow_mut().insert(target, Box::new(act));
    }

    fn moved(&self, target: u16) -> u32 {
        self.stock.borrow().get(&target).into_iter().for_each(|stock| stock.clear());
        match self.on_moved.borrow().get(&target) {
            Some(act) => {
                act();
                0
            }
            None => 1,
        }
    }

    /// A connector is gone.
    fn lose(&self, line: &Rc<ConnectorChannel>) {
        let mut present = self.line.borrow_mut();
        if present.as_ref().is_some_and(|present| Rc::ptr_eq(present, line)) {
            *present = None;
            // Those who wait see that nobody answers, and ask the next connector.
            self.wanted.borrow_mut().clear();
            self.stock.borrow_mut().clear();
        }
    }

    fn take(&self, id: u64, answer: ConnectResult<S>) -> u32 {
        if let Some(waiting) = self.wanted.borrow_mut().remove(&id) {
            let _ = waiting.send(answer);
        }
        // An answer to what is not wanted any more crossed with our word of that; one to what never was is nonsense.
        u32::from(id >= self.next_id.get())
    }

    fn take_socket(&self, id: u64, socket: OwnedFd) -> u32 {
        // A socket that no caller waits for becomes no stream, which the event loop would close.
        if !self.wanted.borrow().contains_key(&id) {
            leave(socket);
            return self.take(id, Err(Unreachable::Forbidden));
        }
        match connection(socket).and_then(S::try_from) {
            Ok(stream) => self.take(id, Ok(stream)),
            Err(error) => {
                eprintln!("error: the connector has handed over what is no connection: {error}");
                self.take(id, Err(Unreachable::Forbidden));
                1
            }
        }
    }

    /// A connection to `target`.
    ///
    /// # Errors
    /// Why there is none; a connector that is not there counts as a server that is not.
    pub async fn connect(&self, target: u16) -> Result<S, Unreachable> {
        self.connect_numbered(target).await.map(|(stream, _)| stream)
    }

    /// The server to which the connection with this number is has not answered in time.
    pub fn fell_silent(&self, number: u64) {
        if let Some(line) = &*self.line.borrow() {
            // One that has no room for it hears of the next.
            let _ = line.try_send(&ToConnector::Silent { id: number }, None);
        }
    }

    /// A connection to `target`, with its number.
    ///
    /// # Errors
    /// As of [`Self::connect`].
    pub async fn connect_numbered(&self, target: u16) -> Result<(S, u64), Unreachable> {
        for _ in 0..CONNECTORS_MAX {
            let asked = tokio::time::timeout(CONNECTOR_TIMEOUT, self.line()).await;
            let line = asked.map_err(|_| Unreachable::Refused)?;
            let id = self.next_id.replace(self.next_id.get() + 1);
            let (sender, answer) = oneshot::channel();
            self.wanted.borrow_mut().insert(id, sender);
            let wish = Wish { dialer: self, line, id };
            if wish.line.send(&ToConnector::Connect { id, target }, None).await.is_err() {
                // It is gone, which its own task has not seen yet.
                self.lose(&wish.line);
                continue;
            }
            match answer.await {
                Ok(Ok(stream)) => return Ok((stream, id)),
                Ok(Err(why)) => return Err(why),
                // The connector is gone.
                Err(_) => {}
            }
        }
        Err(Unreachable::Refused)
    }

    /// A socket that connects to `target` with the first bytes that are written to it, if there is one. Whether a
    /// server is there is known only then: who finds nobody asks for a connection, and says so
    /// ([`Self::found_nobody`]).
    pub fn aimed(&self, target: u16) -> Option<S> {
        let stock = self.stock.borrow_mut().entry(target).or_default().clone();
        let (socket, is_low) = stock.take();
        if is_low
            && let Some(line) = &*self.line.borrow()
            && line.try_send(&ToConnector::Aim { target }, None).is_ok()
        {
            stock.ask();
        }
        connection(socket?).and_then(S::try_from).ok()
    }

    /// Whether there is a socket that is aimed at `target`.
    pub fn has_aimed(&self, target: u16) -> bool {
        self.stock.borrow().get(&target).is_some_and(|stock| !stock.is_empty())
    }

    /// Nobody was there for a socket that was aimed at `target`.
    pub fn found_nobody(&self, target: u16) {
        self.stock.borrow().get(&target).into_iter().for_each(|stock| stock.give_up());
    }

    async fn line(&self) -> Rc<ConnectorChannel> {
        loop {
            let attached = self.attached.notified();
            if let Some(line) = &*self.line.borrow() {
                return line.clone();
            }
            attached.await;
        }
    }
}
