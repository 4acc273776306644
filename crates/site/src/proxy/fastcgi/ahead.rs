//! Reads an answer ahead of its client, so that a process of the server is free as soon as it has answered: a slow
//! client would otherwise hold it for as long as it likes, and php-fpm has few.
//!
//! Untrusted input: none that it looks at. Must never: hold more than its limits, or read on for a client that has
//! gone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::http::body::BoxError;

/// LIMIT: bytes that are read ahead of one client: most pages, and about what nginx holds without a file.
const ANSWER_BYTES: usize = 64 << 10;
/// LIMIT: bytes that are read ahead of all clients of one target; beyond that, an answer is read as its client takes
/// it.
const TARGET_BYTES: usize = 8 << 20;

/// How much is read ahead for a target.
pub(super) type BufferedBytes = Rc<Cell<usize>>;

/// The pieces that were read, and the tasks that wait for them.
struct Buffer {
    pieces: VecDeque<Result<Bytes, BoxError>>,
    bytes: usize,
    ended: bool,
    all: BufferedBytes,
    /// The client, which waits for a piece.
    client: Option<Waker>,
    /// The task that reads, which waits for room.
    task: Option<Waker>,
}

impl Buffer {
    fn has_room(&self) -> bool {
        self.bytes == 0 || (self.bytes < ANSWER_BYTES && self.all.get() < TARGET_BYTES)
    }

    fn hold(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.all.set(self.all.get() + bytes);
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.all.set(self.all.get() - bytes);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// A body that is read ahead; reading ends when this is dropped.
pub(super) struct Ahead {
    buffer: Rc<RefCell<Buffer>>,
    task: JoinHandle<()>,
    left: Option<u64>,
}

impl Ahead {
    /// Begins to read `body`.
    pub fn of<B>(body: B, all: BufferedBytes) -> Self
    where
        B: Body<Data = Bytes, Error = BoxError> + Unpin + 'static,
    {
        let left = body.size_hint().exact();
        let (pieces, client, task) = (VecDeque::new(), None, None);
        let buffer = Buffer { pieces, bytes: 0, ended: false, all, client, task };
        let buffer = Rc::new(RefCell::new(buffer));
        let task = tokio::task::spawn_local(read(body, buffer.clone()));
        Self { buffer, task, left }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read<B>(mut body: B, buffer: Rc<RefCell<Buffer>>)
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    loop {
        poll_fn(|cx| {
            let mut buffer = buffer.borrow_mut();
            if buffer.has_room() {
                return Poll::Ready(());
            }
            buffer.task = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let mut buffer = buffer.borrow_mut();
        let is_over = !matches!(frame, Some(Ok(_)));
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(piece))) => {
                buffer.hold(piece.len());
                buffer.pieces.push_back(Ok(piece));
            }
            // FastCGI has no trailers.
            Some(Ok(Err(_))) | None => {}
            Some(Err(error)) => buffer.pieces.push_back(Err(error)),
        }
        buffer.ended = is_over;
        if let Some(client) = buffer.client.take() {
            client.wake();
        }
        if is_over {
            return;
        }
    }
}

impl Body for Ahead {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut buffer = this.buffer.borrow_mut();
        let Some(piece) = buffer.pieces.pop_front() else {
            if buffer.ended {
                return Poll::Ready(None);
            }
            buffer.client = Some(cx.waker().clone());
            return Poll::Pending;
        };
        if let Ok(piece) = &piece {
            buffer.give_back(piece.len());
            this.left = this.left.map(|left| left.saturating_sub(piece.len() as u64));
        }
        if let Some(task) = buffer.task.take() {
            task.wake();
        }
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    /// A body of pieces of 16 KiB, which counts how many were read.
    fn pieces(
        count: usize,
    ) -> (impl Body<Data = Bytes, Error = BoxError> + Unpin + 'static, Rc<Cell<usize>>) {
        let read = Rc::new(Cell::new(0));
        let told = read.clone();
        let next = move || {
            told.set(told.get() + 1);
            Ok(Frame::data(Bytes::from(vec![b'x'; 16 << 10])))
        };
        let stream = tokio_stream(std::iter::repeat_with(next).take(count));
        (StreamBody::new(stream), read)
    }

    fn tokio_stream<T: Unpin>(
        items: impl Iterator<Item = T> + Unpin,
    ) -> impl futures_util::Stream<Item = T> + Unpin {
        struct Items<I>(I);
        impl<I: Iterator + Unpin> futures_util::Stream for Items<I> {
            type Item = I::Item;
            fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
                Poll::Ready(self.0.next())
            }
        }
        Items(items)
    }

    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn a_short_answer_is_read_whole_and_a_long_one_as_far_as_there_is_room() {
        run(async {
            let all = BufferedBytes::default();
            for (count, ahead) in [(2, 2), (100, 4)] {
                let (body, read) = pieces(count);
                let body = Ahead::of(body, all.clone());
                settle().await;
                assert_eq!((read.get(), all.get()), (ahead, ahead * (16 << 10)));
                assert_eq!(body.collect().await.unwrap().to_bytes().len(), count * (16 << 10));
                assert_eq!((read.get(), all.get()), (count, 0));
            }
        });
    }

    #[test]
    fn all_together_have_a_limit_and_who_has_gone_holds_nothing() {
        run(async {
            let all = BufferedBytes::default();
            let bodies: Vec<_> = (0..200).map(|_| Ahead::of(pieces(100).0, all.clone())).collect();
            settle().await;
            // Each has read one piece at the least: without that it would have nothing to say.
            assert!((TARGET_BYTES..TARGET_BYTES + 200 * (16 << 10)).contains(&all.get()), "{}", all.get());
            drop(bodies);
            settle().await;
            assert_eq!(all.get(), 0);
        });
    }
}
