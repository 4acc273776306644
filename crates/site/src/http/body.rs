//! Bodies: of requests, with a bound; of responses, from memory, from files and from services.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: request bodies, and response bodies of
//! services. Must never: pass on more of a request than the limit, or send a file's bytes short of its
//! announced length as if they were complete.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use request::range::Span;

use crate::proxy::limit::{Side, Stall};
use crate::proxy::spool::SpooledBody;

/// The error of a response body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body made elsewhere.
pub type BodyStream = Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>;

/// LIMIT: bytes read from a file at once; large enough that the system call costs little beside the copy.
const FILE_STEP_BYTES: u64 = 128 << 10;

/// The body of a response.
#[derive(Default)]
pub enum ResponseBody {
    /// None.
    #[default]
    Empty,
    /// All of it in memory.
    Full(Bytes),
    /// Pieces of a file, with what stands between them.
    File(FileBody),
    /// A piece of memory that others have as well, copied as it is sent.
    Shared(Box<dyn SharedBody>),
    /// The stream of a service.
    Stream(BodyStream),
}

/// A body that is copied piece by piece.
pub trait SharedBody: Body<Data = Bytes, Error = BoxError> + Unpin {
    /// Has at most so many bytes copied at once.
    fn in_steps_of(&mut self, bytes: u64);
}

impl ResponseBody {
    /// Has at most so many bytes read or copied at once; whether that can be said of it.
    pub(crate) fn in_steps_of(&mut self, bytes: u64) -> bool {
        match self {
            ResponseBody::File(file) => file.step = bytes,
            ResponseBody::Shared(shared) => shared.in_steps_of(bytes),
            _ => return false,
        }
        true
    }

    /// Wraps any other body.
    pub fn stream<B>(body: B) -> ResponseBody
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        ResponseBody::Stream(Box::pin(http_body_util::BodyExt::map_err(body, Into::into)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            ResponseBody::Empty => Poll::Ready(None),
            ResponseBody::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            ResponseBody::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ResponseBody::File(file) => {
                Poll::Ready(file.next().map(|piece| piece.map(Frame::data).map_err(Into::into)))
            }
            ResponseBody::Shared(shared) => Pin::new(&mut **shared).poll_frame(cx),
            ResponseBody::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Empty => true,
            ResponseBody::Full(bytes) => bytes.is_empty(),
            ResponseBody::File(file) => file.pieces.is_empty(),
            ResponseBody::Shared(shared) => shared.is_end_stream(),
            ResponseBody::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Empty => SizeHint::with_exact(0),
            ResponseBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseBody::File(file) => SizeHint::with_exact(file.left()),
            ResponseBody::Shared(shared) => shared.size_hint(),
            ResponseBody::Stream(stream) => stream.size_hint(),
        }
    }
}

/// One piece of a [`FileBody`].
pub enum BodyPiece {
    /// These bytes.
    Bytes(Bytes),
    /// A span of the file.
    Span(Span),
}

/// Pieces of a file, read as they are sent.
pub struct FileBody {
    fd: OwnedFd,
    pieces: VecDeque<BodyPiece>,
    step: u64,
}

impl FileBody {
    /// These pieces of `fd`, none of them empty.
    pub fn new(fd: OwnedFd, pieces: impl Into<VecDeque<BodyPiece>>) -> FileBody {
        FileBody { fd, pieces: pieces.into(), step: FILE_STEP_BYTES }
    }

    fn left(&self) -> u64 {
        let length = |piece: &BodyPiece| match piece {
            BodyPiece::Bytes(bytes) => bytes.len() as u64,
            BodyPiece::Span(span) => span.length,
        };
        self.pieces.iter().map(length).sum()
    }

    fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        let span = match self.pieces.pop_front()? {
            BodyPiece::Bytes(bytes) => return Some(Ok(bytes)),
            BodyPiece::Span(span) => span,
        };
        let step = span.length.min(self.step);
        let read = read(&self.fd, span.start, step);
        let got = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if got < span.length {
            let rest = Span { start: span.start + got, length: span.length - got };
            self.pieces.push_front(BodyPiece::Span(rest));
        }
        Some(read)
    }
}

fn read(fd: &OwnedFd, offset: u64, length: u64) -> std::io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(length as usize);
    loop {
        // `spare_capacity` may be more than was asked for, but never less than this file still owes.
        let room = rustix::buffer::spare_capacity(&mut buffer);
        match rustix::io::pread(fd, room, offset) {
            Err(rustix::io::Errno::INTR) => {}
            // The file became shorter than its announced length.
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    buffer.truncate(length as usize);
    Ok(Bytes::from(buffer))
}

/// Why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is larger than the limit.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// It came too slowly.
    #[error("the request body came too slowly")]
    Slow,
    /// The client sent something wrong, or went away.
    #[error("the request body did not arrive")]
    Client(#[source] BoxError),
    /// The part that was kept in a file cannot be read.
    #[error("the request body was lost: {0}")]
    Lost(#[source] std::io::Error),
}

impl BodyError {
    /// The status that the client gets for this error.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Slow => StatusCode::REQUEST_TIMEOUT,
            BodyError::Client(_) => StatusCode::BAD_REQUEST,
            BodyError::Lost(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// How far a request body came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Still being read, or not yet.
    #[default]
    Open,
    /// Wholly read.
    Done,
    /// Over the limit.
    TooLarge,
    /// Given up, as it came too slowly.
    Slow,
    /// Dropped before its end.
    Abandoned,
}

/// A request body that a codec reads. Opaque: the codecs depend on this module.
type ReceivedBody = Pin<Box<dyn Body<Data = Bytes, Error = BodyError>>>;

/// Where the body of a request comes from.
enum BodySource {
    /// Memory; nothing, for a request without a body that is made again.
    Memory {
        left: Bytes,
        /// All of it, if it may be wanted again when some of it has come.
        whole: Option<Bytes>,
    },
    /// A file, in which all of it is.
    File(SpooledBody),
    Codec(ReceivedBody),
}

impl BodySource {
    fn is_end(&self) -> bool {
        match self {
            BodySource::Memory { left, .. } => left.is_empty(),
            BodySource::File(part) => part.left() == 0,
            BodySource::Codec(inner) => inner.is_end_stream(),
        }
    }
}

/// The body of a request, cut off with an error at a number of bytes.
pub struct BoundedBody {
    inner: BodySource,
    limit: u64,
    left: u64,
    /// Where its codec sees how far it has come; `None` in memory.
    intake: Option<Rc<Cell<Intake>>>,
    /// Where its request holds a place that may be taken back.
    stall: Option<Stall>,
    /// Bytes that have come already.
    ahead: Bytes,
}

impl BoundedBody {
    /// Of at most `limit` bytes; how far it comes can be seen in `intake`.
    pub(crate) fn new<B>(inner: B, limit: u64, intake: Rc<Cell<Intake>>) -> BoundedBody
    where
        B: Body<Data = Bytes, Error = BodyError> + 'static,
    {
        intake.set(if inner.is_end_stream() { Intake::Done } else { Intake::Open });
        BoundedBody {
            inner: BodySource::Codec(Box::pin(inner)),
            limit,
            left: limit,
            intake: Some(intake),
            stall: None,
            ahead: Bytes::new(),
        }
    }

    /// No body at all.
    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    /// One that has been read already.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::of(BodySource::Memory { left: bytes, whole: None })
    }

    /// One that has been read already, and waits in a file.
    pub(crate) fn kept(part: SpooledBody) -> Self {
        Self::of(BodySource::File(part))
    }

    fn of(inner: BodySource) -> Self {
        Self { inner, limit: 0, left: 0, intake: None, stall: None, ahead: Bytes::new() }
    }
}

/// No body at all, for what is left where a request was taken away.
impl Default for BoundedBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl BoundedBody {
    /// Gives `ahead` before the rest, from which it was taken.
    pub(crate) fn give_first(&mut self, ahead: Bytes) {
        self.ahead = ahead;
    }

    /// The part of the body that is in a file, if one is.
    pub(crate) fn part(&self) -> Option<&SpooledBody> {
        match &self.inner {
            BodySource::File(part) => Some(part),
            BodySource::Memory { .. } | BodySource::Codec(_) => None,
        }
    }

    /// Whether all of it is here.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.inner, BodySource::Memory { .. } | BodySource::File(_))
    }

    /// Keeps all of it, if it is here, so that it can come once more when some of it was used up.
    pub(crate) fn keep(&mut self) {
        if let BodySource::Memory { left, whole } = &mut self.inner {
            *whole = Some(left.clone());
        }
    }

    /// Gives back what was kept of it.
    pub(crate) fn keep_no_longer(&mut self) {
        if let BodySource::Memory { whole, .. } = &mut self.inner {
            *whole = None;
        }
    }

    /// Has it come from its beginning once more. Of one that is in memory and was not kept, that is `unsent`, if all of
    /// it has come.
    pub(crate) fn rewind(&mut self, unsent: Bytes) {
        match &mut self.inner {
            BodySource::Memory { left, whole: Some(whole) } => *left = whole.clone(),
            BodySource::Memory { left, whole: None } if left.is_empty() => *left = unsent,
            BodySource::File(part) => part.rewind(),
            BodySource::Memory { .. } | BodySource::Codec(_) => {}
        }
    }

    /// Has at most so many bytes come, of which none has come yet; whether more are announced.
    pub(crate) fn limit_to(&mut self, limit: u64) -> bool {
        (self.limit, self.left) = (limit, limit);
        let is_too_large = self.size_hint().exact().is_some_and(|length| length > limit);
        if is_too_large {
            self.note(Intake::TooLarge);
        }
        is_too_large
    }

    /// Says in `stall` when the client is waited for, and ends when the place is taken back.
    pub(crate) fn watch(&mut self, stall: Stall) {
        self.stall = Some(stall);
    }

    fn note(&self, intake: Intake) {
        self.intake.iter().for_each(|noted| noted.set(intake));
    }

    /// Whether the place was taken back, while `waits` for the client.
    fn is_given_up(&self, cx: &mut Context<'_>, waits: bool) -> bool {
        let Some(stall) = &self.stall else {
            return false;
        };
        if !waits {
            stall.end();
            return false;
        }
        stall.begin();
        stall.poll_given_up(cx, Side::Body).is_ready()
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.ahead)))));
        }
        let polled = match &mut this.inner {
            BodySource::Memory { left, .. } if left.is_empty() => return Poll::Ready(None),
            BodySource::Memory { left, .. } => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(left)))));
            }
            BodySource::File(part) if part.left() == 0 => return Poll::Ready(None),
            BodySource::File(part) => {
                return Poll::Ready(Some(part.next().map(Frame::data).map_err(BodyError::Lost)));
            }
            BodySource::Codec(inner) => inner.as_mut().poll_frame(cx),
        };
        if this.is_given_up(cx, polled.is_pending()) {
            this.note(Intake::Slow);
            return Poll::Ready(Some(Err(BodyError::Slow)));
        }
        let Some(frame) = ready!(polled) else {
            this.note(Intake::Done);
            return Poll::Ready(None);
        };
        let frame = frame.map_err(|error| match this.intake.as_ref().map(|intake| intake.get()) {
            Some(Intake::Slow) => BodyError::Slow,
            _ => error,
        })?;
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = this.left.checked_sub(length) else {
            this.note(Intake::TooLarge);
            return Poll::Ready(Some(Err(BodyError::TooLarge { limit: this.limit })));
        };
        this.left = left;
        if this.inner.is_end() {
            this.note(Intake::Done);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.inner.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.inner {
            BodySource::Memory { left, .. } => SizeHint::with_exact(left.len() as u64),
            BodySource::File(part) => SizeHint::with_exact(part.left()),
            BodySource::Codec(inner) => inner.size_hint(),
        };
        match rest.exact() {
            Some(length) => SizeHint::with_exact(length + self.ahead.len() as u64),
            None => rest,
        }
    }
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        if let Some(intake) = &self.intake
            && intake.get() == Intake::Open
        {
            intake.set(Intake::Abandoned);
        }
    }
}
