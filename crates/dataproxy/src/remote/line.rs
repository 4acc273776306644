//! One connection to a door: a WebSocket under TLS, on which calls go and answers come.
//!
//! Sees: what the other machine says, once its certificate has shown which one it is. Never: reads more answers than
//! the service takes, or waits for one that gives no sign of life.
//!
//! INVARIANT: what waits to be sent keeps no answer from being read, or the two machines would wait for each other.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Permit, Sender, UnboundedReceiver};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as Broken, Message as Frame};
use wire::Message as _;
use wire::data::{DOOR_RETIRES, DataProxyToService, ServiceToDataProxy};

use super::door::{Door, OpenDoor};
use crate::server::MaybeTlsStream;

/// LIMIT: how long a door may be silent; it asks for a sign of life every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// LIMIT: how long a door may take to say that it has seen the end.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) type Socket = WebSocketStream<MaybeTlsStream>;

/// An event of a connection.
#[derive(Debug)]
pub(super) enum DoorEvent {
    /// It is there. Whether the door says how long calls may take.
    Connected { says_timeouts: bool },
    /// An answer, or a part of one.
    Answer(DataProxyToService),
    /// How long calls may take.
    Timeouts(DataProxyToService),
    /// It is for no new calls.
    Retires,
    /// It has ended, or never was there. These calls may have been carried out.
    Ended { reason: String, unknown: HashSet<u32> },
}

/// The events for the service, each with the number of its connection.
pub(super) type Events = Sender<(u64, DoorEvent)>;

/// See the file's head.
struct DoorConnection {
    number: u64,
    says_timeouts: bool,
    sink: SplitSink<Socket, Frame>,
    stream: SplitStream<Socket>,
    /// Messages that wait to be sent, and whether some that were sent are still here.
    outgoing: VecDeque<ServiceToDataProxy>,
    is_unflushed: bool,
    /// Calls that were sent whole, and have no answer.
    unknown: HashSet<u32>,
    /// When the door was last heard.
    heard: Instant,
}

/// Connects, and passes on what comes until nobody wants more, or the connection is lost.
pub(super) async fn run(
    (door, service): (std::rc::Rc<Door>, String),
    number: u64,
    mut orders: UnboundedReceiver<ServiceToDataProxy>,
    events: Events,
) {
    let ended = |reason, unknown| (number, DoorEvent::Ended { reason, unknown });
    let connected = tokio::select! {
        connected = door.connect(&service) => connected,
        () = events.closed() => return,
    };
    // A receiver that has gone wants nothing.
    match connected {
        Ok(OpenDoor { socket, says_timeouts }) => {
            let (sink, stream) = socket.split();
            let (outgoing, unknown) = (VecDeque::new(), HashSet::new());
            let (is_unflushed, heard) = (false, Instant::now());
            let mut line = DoorConnection {
                number,
                says_timeouts,
                sink,
                stream,
                outgoing,
                is_unflushed,
                unknown,
                heard,
            };
            let _ = events.send((number, DoorEvent::Connected { says_timeouts })).await;
            let reason = line.pass_on(&mut orders, &events).await;
            let reason = format!("{}: {reason}", door.authority());
            let _ = timeout(CLOSE_TIMEOUT, line.sink.close()).await;
            let _ = events.send(ended(reason, line.unknown)).await;
        }
        Err(reason) => drop(events.send(ended(reason, HashSet::new())).await),
    }
}

impl DoorConnection {
    /// Passes on what comes; returns why that has ended.
    async fn pass_on(
        &mut self,
        orders: &mut UnboundedReceiver<ServiceToDataProxy>,
        events: &Events,
    ) -> String {
        loop {
            let (sink, wants_room) = (&mut self.sink, !self.outgoing.is_empty());
            tokio::select! {
                ready = poll_fn(|cx| match wants_room {
                    true => sink.poll_ready_unpin(cx),
                    false => sink.poll_flush_unpin(cx),
                }), if wants_room || self.is_unflushed => {
                    let sent = ready.and_then(|()| self.send_next());
                    if let Err(error) = sent {
                        return in_words(&error);
                    }
                }
                (permit, frame) = next(&mut self.stream, &mut self.heard, events) => {
                    match frame.and_then(|frame| self.take(frame)) {
                        Ok(Some(event)) => permit.send((self.number, event)),
                        Ok(None) => {}
                        Err(reason) => return reason,
                    }
                }
                order = orders.recv() => match order {
                    Some(order) => self.outgoing.push_back(order),
                    None => return "nobody wants it any more".into(),
                },
                () = events.closed() => return "the service has gone".into(),
            }
        }
    }

    /// Sends the next message, for which there is room, or else notes that all has gone.
    fn send_next(&mut self) -> Result<(), Broken> {
        let Some(message) = self.outgoing.pop_front() else {
            self.is_unflushed = false;
            return Ok(());
        };
        if let ServiceToDataProxy::Call { id, complete: true, .. }
        | ServiceToDataProxy::More { id, complete: true, .. } = &message
        {
            self.unknown.insert(*id);
        }
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.is_unflushed = true;
        self.sink.start_send_unpin(Frame::binary(bytes))
    }

    /// The event of a frame, if it has one.
    fn take(&mut self, frame: Frame) -> Result<Option<DoorEvent>, String> {
        match frame {
            Frame::Binary(bytes) => {
                let message = DataProxyToService::decode(&bytes).map_err(|error| nonsense(&error))?;
                match message {
                    DataProxyToService::Welcome {} => return Err(nonsense(&"a welcome")),
                    DataProxyToService::Timeouts { .. } | DataProxyToService::Timeout { .. } => {
                        return match self.says_timeouts {
                            true => Ok(Some(DoorEvent::Timeouts(message))),
                            false => Err(nonsense(&"a timeout")),
                        };
                    }
                    DataProxyToService::Part { .. } => {}
                    DataProxyToService::Done { id, .. } | DataProxyToService::Failed { id, .. } => {
                        self.unknown.remove(&id);
                    }
                }
                Ok(Some(DoorEvent::Answer(message)))
            }
            Frame::Text(text) if text.as_str() == DOOR_RETIRES => Ok(Some(DoorEvent::Retires)),
            Frame::Text(_) => Err(nonsense(&"a text")),
            Frame::Ping(_) => {
                // The answer to it waits to be sent.
                self.is_unflushed = true;
                Ok(None)
            }
            Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_) => Ok(None),
        }
    }
}

/// The next frame, once the service takes what may be in it. A future that is dropped while it waits has lost nothing.
async fn next<'e>(
    stream: &mut SplitStream<Socket>,
    heard: &mut Instant,
    events: &'e Events,
) -> (Permit<'e, (u64, DoorEvent)>, Result<Frame, String>) {
    let permit = match events.try_reserve() {
        Ok(permit) => permit,
        Err(TrySendError::Full(())) => match events.reserve().await {
            Ok(permit) => {
                // Nobody has listened meanwhile.
                *heard = Instant::now();
                permit
            }
            Err(_) => std::future::pending().await,
        },
        Err(TrySendError::Closed(())) => std::future::pending().await,
    };
    let frame = match timeout_at(*heard + SILENCE_MAX, stream.next()).await {
        Ok(Some(Ok(frame))) => Ok(frame),
        Ok(Some(Err(error))) => Err(in_words(&error)),
        Ok(None) => Err("the other machine has ended the connection".into()),
        Err(_) => Err(format!(
            "the other machine has given no sign of life for {} s: see whether it runs, and whether the network \
             carries what it says",
            SILENCE_MAX.as_secs()
        )),
    };
    *heard = Instant::now();
    (permit, frame)
}

fn in_words(error: &Broken) -> String {
    format!("the connection to the other machine is lost: {error}")
}

fn nonsense(what: &dyn std::fmt::Display) -> String {
    format!("the other machine has sent nonsense: {what}")
}
