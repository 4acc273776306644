//! The way to one data proxy, whichever process that is.
//!
//! Calls go to the proxy that came last; what an earlier one has under way it goes on with. A call for which there is
//! no proxy waits for a while: it has been sent to nobody, so nothing happens twice.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::time::Instant;
use wire::data::Token;

use super::DataError;
use super::connection::{self, TimeoutsSender};
use super::reply::ReplyReceiver;

/// LIMIT: how long a call waits for a data proxy: a new one is there within a second.
pub(super) const PROXY_WAIT: Duration = Duration::from_secs(5);

/// A call, on its way to the proxy.
#[derive(Debug)]
pub(super) struct DataCall {
    /// By which it is cancelled.
    pub(super) key: u64,
    /// The statement or transaction.
    pub(super) name: String,
    /// Its parameters.
    pub(super) values: Vec<u8>,
    /// When it was made.
    pub(super) made: Instant,
    /// Until when it waits for a proxy, if it has had to.
    pub(super) until: Option<Instant>,
    /// Where the answer goes.
    pub(super) reply: ReplyReceiver,
}

/// An order of a caller.
#[derive(Debug)]
pub(super) enum CallerOrder {
    Call(DataCall),
    /// Nobody waits for the answer of this call any more.
    Cancel(u64),
    /// More is wanted of what was paused.
    Resume(u64),
    /// Another proxy gets the calls from now on. Only connections hear this.
    NoMore,
}

/// See the file's head.
pub(super) struct DataClient {
    orders: UnboundedReceiver<CallerOrder>,
    channels: UnboundedReceiver<(OwnedFd, Token)>,
    /// The proxy that came last, and those before it that may have calls under way.
    current: Option<UnboundedSender<CallerOrder>>,
    earlier: Vec<UnboundedSender<CallerOrder>>,
    /// Calls without a proxy, and until when they wait.
    waiting: VecDeque<(Instant, DataCall)>,
    /// Where calls come back that a proxy was not sent. It is weak: the link ends with the last caller.
    unsent: WeakUnboundedSender<CallerOrder>,
    /// Where timeouts are said.
    said: TimeoutsSender,
}

impl DataClient {
    pub(super) fn new(
        (callers, orders): (&UnboundedSender<CallerOrder>, UnboundedReceiver<CallerOrder>),
        channels: UnboundedReceiver<(OwnedFd, Token)>,
        said: TimeoutsSender,
    ) -> Self {
        let unsent = callers.downgrade();
        Self { orders, channels, current: None, earlier: Vec::new(), waiting: VecDeque::new(), unsent, said }
    }

    /// Passes calls on until there are no callers any more.
    pub(super) async fn run(mut self) {
        loop {
            let until = self.waiting.front().map(|(until, _)| *until);
            tokio::select! {
                biased;
                Some((descriptor, token)) = self.channels.recv() => self.attach(descriptor, token),
                order = self.orders.recv() => match order {
                    Some(CallerOrder::Call(call)) => self.call(call),
                    Some(CallerOrder::Cancel(key)) => self.cancel(key),
                    Some(CallerOrder::Resume(key)) => self.tell(|| CallerOrder::Resume(key)),
                    Some(CallerOrder::NoMore) => {}
                    None => return,
                },
                () = sleep_until(until) => self.give_up(),
            }
        }
    }

    fn attach(&mut self, descriptor: OwnedFd, token: Token) {
        let (orders, received) = unbounded_channel();
        tokio::task::spawn_local(connection::serve(
            descriptor,
            token,
            received,
            (self.unsent.clone(), self.said.clone()),
        ));
        self.earlier.retain(|earlier| !earlier.is_closed());
        if let Some(before) = self.current.replace(orders) {
            // It ends when it has no calls left; until then one of them may be cancelled.
            let _ = before.send(CallerOrder::NoMore);
            self.earlier.push(before);
        }
        std::mem::take(&mut self.waiting).into_iter().for_each(|(_, call)| self.call(call));
    }

    fn call(&mut self, call: DataCall) {
        let order = CallerOrder::Call(call);
        let order = match &self.current {
            Some(current) => current.send(order).err().map(|back| back.0),
            None => Some(order),
        };
        if let Some(CallerOrder::Call(mut call)) = order {
            self.current = None;
            let until = *call.until.get_or_insert_with(|| Instant::now() + PROXY_WAIT);
            let at = self.waiting.partition_point(|(other, _)| *other <= until);
            self.waiting.insert(at, (until, call));
        }
    }

    fn cancel(&mut self, key: u64) {
        if let Some(at) = self.waiting.iter().position(|(_, call)| call.key == key)
            && let Some((_, call)) = self.waiting.remove(at)
        {
            call.reply.cancelled();
        }
        self.tell(|| CallerOrder::Cancel(key));
    }

    /// Tells all proxies, as one of them has the call.
    fn tell(&self, order: impl Fn() -> CallerOrder) {
        for proxy in self.current.iter().chain(&self.earlier) {
            let _ = proxy.send(order());
        }
    }

    /// Fails the calls that have waited too long.
    fn give_up(&mut self) {
        let now = Instant::now();
        while let Some((_, call)) = self.waiting.pop_front_if(|(until, _)| *until <= now) {
            call.reply.fail(DataError::Unavailable);
        }
    }
}

/// Waits until then, or for ever.
pub(super) async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
