//! One channel to one process of a data proxy.
//!
//! INVARIANT: what waits to be sent keeps no answer from being read, or the two processes would wait for each other.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use wire::data::{CALLS_MAX, CallFault, DataProxyToService, PART_MAX, ServiceToDataProxy, Token};
use wire::{Bytes, Text};
use worker::channel::Channel;

use super::DataError;
use super::link::{Call, Order};
use super::reply::{Reply, Taken, Wants};

type ProxyChannel = Channel<DataProxyToService, ServiceToDataProxy>;

/// A call without an answer.
struct UnderWay {
    key: u64,
    reply: Reply,
    /// Whether no more of the answer is wanted, and the proxy has been told so.
    is_cancelled: bool,
    /// Whether more is wanted later, and the proxy has been told so.
    is_paused: bool,
}

#[derive(Default)]
struct Connection {
    /// By their numbers.
    calls: HashMap<u32, UnderWay>,
    /// Calls that the proxy would refuse, as too many are under way.
    later: VecDeque<Call>,
    next: u32,
    outgoing: VecDeque<ServiceToDataProxy>,
    /// Whether the proxy has said that the token is right.
    is_welcome: bool,
    /// Whether no more calls come.
    is_last: bool,
    /// Whether nobody is left who could cancel one.
    is_alone: bool,
}

/// Makes calls until the proxy has gone, or no more come. What is under way then is lost; what was not sent goes back, to wait for
/// another proxy.
pub(super) async fn serve(
    descriptor: OwnedFd,
    token: Token,
    mut orders: UnboundedReceiver<Order>,
    unsent: WeakUnboundedSender<Order>,
) {
    let Ok(channel) = ProxyChannel::new(descriptor) else { return };
    let mut connection = Connection::default();
    connection.outgoing.push_back(ServiceToDataProxy::Login { token });
    connection.run(&channel, &mut orders).await;
    // Those that were sent may have been carried out, others were not.
    let reason = "its data proxy has gone";
    let lost = || DataError::Lost { reason: reason.into() };
    connection.calls.into_values().for_each(|call| call.reply.fail(lost()));
    orders.close();
    let left = std::iter::from_fn(|| orders.try_recv().ok());
    let left = connection.later.into_iter().map(Order::Call).chain(left);
    if let Some(unsent) = unsent.upgrade() {
        left.filter(|order| !matches!(order, Order::NoMore)).for_each(|order| drop(unsent.send(order)));
    }
}

impl Connection {
    async fn run(&mut self, channel: &ProxyChannel, orders: &mut UnboundedReceiver<Order>) {
        loop {
            let has_room = self.send(channel);
            if self.is_last && self.calls.is_empty() && self.later.is_empty() {
                return;
            }
            tokio::select! {
                message = channel.receive() => match message {
                    Ok(Some((message, None))) => {
                        if !self.take(message) {
                            return;
                        }
                    }
                    _ => return,
                },
                order = orders.recv(), if !self.is_alone => match order {
                    Some(Order::Call(call)) => self.call(call),
                    Some(Order::NoMore) => self.is_last = true,
                    None => (self.is_last, self.is_alone) = (true, true),
                    Some(Order::Cancel(key)) => self.cancel(key),
                    Some(Order::Resume(key)) => self.resume(key),
                },
                Ok(()) = channel.room(), if !has_room => {}
            }
        }
    }

    /// Sends what waits, as far as there is room; whether all of it is sent.
    fn send(&mut self, channel: &ProxyChannel) -> bool {
        while let Some(message) = self.outgoing.front() {
            match channel.try_send(message, None) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // That it has gone is heard.
                _ => drop(self.outgoing.pop_front()),
            }
        }
        true
    }

    fn call(&mut self, call: Call) {
        if call.reply.is_closed() {
            return call.reply.cancelled();
        }
        if self.calls.len() >= CALLS_MAX || !self.is_welcome {
            return self.later.push_back(call);
        }
        let Call { key, name, values, reply, until: _ } = call;
        while self.calls.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut parts = values.chunks(PART_MAX).map(|part| Bytes(part.to_vec()));
        let (first, mut left) = (parts.next().unwrap_or_default(), values.len().saturating_sub(PART_MAX));
        let first =
            ServiceToDataProxy::Call { id, name: Text::new(name), complete: left == 0, values: first };
        self.outgoing.push_back(first);
        for values in parts {
            left = left.saturating_sub(PART_MAX);
            self.outgoing.push_back(ServiceToDataProxy::More { id, complete: left == 0, values });
        }
        self.calls.insert(id, UnderWay { key, reply, is_cancelled: false, is_paused: false });
    }

    fn cancel(&mut self, key: u64) {
        if let Some(at) = self.later.iter().position(|call| call.key == key)
            && let Some(call) = self.later.remove(at)
        {
            call.reply.cancelled();
        }
        let id = self.calls.iter().find_map(|(id, call)| (call.key == key).then_some(*id));
        self.outgoing.extend(id.map(|id| ServiceToDataProxy::Cancel { id }));
    }

    fn resume(&mut self, key: u64) {
        let paused = self.calls.iter_mut().find(|(_, call)| call.key == key && call.is_paused);
        if let Some((id, call)) = paused {
            call.is_paused = false;
            self.outgoing.push_back(ServiceToDataProxy::Resume { id: *id });
        }
    }

    /// Takes what the proxy says; whether it is anything that a proxy says.
    fn take(&mut self, message: DataProxyToService) -> bool {
        match message {
            DataProxyToService::Welcome {} => self.is_welcome = true,
            DataProxyToService::Part { id, results } => {
                let Some(call) = self.calls.get_mut(&id) else { return false };
                match call.reply.part(results.0) {
                    Taken::TooMuch => return false,
                    Taken::Wants(Wants::More) => {}
                    Taken::Wants(Wants::MoreLater) => {
                        if !std::mem::replace(&mut call.is_paused, true) {
                            self.outgoing.push_back(ServiceToDataProxy::Pause { id });
                        }
                    }
                    Taken::Wants(Wants::Nothing) => {
                        if !std::mem::replace(&mut call.is_cancelled, true) {
                            self.outgoing.push_back(ServiceToDataProxy::Cancel { id });
                        }
                    }
                }
            }
            DataProxyToService::Done { id, results } => {
                let Some(call) = self.calls.remove(&id) else { return false };
                call.reply.done(results.0);
            }
            DataProxyToService::Failed { id, fault, reason } => {
                let reason = reason.as_str().to_owned();
                let error = match fault {
                    CallFault::Lost => DataError::Lost { reason },
                    fault => DataError::Failed { fault, reason },
                };
                let Some(call) = self.calls.remove(&id) else { return false };
                call.reply.fail(error);
            }
        }
        while self.is_welcome && self.calls.len() < CALLS_MAX {
            let Some(call) = self.later.pop_front() else { break };
            self.call(call);
        }
        true
    }
}
