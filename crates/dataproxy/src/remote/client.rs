//! One process of a service whose database is on another machine: its login, its calls, and their answers from there.
//!
//! Sees: messages of a service, which may be compromised; answers of the other machine. Never: passes on what is no
//! message, or a token; makes a call again that may have been carried out.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, UnboundedSender, channel, unbounded_channel};
use tokio::time::Instant;
use wire::Text;
use wire::data::{CALLS_MAX, CallFault, DataProxyToService, ServiceToDataProxy, Token};
use worker::channel::ChannelError;

use super::door::Door;
use super::line::{self, DoorEvent, Events};
use crate::client::{ServiceChannel, ServiceId, VIOLATIONS_MAX, log_in, too_many_parameters};
use crate::server::{PAUSE_MAX, PAUSE_MIN};
use crate::told::ProcessLog;

/// LIMIT: parts of answers of a service that it has not taken yet; what is behind them waits on the other machine.
const EVENTS_MAX: usize = 8;

/// A call without an answer.
struct RemoteCall {
    /// On which connection it is; `None` if it has failed before it was on any.
    line: Option<u64>,
    /// Bytes of its parameters that have come, and whether these are all.
    length: usize,
    is_complete: bool,
}

/// One channel.
struct RemoteChannel {
    told: Rc<ProcessLog>,
    door: Rc<Door>,
    service: ServiceId,
    calls: HashMap<u32, RemoteCall>,
    /// The connections that have calls, by their numbers, and the one for new calls.
    lines: HashMap<u64, UnboundedSender<ServiceToDataProxy>>,
    current: Option<u64>,
    next_line: u64,
    events: Events,
    /// Whether the connection for new calls is there, and not only on its way.
    was_there: bool,
    /// Until when the other machine is left alone, how long it will be next, and why.
    until: Instant,
    pause: Duration,
    reason: String,
    /// The messages to the service.
    answers: Vec<DataProxyToService>,
    violations: u32,
}

/// Serves one process of a service until it is gone.
pub(crate) async fn attend(
    (told, door): (Rc<ProcessLog>, Rc<Door>),
    service: ServiceId,
    token: Token,
    descriptor: OwnedFd,
) {
    let Ok(own) = ServiceChannel::new(descriptor) else { return };
    told.counters.connected();
    if log_in(&own, &told, &service, &token).await {
        let (events, heard) = channel(EVENTS_MAX);
        let mut client = RemoteChannel {
            told: told.clone(),
            door,
            service,
            calls: HashMap::new(),
            lines: HashMap::new(),
            current: None,
            next_line: 0,
            events,
            was_there: false,
            until: Instant::now(),
            pause: PAUSE_MIN,
            reason: String::new(),
            answers: Vec::new(),
            violations: 0,
        };
        // With it go its connections, and the other machine cancels what is under way on these.
        let _ = client.serve(&own, heard).await;
    }
    told.counters.disconnected();
}

impl RemoteChannel {
    async fn serve(
        &mut self,
        channel: &ServiceChannel,
        mut events: Receiver<(u64, DoorEvent)>,
    ) -> io::Result<()> {
        loop {
            for answer in std::mem::take(&mut self.answers) {
                channel.send(&answer, None).await?;
            }
            // By turns: a service that stops a call is heard while its rows come.
            tokio::select! {
                Some((line, event)) = events.recv() => self.receive(line, event),
                message = channel.receive() => match message {
                    Ok(Some((message, None))) => self.take(message),
                    Ok(Some((_, Some(_)))) | Err(ChannelError::Malformed(_)) => self.violation("what is no message"),
                    Ok(None) => return Ok(()),
                    Err(ChannelError::Io(error)) => return Err(error),
                },
            }
            if self.violations >= VIOLATIONS_MAX {
                let name = &self.service.name;
                self.told.refused(&format!("service {name} sends nonsense; its channel is closed"));
                return Ok(());
            }
        }
    }

    fn take(&mut self, message: ServiceToDataProxy) {
        match &message {
            ServiceToDataProxy::Call { id, complete, values, .. } => {
                let (id, complete, length) = (*id, *complete, values.0.len());
                self.call(id, (length, complete), message);
            }
            ServiceToDataProxy::More { id, complete, values } => {
                let (id, complete, length) = (*id, *complete, values.0.len());
                self.more(id, (length, complete), message);
            }
            ServiceToDataProxy::Cancel { id } => {
                // Its answer may have been on its way.
                if let Some(call) = self.calls.get(id) {
                    self.send(call.line, message);
                }
            }
            // Bytes that the service does not read from its channel are not read from the door either.
            ServiceToDataProxy::Pause { .. } | ServiceToDataProxy::Resume { .. } => {}
            // The other machine knows, and says so when there is a connection, which is made now: the first call is to
            // end in its time as well. Until then, and if the other machine never says anything, what is usual holds.
            ServiceToDataProxy::Timeouts {} => {
                let usual_ms = statements::TIMEOUT.as_millis() as u32;
                self.answers.push(DataProxyToService::Timeouts { usual_ms });
                self.line();
            }
            ServiceToDataProxy::Login { .. } => self.violation("a second login"),
        }
    }

    fn call(&mut self, id: u32, (length, is_complete): (usize, bool), message: ServiceToDataProxy) {
        if self.calls.contains_key(&id) {
            return self.violation("a number twice");
        }
        let is_free = self.calls.len() < CALLS_MAX;
        self.calls.insert(id, RemoteCall { line: None, length, is_complete });
        if !is_free {
            return self.fail(id, CallFault::Busy, &format!("{CALLS_MAX} calls are under way"));
        }
        if !self.has_room(id) {
            return;
        }
        match self.line() {
            Some(line) => {
                self.calls.entry(id).and_modify(|call| call.line = Some(line));
                self.send(Some(line), message);
            }
            None => self.fail(id, CallFault::Database, &self.reason.clone()),
        }
    }

    fn more(&mut self, id: u32, (length, is_complete): (usize, bool), message: ServiceToDataProxy) {
        match self.calls.get_mut(&id) {
            Some(call) if !call.is_complete => {
                call.length += length;
                call.is_complete = is_complete;
                let line = call.line;
                if self.has_room(id) {
                    self.send(line, message);
                }
            }
            // It has failed meanwhile, which crossed with this.
            None => {}
            Some(_) => self.violation("more of a call that was complete"),
        }
    }

    /// Whether the parameters of a call are not too many; if they are, it fails.
    fn has_room(&mut self, id: u32) -> bool {
        let own = self.calls.get(&id).map_or(0, |call| call.length);
        let all: usize = self.calls.values().map(|call| call.length).sum();
        let Some((fault, reason)) = too_many_parameters(own, all) else { return true };
        // The call's answer is not complete, and never will be.
        let line = self.calls.get(&id).and_then(|call| call.line);
        self.send(line, ServiceToDataProxy::Cancel { id });
        self.fail(id, fault, &reason);
        false
    }

    /// The connection for a new call; `None` while the other machine is left alone.
    fn line(&mut self) -> Option<u64> {
        if self.current.is_none() {
            if Instant::now() < self.until {
                return None;
            }
            let number = self.next_line;
            self.next_line += 1;
            let (orders, received) = unbounded_channel();
            let way = (self.door.clone(), self.service.name.clone());
            tokio::task::spawn_local(line::run(way, number, received, self.events.clone()));
            self.lines.insert(number, orders);
            (self.current, self.was_there) = (Some(number), false);
        }
        self.current
    }

    fn send(&self, line: Option<u64>, message: ServiceToDataProxy) {
        // One that is gone says so itself.
        if let Some(line) = line.and_then(|line| self.lines.get(&line)) {
            let _ = line.send(message);
        }
    }

    fn receive(&mut self, line: u64, event: DoorEvent) {
        match event {
            DoorEvent::Connected { says_timeouts } => {
                (self.was_there, self.pause) = (true, PAUSE_MIN);
                // A door of before knows them and does not say them.
                if !says_timeouts {
                    self.answers.push(DataProxyToService::Timeouts { usual_ms: 0 });
                }
            }
            DoorEvent::Answer(message) => self.answer(line, message),
            // The other machine knows, and the service waits by its own clock.
            DoorEvent::Timeouts(message) if self.current == Some(line) => self.answers.push(message),
            DoorEvent::Timeouts(_) => {}
            DoorEvent::Retires => self.current = self.current.filter(|current| *current != line),
            DoorEvent::Ended { reason, unknown } => self.lose(line, &reason, &unknown),
        }
        self.let_go(line);
    }

    fn answer(&mut self, line: u64, message: DataProxyToService) {
        let (id, is_end) = match &message {
            // None of these is said on a line.
            DataProxyToService::Welcome {}
            | DataProxyToService::Timeouts { .. }
            | DataProxyToService::Timeout { .. } => return,
            DataProxyToService::Part { id, .. } => (*id, false),
            DataProxyToService::Done { id, .. } | DataProxyToService::Failed { id, .. } => (*id, true),
        };
        // One that has failed here may be answered there.
        if self.calls.get(&id).is_none_or(|call| call.line != Some(line)) {
            return;
        }
        if is_end {
            self.end(id);
        }
        self.answers.push(message);
    }

    /// Fails the calls of a connection that has ended.
    fn lose(&mut self, line: u64, reason: &str, unknown: &HashSet<u32>) {
        let of_line = self.calls.iter().filter(|(_, call)| call.line == Some(line));
        let lost: Vec<u32> = of_line.map(|(id, _)| *id).collect();
        if self.current == Some(line) || !lost.is_empty() {
            eprintln!("error: {reason}");
        }
        for id in lost {
            let fault = if unknown.contains(&id) { CallFault::Lost } else { CallFault::Database };
            self.fail(id, fault, reason);
        }
        self.lines.remove(&line);
        if self.current == Some(line) {
            self.current = None;
            self.reason = reason.to_owned();
            // One that was there is made again at once.
            if !std::mem::take(&mut self.was_there) {
                self.until = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Lets go of a connection that is for no new calls, once it has none; it ends then.
    fn let_go(&mut self, line: u64) {
        let is_used = self.current == Some(line) || self.calls.values().any(|call| call.line == Some(line));
        if !is_used {
            self.lines.remove(&line);
        }
    }

    fn fail(&mut self, id: u32, fault: CallFault, reason: &str) {
        self.end(id);
        self.answers.push(DataProxyToService::Failed { id, fault, reason: Text::new(reason) });
    }

    fn end(&mut self, id: u32) {
        self.calls.remove(&id);
        self.told.counters.answered();
    }

    fn violation(&mut self, what: &str) {
        self.violations += 1;
        self.told.refused(&format!("service {} has sent {what}", self.service.name));
    }
}
