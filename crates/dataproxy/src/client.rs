//! One process of a service: its login, its calls, its answers.
//!
//! Sees: messages of a service, which may be compromised. Never: answers anybody who has not shown the token of the
//! channel.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use subtle::ConstantTimeEq as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use wire::data::{
    CALLS_MAX, CallFault, DataProxyToService, PARAMETERS_BYTES_MAX, PARAMETERS_UNANSWERED_MAX,
    ServiceToDataProxy, TIMEOUTS_MAX, Token, ValueReader,
};
use wire::{Bytes, Text};
use worker::channel::{Channel, ChannelError};

use crate::catalog::{Catalog, CatalogEntry};
use crate::job::{AnswerPart, Budget, Job, Replies};
use crate::queue::Queue;
use crate::told::ProcessLog;

pub(crate) type ServiceChannel = Channel<ServiceToDataProxy, DataProxyToService>;

/// LIMIT: nonsense that a service may send before its channel is closed.
pub(crate) const VIOLATIONS_MAX: u32 = 10;

/// Why a call is not made whose parameters have so many bytes, and those of all that have no answer so many, if they
/// are too many.
pub(crate) fn too_many_parameters(own: usize, all: usize) -> Option<(CallFault, String)> {
    if own > PARAMETERS_BYTES_MAX {
        let reason = format!("its parameters have more than {PARAMETERS_BYTES_MAX} bytes");
        Some((CallFault::Parameters, reason))
    } else if all > PARAMETERS_UNANSWERED_MAX {
        let reason = format!("the parameters of all calls have more than {PARAMETERS_UNANSWERED_MAX} bytes");
        Some((CallFault::Busy, reason))
    } else {
        None
    }
}

/// The state that all channels share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    pub(crate) queue: Arc<Queue>,
    /// The statements that hold now.
    pub(crate) catalog: RefCell<Arc<Catalog>>,
    pub(crate) told: Rc<ProcessLog>,
}

/// The service at the other end.
#[derive(Debug)]
pub(crate) struct ServiceId {
    /// Its name.
    pub(crate) name: String,
    /// Its number in the queue: all of its processes have one.
    pub(crate) number: usize,
}

/// A call that has come, and has no answer yet.
struct PendingCall {
    cancelled: CancellationToken,
    /// Whether the service wants no more rows for now.
    paused: Arc<AtomicBool>,
    /// Bytes of its parameters.
    length: usize,
    /// The call, and the parameters that have come, unless they are complete.
    unfinished: Option<(CatalogEntry, Arc<Catalog>, Vec<u8>)>,
}

/// One channel.
struct ClientChannel {
    shared: Rc<ProxyState>,
    service: ServiceId,
    calls: HashMap<u32, PendingCall>,
    replies: UnboundedSender<AnswerPart>,
    budget: Arc<Budget>,
    /// Whether the service wants to know how long calls may take, and the statements of which it does.
    asks_for_timeouts: bool,
    timeouts_of: Option<Arc<Catalog>>,
    violations: u32,
}

/// Serves one process of a service until it is gone.
pub(crate) async fn attend(shared: Rc<ProxyState>, service: ServiceId, token: Token, channel: OwnedFd) {
    let Ok(channel) = ServiceChannel::new(channel) else { return };
    shared.told.counters.connected();
    if log_in(&channel, &shared.told, &service, &token).await {
        let (replies, answers) = unbounded_channel();
        let (calls, budget) = (HashMap::new(), Arc::default());
        let mut client = ClientChannel {
            shared: shared.clone(),
            service,
            calls,
            replies,
            budget,
            asks_for_timeouts: false,
            timeouts_of: None,
            violations: 0,
        };
        client.serve(&channel, answers).await;
        // Nobody waits for what is left: it is not begun, and what was begun is undone.
        client.calls.values().for_each(|call| call.cancelled.cancel());
        shared.queue.look_again();
    }
    shared.told.counters.disconnected();
}

/// Waits for the token; whether it was the right one.
pub(crate) async fn log_in(
    channel: &ServiceChannel,
    told: &ProcessLog,
    service: &ServiceId,
    token: &Token,
) -> bool {
    match channel.receive().await {
        Ok(Some((ServiceToDataProxy::Login { token: shown }, _))) if bool::from(shown.0.ct_eq(&token.0)) => {
            channel.send(&DataProxyToService::Welcome {}, None).await.is_ok()
        }
        Ok(None) => false,
        _ => {
            told.refused(&format!("service {} has not shown the token of its channel", service.name));
            false
        }
    }
}

impl ClientChannel {
    async fn serve(&mut self, channel: &ServiceChannel, mut answers: UnboundedReceiver<AnswerPart>) {
        loop {
            // By turns: a service that stops or pauses a call is heard while its rows come.
            tokio::select! {
                Some(reply) = answers.recv() => {
                    if self.answer(channel, reply).await.is_err() {
                        return;
                    }
                }
                message = channel.receive() => match message {
                    Ok(Some((message, None))) => self.take(message),
                    Ok(Some((_, Some(_)))) | Err(ChannelError::Malformed(_)) => self.violation("what is no message"),
                    Ok(None) | Err(ChannelError::Io(_)) => return,
                },
            }
            if self.tell_timeouts(channel).await.is_err() {
                return;
            }
            if self.violations >= VIOLATIONS_MAX {
                let name = &self.service.name;
                self.shared.told.refused(&format!("service {name} sends nonsense; its channel is closed"));
                return;
            }
        }
    }

    /// Sends an answer; one that does not read keeps nobody waiting but itself.
    async fn answer(&mut self, channel: &ServiceChannel, reply: AnswerPart) -> std::io::Result<()> {
        let length = reply.length();
        let (id, is_end, message) = match reply {
            AnswerPart::Part(id, results) => {
                (id, false, DataProxyToService::Part { id, results: Bytes(results) })
            }
            AnswerPart::Done(id, results) => {
                (id, true, DataProxyToService::Done { id, results: Bytes(results) })
            }
            AnswerPart::Failed(id, fault, reason) => {
                (id, true, DataProxyToService::Failed { id, fault, reason: Text::new(reason) })
            }
        };
        if self.budget.give_back(length) {
            self.shared.queue.look_again();
        }
        let is_wanted = self.calls.get(&id).is_some_and(|call| !call.cancelled.is_cancelled());
        if is_end {
            self.calls.remove(&id);
            self.shared.told.counters.answered();
        }
        // Also one that was cancelled gets its end, so that the service can use the number again.
        if is_wanted || is_end { channel.send(&message, None).await } else { Ok(()) }
    }

    /// Tells the service how long its calls may take, if it has asked and does not know.
    async fn tell_timeouts(&mut self, channel: &ServiceChannel) -> std::io::Result<()> {
        let catalog = self.shared.catalog.borrow().clone();
        let knows = self.timeouts_of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &catalog));
        if !self.asks_for_timeouts || knows {
            return Ok(());
        }
        let usual_ms = statements::TIMEOUT.as_millis() as u32;
        channel.send(&DataProxyToService::Timeouts { usual_ms }, None).await?;
        for (name, timeout) in catalog.timeouts(&self.service.name).take(TIMEOUTS_MAX) {
            let timeout_ms = timeout.as_millis().try_into().unwrap_or(u32::MAX);
            channel.send(&DataProxyToService::Timeout { name: Text::new(name), timeout_ms }, None).await?;
        }
        self.timeouts_of = Some(catalog);
        Ok(())
    }

    fn take(&mut self, message: ServiceToDataProxy) {
        match message {
            ServiceToDataProxy::Call { id, name, complete, values } => {
                self.call(id, name.as_str(), complete, values.0)
            }
            ServiceToDataProxy::More { id, complete, values } => self.more(id, complete, values.0),
            ServiceToDataProxy::Cancel { id } => {
                // Its answer may have been on its way.
                let call = self.calls.get_mut(&id);
                call.into_iter().for_each(|call| call.cancelled.cancel());
                // It may wait for the service to read, to be told that it is over.
                if self.budget.is_spent() {
                    self.shared.queue.look_again();
                }
            }
            ServiceToDataProxy::Pause { id } => self.pause(id, true),
            ServiceToDataProxy::Resume { id } => self.pause(id, false),
            ServiceToDataProxy::Timeouts {} => self.asks_for_timeouts = true,
            ServiceToDataProxy::Login { .. } => self.violation("a second login"),
        }
    }

    fn pause(&mut self, id: u32, is_paused: bool) {
        // Its end may have been on its way.
        if let Some(call) = self.calls.get(&id) {
            call.paused.store(is_paused, Ordering::Relaxed);
        }
    }

    fn call(&mut self, id: u32, name: &str, complete: bool, values: Vec<u8>) {
        if self.calls.contains_key(&id) {
            return self.violation("a number twice");
        }
        let under_way = self.calls.len();
        let (cancelled, paused) = (CancellationToken::new(), Arc::default());
        self.calls.insert(id, PendingCall { cancelled, paused, length: 0, unfinished: None });
        if under_way >= CALLS_MAX {
            return self.fail(id, CallFault::Busy, format!("{CALLS_MAX} calls are under way"));
        }
        let catalog = self.shared.catalog.borrow().clone();
        match catalog.granted(&self.service.name, name) {
            Some(call) => self.go_on(id, (call, catalog, values), complete),
            None => {
                let why =
                    if catalog.knows(name) { "which was not granted to it" } else { "which there is not" };
                self.shared.told.refused(&format!("service {} called {name:?}, {why}", self.service.name));
                self.fail(id, CallFault::Refused, "there is no such statement for this service".into());
            }
        }
    }

    fn more(&mut self, id: u32, complete: bool, values: Vec<u8>) {
        match self.calls.get_mut(&id).map(|call| call.unfinished.take()) {
            Some(Some((call, catalog, mut before))) => {
                before.extend(values);
                self.go_on(id, (call, catalog, before), complete);
            }
            // It was refused meanwhile.
            Some(None) => {}
            None => self.violation("more of no call"),
        }
    }

    /// Does a call whose parameters are complete, and keeps one whose are not.
    fn go_on(
        &mut self,
        id: u32,
        (call, catalog, values): (CatalogEntry, Arc<Catalog>, Vec<u8>),
        complete: bool,
    ) {
        let others: usize =
            self.calls.iter().filter(|(other, _)| **other != id).map(|(_, call)| call.length).sum();
        if let Some((fault, reason)) = too_many_parameters(values.len(), others + values.len()) {
            return self.fail(id, fault, reason);
        }
        let Some(under_way) = self.calls.get_mut(&id) else { return };
        under_way.length = values.len();
        if !complete {
            under_way.unfinished = Some((call, catalog, values));
            return;
        }
        let (cancelled, paused) = (under_way.cancelled.clone(), under_way.paused.clone());
        let values = match ValueReader::new(&values).values() {
            Ok(values) => values,
            Err(error) => return self.fail(id, CallFault::Parameters, error.to_string()),
        };
        if let Err((fault, reason)) = catalog.check(call, &values) {
            return self.fail(id, fault, reason);
        }
        let lane = catalog.lane(call);
        let deadline = Instant::now() + catalog.timeout(call);
        let replies = Replies::new(self.replies.clone(), self.budget.clone(), paused);
        let job = Job { id, call, catalog, values, deadline, cancelled, replies };
        self.shared.queue.add(lane, self.service.number, job);
    }

    fn fail(&mut self, id: u32, fault: CallFault, reason: String) {
        let _ = self.replies.send(AnswerPart::Failed(id, fault, reason));
    }

    fn violation(&mut self, what: &str) {
        self.violations += 1;
        self.shared.told.refused(&format!("service {} has sent {what}", self.service.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statements::Statements;
    use tokio::runtime::LocalOptions;
    use wire::data::TOKEN_BYTES;
    use worker::log::Log;

    const FILE: &str = "-- name: get :one\n-- services: a\nSELECT 1\n";

    /// The end of the service, in a process whose service `name` has this token.
    fn attended(
        name: &str,
        token: Token,
    ) -> (Channel<DataProxyToService, ServiceToDataProxy>, Rc<ProxyState>) {
        let file = statements::parse(FILE, Default::default()).unwrap_or_else(|_| Statements::default());
        let shared = Rc::new(ProxyState {
            queue: Queue::new(1),
            catalog: RefCell::new(Arc::new(Catalog::new(file, vec![true], true))),
            told: Rc::new(ProcessLog::new(Log::new(None, wire::NO_PARTITION, 1000).expect("a log"))),
        });
        let (own, other) = sys::seqpacket::pair().expect("a pair");
        let service = ServiceId { name: name.to_owned(), number: 0 };
        tokio::task::spawn_local(attend(shared.clone(), service, token, own));
        (Channel::new(other).expect("a channel"), shared)
    }

    fn in_runtime(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).expect("a runtime");
        runtime.block_on(test);
    }

    fn token(byte: u8) -> Token {
        Token([byte; TOKEN_BYTES])
    }

    fn call(id: u32, name: &str) -> ServiceToDataProxy {
        ServiceToDataProxy::Call { id, name: Text::new(name), complete: true, values: Bytes::default() }
    }

    #[test]
    fn nobody_is_heard_without_the_token_of_the_channel() {
        in_runtime(async {
            let one_bit_off = {
                let mut bytes = [7; TOKEN_BYTES];
                bytes[TOKEN_BYTES - 1] ^= 1;
                Token(bytes)
            };
            // Another's, that of an earlier channel, none, and a call in its place.
            for shown in [token(8), token(0), one_bit_off] {
                let (channel, shared) = attended("a", token(7));
                channel.send(&ServiceToDataProxy::Login { token: shown }, None).await.expect("room");
                channel.send(&call(1, "get"), None).await.expect("room");
                assert!(matches!(channel.receive().await, Ok(None) | Err(_)));
                assert_eq!(shared.told.refusals(), 1);
            }
            let (channel, _) = attended("a", token(7));
            channel.send(&call(1, "get"), None).await.expect("room");
            assert!(matches!(channel.receive().await, Ok(None) | Err(_)));
        });
    }

    #[test]
    fn a_token_gives_the_rights_of_its_service_alone() {
        in_runtime(async {
            let (channel, shared) = attended("b", token(7));
            channel.send(&ServiceToDataProxy::Login { token: token(7) }, None).await.expect("room");
            assert!(matches!(channel.receive().await, Ok(Some((DataProxyToService::Welcome {}, None)))));
            for (id, name) in [(1, "get"), (2, "nothing")] {
                channel.send(&call(id, name), None).await.expect("room");
                let refused = channel.receive().await.expect("an answer");
                let Some((DataProxyToService::Failed { id: of, fault: CallFault::Refused, .. }, _)) = refused
                else {
                    panic!("{refused:?}");
                };
                assert_eq!(of, id);
            }
            assert_eq!(shared.told.refusals(), 2);
            // A second login is nonsense, and so is enough of anything else.
            for _ in 0..VIOLATIONS_MAX {
                let _ = channel.send(&ServiceToDataProxy::Login { token: token(7) }, None).await;
            }
            assert!(matches!(channel.receive().await, Ok(None) | Err(_)));
        });
    }
}
