//! A connection: what comes in, frame by frame.
//!
//! Untrusted input: every byte of a client. Must never: go on after an error of the connection.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Instant;

use conditioning::http2::{self as abuse, Abuse, Excess};

use crate::count;
use crate::frame::{self, FRAME_BYTES, FrameHead, HEAD_BYTES};
use crate::head::Http2Head;
use crate::hpack::HpackDecoder;
use crate::state::StreamState;
use crate::{PREFACE, Reason};

/// RFC 9113 6.9.2: the windows of both sides, until settings say something else.
const DEFAULT_WINDOW: u32 = 65_535;
/// RFC 9113 6.9.1.
const WINDOW_MAX: i64 = 0x7fff_ffff;
/// LIMIT: streams that we have reset and of which frames may still be on their way.
const RESETS_KEPT: usize = 64;
/// The content of our PING that asks whether the client knows that it is to go.
const LEAVING: [u8; 8] = *b"bye, bye";

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Streams at once.
    pub streams: u32,
    /// Bytes of a body that may wait for whoever wants them, of one stream.
    pub stream_window: u32,
    /// And of all.
    pub connection_window: u32,
    /// Bytes of a list of fields; a request with a longer one is refused. A block, which has to be decoded for the sake
    /// of the next one, may be as long as [`abuse::ResetLimits::block_bytes`].
    pub list_bytes: u32,
    /// Bytes of an answer that may wait for the socket, of one stream.
    pub send_bytes: usize,
    /// Streams that we reset for errors of the client's in the life of a connection.
    pub provoked: usize,
    /// The cost of the frames that are taken in one turn; see [`FrameHead::cost`].
    pub turn: u32,
}

/// A header block of which a part has come.
#[derive(Debug)]
struct Block {
    stream: u32,
    ends: bool,
    is_faulty: bool,
    bytes: Vec<u8>,
}

/// An error of the client's.
#[derive(Clone, Copy, Debug)]
enum ProtocolFault {
    /// It ends the connection.
    Connection(Reason),
    /// It ends a stream.
    Stream(u32, Reason),
}

/// How far we have told the client that it is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoAwayState {
    No,
    /// It may have opened streams meanwhile.
    Asked,
    Told,
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveResult {
    /// A request, to be answered before anything else is received.
    Request,
    /// Everything is used up.
    Nothing,
    /// Others are to have their turn before the rest is taken.
    Enough,
    /// Nothing more is taken.
    Over,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) limits: StreamLimits,
    /// Bytes of the preface that have come.
    greeted: usize,
    /// Whether the client's first settings have come.
    is_settled: bool,
    /// The bytes of a frame so far.
    partial: Vec<u8>,
    block: Option<Box<Block>>,
    decoder: HpackDecoder,
    abuse: Box<Abuse>,
    excess: Option<Excess>,
    provoked: usize,
    /// The cost that may still be taken in this turn.
    turn: u32,
    pub(crate) streams: BTreeMap<u32, Box<StreamState>>,
    /// How many of them are open.
    pub(crate) open: u32,
    /// The newest stream of the client's.
    last: u32,
    /// The newest streams that it has passed over: after the one, before the other.
    skipped: (u32, u32),
    /// Streams that we have reset.
    resets: VecDeque<u32>,
    receive_window: i64,
    released: u32,
    send_window: i64,
    /// The window of a new stream.
    initial_window: i64,
    /// Whether the client is to be told that we keep no table.
    announces_no_table: bool,
    /// To be sent.
    pub(crate) out: Vec<u8>,
    /// Streams that have something to send.
    ready: VecDeque<u32>,
    waker: Option<Waker>,
    leaving: GoAwayState,
    is_client_leaving: bool,
    failed: Option<Reason>,
}

impl Connection {
    /// A connection of which nothing has come yet.
    pub fn new(limits: StreamLimits) -> Self {
        let mut out = Vec::with_capacity(64);
        // RFC 9113 6.5.2, RFC 8441 3.
        let settings = [(3, limits.streams), (4, limits.stream_window), (6, limits.list_bytes), (8, 1)];
        frame::settings(&mut out, &settings);
        if let Some(more) = limits.connection_window.checked_sub(DEFAULT_WINDOW).filter(|&more| more > 0) {
            frame::window_update(&mut out, 0, more);
        }
        Self {
            limits,
            greeted: 0,
            is_settled: false,
            partial: Vec::new(),
            block: None,
            decoder: HpackDecoder::default(),
            abuse: Box::new(Abuse::new(abuse::ResetLimits::default())),
            excess: None,
            provoked: 0,
            turn: limits.turn,
            streams: BTreeMap::new(),
            open: 0,
            last: 0,
            skipped: (0, 0),
            resets: VecDeque::new(),
            receive_window: i64::from(limits.connection_window),
            released: 0,
            send_window: i64::from(DEFAULT_WINDOW),
            initial_window: i64::from(DEFAULT_WINDOW),
            announces_no_table: false,
            out,
            ready: VecDeque::new(),
            waker: None,
            leaving: GoAwayState::No,
            is_client_leaving: false,
            failed: None,
        }
    }

    /// Lets as much be taken again as one turn may cost.
    pub fn begin_turn(&mut self) {
        self.turn = self.limits.turn;
    }

    /// Takes bytes that have come from `input`, up to the end of the next request, which is put into `head`, or of the
    /// turn.
    pub fn receive(&mut self, input: &mut &[u8], head: &mut Http2Head, now: Instant) -> ReceiveResult {
        loop {
            if self.is_over() || self.excess.is_some() {
                return ReceiveResult::Over;
            }
            if self.turn == 0 && !input.is_empty() {
                return ReceiveResult::Enough;
            }
            if self.greeted < PREFACE.len() {
                if input.is_empty() {
                    return ReceiveResult::Nothing;
                }
                self.greet(input);
                continue;
            }
            let handled = if self.partial.is_empty() {
                let Some(frame) = FrameHead::parse(input) else { return self.keep(input) };
                if frame.length > FRAME_BYTES {
                    self.fail(Reason::FRAME_SIZE_ERROR);
                    return ReceiveResult::Over;
                }
                let Some((bytes, rest)) = input.split_at_checked(HEAD_BYTES + frame.length) else {
                    return self.keep(input);
                };
                *input = rest;
                self.handle(frame, &bytes[HEAD_BYTES..], head, now)
            } else {
                let Some((frame, bytes)) = self.complete(input) else {
                    return if self.is_over() { ReceiveResult::Over } else { ReceiveResult::Nothing };
                };
                self.handle(frame, &bytes[HEAD_BYTES..], head, now)
            };
            if handled {
                return ReceiveResult::Request;
            }
        }
    }

    fn greet(&mut self, input: &mut &[u8]) {
        let count = input.len().min(PREFACE.len() - self.greeted);
        if input[..count] != PREFACE[self.greeted..self.greeted + count] {
            self.fail(Reason::PROTOCOL_ERROR);
        }
        self.greeted += count;
        *input = &input[count..];
    }

    /// Keeps what has come of a frame.
    fn keep(&mut self, input: &mut &[u8]) -> ReceiveResult {
        self.partial.extend_from_slice(input);
        *input = &[];
        ReceiveResult::Nothing
    }

    /// The frame of which a part has come before, once it is whole.
    fn complete(&mut self, input: &mut &[u8]) -> Option<(FrameHead, Vec<u8>)> {
        self.fill_up(input, HEAD_BYTES);
        let frame = FrameHead::parse(&self.partial)?;
        if frame.length > FRAME_BYTES {
            self.fail(Reason::FRAME_SIZE_ERROR);
            return None;
        }
        let whole = HEAD_BYTES + frame.length;
        self.fill_up(input, whole);
        (self.partial.len() == whole).then(|| (frame, std::mem::take(&mut self.partial)))
    }

    fn fill_up(&mut self, input: &mut &[u8], whole: usize) {
        let count = input.len().min(whole.saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(&input[..count]);
        *input = &input[count..];
    }

    /// Handles a frame; whether a request is whole.
    fn handle(&mut self, frame: FrameHead, payload: &[u8], head: &mut Http2Head, now: Instant) -> bool {
        self.turn = self.turn.saturating_sub(frame.cost());
        if let Err(excess) = count::received(&mut self.abuse, frame, now) {
            self.excess = Some(excess);
            return false;
        }
        let handled = self.dispatch(frame, payload, head, now);
        match handled {
            Ok(is_request) => is_request,
            Err(ProtocolFault::Connection(reason)) => {
                self.fail(reason);
                false
            }
            Err(ProtocolFault::Stream(stream, reason)) => {
                self.provoke(stream, reason, now);
                false
            }
        }
    }

    /// The limit that the client exceeded.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }

    /// Whether the preface and the first settings have come.
    pub fn has_begun(&self) -> bool {
        self.is_settled
    }

    /// Whether nothing more is to be received: one of the two has said that this is the end.
    pub fn is_over(&self) -> bool {
        let is_leaving = self.leaving == GoAwayState::Told || self.is_client_leaving;
        self.failed.is_some() || (is_leaving && self.streams.is_empty())
    }

    /// Whether a frame is missing its end, or a stream.
    pub fn is_interrupted(&self) -> bool {
        !self.partial.is_empty() || self.block.is_some() || self.open > 0
    }

    /// Gives back what an idle connection does not need.
    pub fn shrink(&mut self) {
        self.decoder.shrink();
        self.ready.shrink_to_fit();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }
}

/// See [`crate::fuzz`].
pub(crate) fn fuzz(data: &[u8]) {
    use std::cell::RefCell;
    use std::rc::Rc;
    let limits = StreamLimits {
        streams: 8,
        stream_window: 65_536,
        connection_window: 262_144,
        list_bytes: 4096,
        send_bytes: 1024,
        provoked: 16,
        turn: 20,
    };
    let now = Instant::now();
    let run = |step: usize| {
        let shared = Rc::new(RefCell::new(Connection::new(limits)));
        let (mut head, mut found, mut held) = (Http2Head::default(), Vec::new(), VecDeque::new());
        for piece in [&PREFACE[..], data].concat().chunks(step.max(1)) {
            let mut piece = piece;
            loop {
                let received = shared.borrow_mut().receive(&mut piece, &mut head, now);
                match received {
                    ReceiveResult::Request => {}
                    ReceiveResult::Enough => {
                        shared.borrow_mut().begin_turn();
                        continue;
                    }
                    ReceiveResult::Nothing | ReceiveResult::Over => break,
                }
                found.push((
                    head.stream,
                    head.method().to_owned(),
                    head.target().to_owned(),
                    head.parts().is_some(),
                ));
                if head.is_whole() && head.stream % 4 == 1 && shared.borrow().has_room(100) {
                    shared.borrow_mut().answer(&head, &[b'x'; 100], now, |block| block.push(0x88));
                    continue;
                }
                let stream = crate::Stream::open(&shared, &head);
                let _ = stream.send_head(http::StatusCode::OK, &http::HeaderMap::new(), false);
                let _ = stream.send_data(bytes::Bytes::from_static(&[b'y'; 300]), head.stream % 3 == 0);
                held.push_back(stream);
                if held.len() > 4 {
                    held.pop_front();
                }
            }
            let connection = shared.borrow();
            assert!(connection.partial.len() <= HEAD_BYTES + FRAME_BYTES && connection.streams.len() <= 16);
        }
        shared.borrow_mut().fill(usize::MAX, now);
        let sent = shared.borrow().out.clone();
        (found, sent)
    };
    let whole = run(data.len() + PREFACE.len());
    assert!([1, 7, 10].into_iter().all(|step| run(step) == whole));
}
