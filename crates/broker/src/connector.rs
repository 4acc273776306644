//! The broker's side of the channel to its connector: who waits for which answer.
//!
//! Runs in: the broker. Sees: answers of the connector, which may be compromised. Never: waits longer for a connector
//! than the launcher has said.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use sys::foreign::Foreign;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use wire::{BrokerToConnector, ConnectorToBroker};
use worker::channel::Channel;

type ConnectorChannel = Channel<ConnectorToBroker, BrokerToConnector>;

/// The connector's answer.
#[derive(Debug)]
pub enum ConnectorAnswer {
    /// The new socket.
    Made(Foreign),
    /// The result of a connection.
    Ended(Result<(), Errno>),
}

/// Somebody who waits.
#[derive(Debug)]
struct WaitingCaller {
    channel: Rc<ConnectorChannel>,
    sender: oneshot::Sender<ConnectorAnswer>,
}

/// The connector, whichever process that is at the time.
#[derive(Debug)]
pub struct ConnectorClient {
    timeout: Duration,
    channel: watch::Sender<Option<Rc<ConnectorChannel>>>,
    /// Since when there has been none, if there is none.
    absent_since: Cell<Instant>,
    /// By call.
    wanted: RefCell<HashMap<u64, WaitingCaller>>,
}

impl ConnectorClient {
    /// One that is yet to come, and is waited for so long.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            channel: watch::Sender::new(None),
            absent_since: Cell::new(Instant::now()),
            wanted: RefCell::default(),
        }
    }

    /// Hears a connector until it is gone; `stray` gets the results of calls for which nobody here has asked.
    ///
    /// # Errors
    /// The system refuses to watch the channel.
    pub async fn attend(
        &self,
        channel: OwnedFd,
        stray: impl Fn(u64, Result<(), Errno>),
    ) -> std::io::Result<()> {
        let channel = Rc::new(ConnectorChannel::new(channel)?);
        self.channel.send_replace(Some(channel.clone()));
        let take = |arrived| {
            let (id, answer) = match arrived {
                Ok((ConnectorToBroker::Made { id }, Some(socket))) => (id, ConnectorAnswer::Made(socket)),
                Ok((ConnectorToBroker::Ended { id, errno }, None)) => {
                    (id, ConnectorAnswer::Ended(result(errno)))
                }
                Ok(_) | Err(_) => return 1,
            };
            match (self.wanted.borrow_mut().remove(&id), answer) {
                (Some(wanted), answer) => drop(wanted.sender.send(answer)),
                (None, ConnectorAnswer::Ended(result)) => stray(id, result),
                (None, ConnectorAnswer::Made(_)) => {}
            }
            0
        };
        channel.receive_all("the connector", take).await;
        let is_this = |known: &Rc<ConnectorChannel>| Rc::ptr_eq(known, &channel);
        self.channel.send_if_modified(|newest| {
            let gone = newest.take_if(|newest| is_this(newest)).is_some();
            if gone {
                self.absent_since.set(Instant::now());
            }
            gone
        });
        // They ask the next one.
        self.wanted.borrow_mut().retain(|_, wanted| !is_this(&wanted.channel));
        Ok(())
    }

    /// Waits until there is a connector, or it is clear that there is none.
    pub async fn settled(&self) {
        let _ = self.present().await;
    }

    async fn present(&self) -> Result<Rc<ConnectorChannel>, Errno> {
        let mut newest = self.channel.subscribe();
        loop {
            if let Some(channel) = newest.borrow_and_update().clone() {
                return Ok(channel);
            }
            let deadline = self.absent_since.get() + self.timeout;
            match timeout_at(deadline, newest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(Errno::NETUNREACH),
            }
        }
    }

    /// Asks for something, of the next connector if this one ends meanwhile; the answer, and whether it is of another
    /// than the first that was asked.
    pub async fn ask(
        &self,
        id: u64,
        message: &BrokerToConnector,
        socket: Option<&Foreign>,
    ) -> (ConnectorAnswer, AttemptNumber) {
        for asked in std::iter::once(AttemptNumber::Once).chain(std::iter::repeat(AttemptNumber::Again)) {
            let channel = match self.present().await {
                Ok(channel) => channel,
                Err(errno) => return (ConnectorAnswer::Ended(Err(errno)), asked),
            };
            let (sender, receiver) = oneshot::channel();
            self.wanted.borrow_mut().insert(id, WaitingCaller { channel: channel.clone(), sender });
            if channel.send(message, socket.map(AsFd::as_fd)).await.is_ok()
                && let Ok(answer) = receiver.await
            {
                return (answer, asked);
            }
            self.gone(&channel).await;
        }
        unreachable!("the iterator has no end")
    }

    /// Waits until `channel` is no longer the newest, as it has ended.
    async fn gone(&self, channel: &Rc<ConnectorChannel>) {
        let mut newest = self.channel.subscribe();
        let other = |newest: &Option<Rc<ConnectorChannel>>| {
            newest.as_ref().is_none_or(|newest| !Rc::ptr_eq(newest, channel))
        };
        let _ = newest.wait_for(other).await;
    }

    /// The answer is not wanted any more.
    pub fn forget(&self, id: u64) {
        if let Some(wanted) = self.wanted.borrow_mut().remove(&id) {
            // One whose channel is full makes an end of it by itself.
            let _ = wanted.channel.try_send(&BrokerToConnector::Cancel { id }, None);
        }
    }
}

/// Which connector an answer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptNumber {
    /// The first that was asked.
    Once,
    /// A later one, as the first has ended.
    Again,
}

fn result(errno: u16) -> Result<(), Errno> {
    match errno {
        0 => Ok(()),
        // Beyond these, no number is one.
        errno if errno < 4096 => Err(Errno::from_raw_os_error(errno.into())),
        _ => Err(Errno::IO),
    }
}
