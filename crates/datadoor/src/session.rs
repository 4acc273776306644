//! One WebSocket: the calls that come on it, and their answers.
//!
//! Sees: messages of another machine's data proxy, which may be compromised. Never: keeps more answers than their
//! limit, or goes on with calls for which nobody waits any more.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bulkhead_service::{Context, DataError, DataSource, Error, Message, Passed, PassedOn, Wants, WebSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use wire::Message as _;
use wire::data::{
    CALLS_MAX, CallFault, DOOR_RETIRES, DataProxyToService, PARAMETERS_BYTES_MAX, PARAMETERS_UNANSWERED_MAX,
    SEND_TIMEOUT, ServiceToDataProxy,
};
use wire::{Bytes, Text};

/// LIMIT: bytes of answers that another machine has not read yet, over all calls of a connection; a call that gives
/// more fails.
const UNREAD_MAX: usize = 32 << 20;
/// With so many, calls whose rows come are paused. Rows that are on their way then have room: they are
/// [`wire::data::UNREAD_MAX`] at most, and the ends of calls that change something.
const PAUSE_AT: usize = UNREAD_MAX / 2;
/// With so many, they are resumed.
const RESUME_AT: usize = PAUSE_AT / 2;

const UNREAD_FOR_TOO_LONG: &str = "the other machine does not read its answers";

/// A call without an answer.
enum DoorCall {
    /// Its parameters are not complete.
    Unfinished { name: String, values: Vec<u8> },
    /// It is with the data proxy, and so many bytes of parameters as well.
    Passed { call: PassedOn, length: usize, paused: Arc<AtomicBool> },
}

impl DoorCall {
    fn length(&self) -> usize {
        match self {
            Self::Unfinished { values, .. } => values.len(),
            Self::Passed { length, .. } => *length,
        }
    }
}

/// See the file's head.
pub(crate) struct DoorSession {
    source: DataSource,
    /// Whether the other machine hears how long calls may take.
    says_timeouts: bool,
    calls: HashMap<u32, DoorCall>,
    answers: UnboundedReceiver<(u32, Passed)>,
    replies: UnboundedSender<(u32, Passed)>,
    /// Bytes of what is in `answers`.
    unread: Arc<AtomicUsize>,
    /// Whether the other machine reads nothing.
    is_stuck: Arc<AtomicBool>,
    /// Whether the operator knows that.
    is_said: Cell<bool>,
}

/// A message that no data proxy sends.
struct Nonsense(String);

impl From<Nonsense> for Error {
    fn from(nonsense: Nonsense) -> Self {
        format!("the data proxy of the other machine has sent nonsense: {}", nonsense.0).into()
    }
}

impl DoorSession {
    /// Of a machine that hears timeouts, or of one that knows of none.
    pub(crate) fn new(source: DataSource, says_timeouts: bool) -> Self {
        let (replies, answers) = unbounded_channel();
        let (unread, is_stuck, is_said) = Default::default();
        Self { source, says_timeouts, calls: HashMap::new(), answers, replies, unread, is_stuck, is_said }
    }

    /// Serves the other machine until it has gone. Its calls under way then are cancelled. After `renewal`, and when
    /// this worker retires, the other machine is told to make its next calls on another connection.
    ///
    /// # Errors
    /// It sends nonsense, or has gone.
    pub(crate) async fn run(
        mut self,
        socket: &mut WebSocket,
        cx: &Context,
        renewal: Duration,
    ) -> Result<(), Error> {
        let mut retires = std::pin::pin!(timeout(renewal, cx.drained()));
        let mut is_told = false;
        let mut timeouts = self.source.timeouts();
        loop {
            tokio::select! {
                said = timeouts.next(), if self.says_timeouts => {
                    for message in said {
                        self.send(socket, encoded(&message)).await?;
                    }
                }
                Some((id, passed)) = self.answers.recv() => {
                    let answer = self.answer(id, passed);
                    self.send(socket, encoded(&answer)).await?;
                }
                message = socket.next() => match message? {
                    Some(Message::Binary(bytes)) => self.take(&bytes)?,
                    Some(Message::Text(_)) => return Err(Nonsense("a text".into()).into()),
                    None => return Ok(()),
                },
                _ = &mut retires, if !is_told => {
                    is_told = true;
                    socket.send(DOOR_RETIRES).await?;
                }
            }
        }
    }

    /// Sends an answer. Calls that are paused are given up if the other machine reads nothing for too long.
    async fn send(&self, socket: &mut WebSocket, bytes: Vec<u8>) -> Result<(), Error> {
        let mut sending = std::pin::pin!(socket.send(bytes));
        let sent = match timeout(SEND_TIMEOUT, &mut sending).await {
            Ok(sent) => sent,
            Err(_) => {
                self.give_up();
                sending.await
            }
        };
        self.is_stuck.store(false, Ordering::Relaxed);
        Ok(sent?)
    }

    fn give_up(&self) {
        self.is_stuck.store(true, Ordering::Relaxed);
        let given_up = self.paused().map(PassedOn::cancel).count();
        if given_up > 0 && !self.is_said.replace(true) {
            eprintln!("warning: {UNREAD_FOR_TOO_LONG}: calls of its data proxy are given up");
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Nonsense> {
        let message = ServiceToDataProxy::decode(bytes).map_err(|error| Nonsense(error.to_string()))?;
        match message {
            ServiceToDataProxy::Login { .. } => Err(Nonsense("a login".into())),
            ServiceToDataProxy::Timeouts {} => Err(Nonsense("a question for timeouts".into())),
            ServiceToDataProxy::Call { id, name, complete, values } => {
                if self.calls.contains_key(&id) {
                    return Err(Nonsense("a number twice".into()));
                }
                if self.calls.len() >= CALLS_MAX {
                    return Err(Nonsense(format!("more than {CALLS_MAX} calls at once")));
                }
                self.go_on(id, name.as_str().to_owned(), values.0, complete)
            }
            ServiceToDataProxy::More { id, complete, values } => match self.calls.remove(&id) {
                Some(DoorCall::Unfinished { name, values: mut before }) => {
                    before.extend(values.0);
                    self.go_on(id, name, before, complete)
                }
                _ => Err(Nonsense("more of no call".into())),
            },
            ServiceToDataProxy::Cancel { id } => {
                self.cancel(id);
                Ok(())
            }
            ServiceToDataProxy::Pause { .. } | ServiceToDataProxy::Resume { .. } => {
                Err(Nonsense("a pause, where it has only to stop reading".into()))
            }
        }
    }

    /// Makes a call whose parameters are complete, and keeps one whose are not.
    fn go_on(&mut self, id: u32, name: String, values: Vec<u8>, complete: bool) -> Result<(), Nonsense> {
        let length = values.len();
        let others: usize = self.calls.values().map(DoorCall::length).sum();
        if length > PARAMETERS_BYTES_MAX || others + length > PARAMETERS_UNANSWERED_MAX {
            return Err(Nonsense("more parameters than calls may have".into()));
        }
        let call = match complete {
            false => DoorCall::Unfinished { name, values },
            true => self.pass_on(id, &name, values),
        };
        self.calls.insert(id, call);
        Ok(())
    }

    fn pass_on(&self, id: u32, name: &str, values: Vec<u8>) -> DoorCall {
        let (replies, unread) = (self.replies.clone(), self.unread.clone());
        let (length, paused) = (values.len(), Arc::<AtomicBool>::default());
        let (pausing, is_stuck) = (paused.clone(), self.is_stuck.clone());
        let mut is_cut = false;
        let call = self.source.pass_on(name, values, move |passed| {
            let before = unread.load(Ordering::Relaxed);
            // An end is short, and says that a change holds: it counts, and is not cut off.
            is_cut |= match &passed {
                Passed::Part(_) if is_stuck.load(Ordering::Relaxed) => before >= PAUSE_AT,
                Passed::Part(bytes) => before + bytes.len() > UNREAD_MAX,
                Passed::Done(_) | Passed::Failed(_) => false,
            };
            let passed = match (is_cut, passed) {
                (false, passed) => passed,
                (true, Passed::Part(_)) => return Wants::Nothing,
                (true, Passed::Done(_)) => {
                    Passed::Failed(DataError::Lost { reason: UNREAD_FOR_TOO_LONG.into() })
                }
                (true, Passed::Failed(lost @ DataError::Lost { .. })) => Passed::Failed(lost),
                (true, Passed::Failed(_)) => Passed::Failed(unread_for_too_long()),
            };
            if let Passed::Part(bytes) | Passed::Done(bytes) = &passed {
                unread.fetch_add(bytes.len(), Ordering::Relaxed);
            }
            let is_full = before >= PAUSE_AT;
            // Before it is sent: whoever takes it from there may resume the call.
            if is_full {
                pausing.store(true, Ordering::Relaxed);
            }
            match replies.send((id, passed)) {
                Ok(()) if is_full => Wants::MoreLater,
                Ok(()) => Wants::More,
                // The session is over.
                Err(_) => Wants::Nothing,
            }
        });
        DoorCall::Passed { call, length, paused }
    }

    /// An answer, or a part of one, as it is said to the other machine.
    fn answer(&mut self, id: u32, passed: Passed) -> DataProxyToService {
        if !matches!(passed, Passed::Part(_)) {
            self.calls.remove(&id);
        }
        if let Passed::Part(bytes) | Passed::Done(bytes) = &passed {
            let before = self.unread.fetch_sub(bytes.len(), Ordering::Relaxed);
            if before - bytes.len() <= RESUME_AT {
                self.paused().for_each(PassedOn::resume);
            }
        }
        match passed {
            Passed::Part(results) => DataProxyToService::Part { id, results: Bytes(results) },
            Passed::Done(results) => DataProxyToService::Done { id, results: Bytes(results) },
            Passed::Failed(error) => {
                let (fault, reason) = said(error);
                DataProxyToService::Failed { id, fault, reason: Text::new(reason) }
            }
        }
    }

    /// The calls that were paused, which are not from now on.
    fn paused(&self) -> impl Iterator<Item = &PassedOn> {
        self.calls.values().filter_map(|call| match call {
            DoorCall::Passed { call, paused, .. } => paused.swap(false, Ordering::Relaxed).then_some(call),
            DoorCall::Unfinished { .. } => None,
        })
    }

    /// Cancels a call; one that was made has its end said by the data proxy.
    fn cancel(&mut self, id: u32) {
        match self.calls.get_mut(&id) {
            Some(DoorCall::Unfinished { .. }) => {
                let reason = "it was cancelled before it was made".to_owned();
                let failed = DataError::Failed { fault: CallFault::Late, reason };
                let _ = self.replies.send((id, Passed::Failed(failed)));
            }
            Some(DoorCall::Passed { call, .. }) => call.cancel(),
            // Its answer was on its way.
            None => {}
        }
    }
}

fn encoded(message: &DataProxyToService) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn unread_for_too_long() -> DataError {
    DataError::Failed { fault: CallFault::Busy, reason: UNREAD_FOR_TOO_LONG.to_owned() }
}

fn said(error: DataError) -> (CallFault, String) {
    match error {
        DataError::Failed { fault, reason } => (fault, reason),
        DataError::Lost { reason } => (CallFault::Lost, reason),
        error @ (DataError::Unavailable | DataError::Shape(_)) => (CallFault::Database, error.to_string()),
    }
}
