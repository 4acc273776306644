//! One channel to one process of a data proxy.
//!
//! INVARIANT: what waits to be sent keeps no answer from being read, or the two processes would wait for each other.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::data::{CALLS_MAX, CallFault, DataProxyToService, PART_MAX, ServiceToDataProxy, Token};
use wire::{Bytes, Text};
use worker::channel::Channel;

use super::DataError;
use super::link::{CallerOrder, DataCall, PROXY_WAIT, sleep_until};
use super::reply::{PartOutcome, ReplyReceiver, Wants};
use super::timeouts::Timeouts;

/// LIMIT: how long what a proxy has said is read before calls fail for which it was too late.
const READ_WAIT: Duration = Duration::from_millis(5);

type ProxyChannel = Channel<DataProxyToService, ServiceToDataProxy>;

/// Where others hear of the timeouts of the proxy that came last.
pub(super) type TimeoutsSender = watch::Sender<Timeouts>;

/// A call without an answer.
struct PendingCall {
    key: u64,
    name: String,
    made: Instant,
    /// Where the answer goes, unless it has come too late.
    reply: Option<ReplyReceiver>,
    /// Whether no more of the answer is wanted, and the proxy has been told so.
    is_cancelled: bool,
    /// Whether more is wanted later, and the proxy has been told so.
    is_paused: bool,
}

#[derive(Default)]
struct ProxyConnection {
    /// By their numbers.
    calls: HashMap<u32, PendingCall>,
    /// Calls that the proxy would refuse, as too many are under way.
    later: VecDeque<DataCall>,
    next: u32,
    outgoing: VecDeque<ServiceToDataProxy>,
    timeouts: Timeouts,
    /// Where others hear of them.
    said: TimeoutsSender,
    /// When it is looked next whether calls have taken too long.
    look: Option<Instant>,
    /// Whether the time has come, and only what the proxy has said meanwhile is yet to be read.
    is_due: bool,
    /// Whether the proxy has said that the token is right.
    is_welcome: bool,
    /// Whether no more calls come.
    is_last: bool,
    /// Whether nobody is left who could cancel one.
    is_alone: bool,
}

/// Makes calls until the proxy has gone, or no more come. Calls under way then are lost; calls that were not sent go
/// back, to wait for another proxy.
pub(super) async fn serve(
    descriptor: OwnedFd,
    token: Token,
    mut orders: UnboundedReceiver<CallerOrder>,
    (unsent, said): (WeakUnboundedSender<CallerOrder>, TimeoutsSender),
) {
    let Ok(channel) = ProxyChannel::new(descriptor) else { return };
    let mut connection = ProxyConnection { said, ..ProxyConnection::default() };
    connection.outgoing.extend([ServiceToDataProxy::Login { token }, ServiceToDataProxy::Timeouts {}]);
    connection.run(&channel, &mut orders).await;
    // Those that were sent may have been carried out, others were not.
    let reason = "its data proxy has gone";
    let lost = || DataError::Lost { reason: reason.into() };
    connection.calls.into_values().filter_map(|call| call.reply).for_each(|reply| reply.fail(lost()));
    orders.close();
    let left = std::iter::from_fn(|| orders.try_recv().ok());
    let left = connection.later.into_iter().map(CallerOrder::Call).chain(left);
    if let Some(unsent) = unsent.upgrade() {
        left.filter(|order| !matches!(order, CallerOrder::NoMore)).for_each(|order| drop(unsent.send(order)));
    }
}

impl ProxyConnection {
    async fn run(&mut self, channel: &ProxyChannel, orders: &mut UnboundedReceiver<CallerOrder>) {
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
                    Some(CallerOrder::Call(call)) => self.call(call),
                    Some(CallerOrder::NoMore) => self.is_last = true,
                    None => (self.is_last, self.is_alone) = (true, true),
                    Some(CallerOrder::Cancel(key)) => self.cancel(key),
                    Some(CallerOrder::Resume(key)) => self.resume(key),
                },
                Ok(()) = channel.room(), if !has_room => {}
                () = sleep_until(self.look) => self.on_time(Instant::now()),
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

    fn call(&mut self, call: DataCall) {
        if call.reply.is_closed() {
            return call.reply.cancelled();
        }
        self.look_at(self.until(&call.name, call.made));
        if self.calls.len() >= CALLS_MAX || !self.is_welcome {
            return self.later.push_back(call);
        }
        let DataCall { key, name, values, made, reply, until: _ } = call;
        while self.calls.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut parts = values.chunks(PART_MAX).map(|part| Bytes(part.to_vec()));
        let (first, mut left) = (parts.next().unwrap_or_default(), values.len().saturating_sub(PART_MAX));
        let first =
            ServiceToDataProxy::Call { id, name: Text::new(&name), complete: left == 0, values: first };
        self.outgoing.push_back(first);
        for values in parts {
            left = left.saturating_sub(PART_MAX);
            self.outgoing.push_back(ServiceToDataProxy::More { id, complete: left == 0, values });
        }
        let reply = Some(reply);
        self.calls.insert(id, PendingCall { key, name, made, reply, is_cancelled: false, is_paused: false });
    }

    /// Until when a call is waited for. A proxy that has not taken the login has been sent none; one of a version
    /// before does not say.
    fn until(&self, name: &str, made: Instant) -> Option<Instant> {
        let unheard = (!self.is_welcome).then(|| made + PROXY_WAIT);
        self.timeouts.until(name, made).or(unheard)
    }

    /// Has it be looked at that time, if it was to be later.
    fn look_at(&mut self, at: Option<Instant>) {
        self.look = self.look.into_iter().chain(at).min();
    }

    /// Fails the calls that have taken too long, but reads first what there is: this process may have had no processor.
    fn on_time(&mut self, now: Instant) {
        self.is_due = !self.is_due;
        match self.is_due {
            true => self.look = Some(now + READ_WAIT),
            false => self.give_up(now),
        }
    }

    /// Fails the calls that have taken too long. The proxy may still answer them.
    fn give_up(&mut self, now: Instant) {
        let is_late = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let late: Vec<u32> = (self.calls.iter())
            .filter(|(_, call)| call.reply.is_some() && is_late(self.until(&call.name, call.made)))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some(reply) = self.calls.get_mut(&id).and_then(|call| call.reply.take()) {
                reply.fail(DataError::Lost { reason: "its data proxy does not answer".into() });
            }
            self.outgoing.push_back(ServiceToDataProxy::Cancel { id });
        }
        for call in std::mem::take(&mut self.later) {
            match is_late(self.until(&call.name, call.made)) {
                true => call.reply.fail(DataError::Unavailable),
                false => self.later.push_back(call),
            }
        }
        self.look_again();
    }

    /// Finds out when it is to be looked next.
    fn look_again(&mut self) {
        let waiting = self.calls.values().filter(|call| call.reply.is_some());
        let waiting = waiting.map(|call| (&call.name, call.made));
        let later = self.later.iter().map(|call| (&call.name, call.made));
        self.look = waiting.chain(later).filter_map(|(name, made)| self.until(name, made)).min();
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
            DataProxyToService::Timeouts { .. } | DataProxyToService::Timeout { .. } => {
                self.timeouts.take(&message);
                self.said.send_modify(|timeouts| timeouts.take(&message));
                self.look_again();
            }
            DataProxyToService::Part { id, results } => {
                let Some(call) = self.calls.get_mut(&id) else { return false };
                // It came too late.
                let Some(reply) = &mut call.reply else { return true };
                match reply.part(results.0) {
                    PartOutcome::TooMuch => return false,
                    PartOutcome::Wants(Wants::More) => {}
                    PartOutcome::Wants(Wants::MoreLater) => {
                        if !std::mem::replace(&mut call.is_paused, true) {
                            self.outgoing.push_back(ServiceToDataProxy::Pause { id });
                        }
                    }
                    PartOutcome::Wants(Wants::Nothing) => {
                        if !std::mem::replace(&mut call.is_cancelled, true) {
                            self.outgoing.push_back(ServiceToDataProxy::Cancel { id });
                        }
                    }
                }
            }
            DataProxyToService::Done { id, results } => {
                let Some(call) = self.calls.remove(&id) else { return false };
                if let Some(reply) = call.reply {
                    reply.done(results.0);
                }
            }
            DataProxyToService::Failed { id, fault, reason } => {
                let reason = reason.as_str().to_owned();
                let error = match fault {
                    CallFault::Lost => DataError::Lost { reason },
                    fault => DataError::Failed { fault, reason },
                };
                let Some(call) = self.calls.remove(&id) else { return false };
                if let Some(reply) = call.reply {
                    reply.fail(error);
                }
            }
        }
        while self.is_welcome && self.calls.len() < CALLS_MAX {
            let Some(call) = self.later.pop_front() else { break };
            self.call(call);
        }
        true
    }
}
