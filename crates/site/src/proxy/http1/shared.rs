//! A connection whose backend answers before it has all of the request: a task writes the rest, as the body of the
//! response is read at its client's pace, and a client may send all of its body before it reads.
//!
//! Untrusted input: none that this module looks at. Must never: keep a connection before both messages are over.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

use super::keep::Keep;
use super::outgoing::RequestWriter;
use crate::http::body::BoxError;
use crate::proxy::stream::BackendStream;

/// The connection; the rest of the request is not written once this is dropped before the end of the response.
pub(super) struct SharedConnection {
    inner: Rc<RefCell<SharedState>>,
    task: Option<AbortHandle>,
}

struct SharedState {
    stream: Option<BackendStream>,
    writing: Writing,
    /// Where the connection goes when the request is written, once the response is over.
    keep: Option<Keep>,
    /// The task that waits for the response.
    reader: Option<Waker>,
    /// The task.
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Goes,
    Done,
    Failed,
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

impl SharedConnection {
    /// Has the rest of a request written.
    pub fn begin(stream: BackendStream, outgoing: RequestWriter) -> Self {
        let inner = SharedState {
            stream: Some(stream),
            writing: Writing::Goes,
            keep: None,
            reader: None,
            writer: None,
        };
        let inner = Rc::new(RefCell::new(inner));
        let task = tokio::task::spawn_local(write(inner.clone(), outgoing)).abort_handle();
        Self { inner, task: Some(task) }
    }

    /// Has the response read; an error once the rest of the request could not be written.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Context<'_>, &mut BackendStream) -> Poll<Result<T, BoxError>>,
    ) -> Poll<Result<T, BoxError>> {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let (Some(stream), Writing::Goes | Writing::Done) = (&mut inner.stream, inner.writing) else {
            return Poll::Ready(Err("the request could not be sent to its end".into()));
        };
        let polled = read(cx, stream);
        if polled.is_pending() {
            inner.reader = Some(cx.waker().clone());
        }
        polled
    }

    /// The response is over. A connection that would be kept takes the rest of the request; any other ends here.
    pub fn finish(mut self, keep: Option<Keep>) {
        let inner = self.inner.clone();
        let mut inner = inner.borrow_mut();
        let Some(keep) = keep.filter(|_| inner.stream.as_ref().is_some_and(|stream| !stream.is_deaf()))
        else {
            return;
        };
        match inner.writing {
            Writing::Goes => {
                inner.keep = Some(keep);
                self.task = None;
                if let Some(writer) = inner.writer.take() {
                    writer.wake();
                }
            }
            Writing::Done => {
                if let Some(stream) = inner.stream.take() {
                    keep.put(stream);
                }
            }
            Writing::Failed => {}
        }
    }
}

/// Whether a backend whose response is over takes no more: it has closed. One that says more is not to be trusted.
fn has_ended(cx: &mut Context<'_>, stream: &mut BackendStream) -> bool {
    while stream.poll_readable(cx).is_ready() {
        if !stream.is_quiet() {
            return true;
        }
    }
    stream.is_deaf()
}

async fn write(inner: Rc<RefCell<SharedState>>, mut outgoing: RequestWriter) {
    let written = poll_fn(|cx| {
        let inner = &mut *inner.borrow_mut();
        let Some(stream) = &mut inner.stream else { return Poll::Ready(false) };
        let polled = outgoing.poll(cx, stream).map(|written| written.is_ok());
        if inner.keep.is_some() && has_ended(cx, stream) {
            return Poll::Ready(false);
        }
        inner.writer = Some(cx.waker().clone());
        polled
    })
    .await;
    let mut inner = inner.borrow_mut();
    inner.writing = if written { Writing::Done } else { Writing::Failed };
    if let Some(keep) = inner.keep.take()
        && let Some(stream) = inner.stream.take().filter(|_| written)
    {
        keep.put(stream);
    }
    if let Some(reader) = inner.reader.take() {
        reader.wake();
    }
}
