//! A connected socket that the event loop watches for what comes, and for room only once there was none.
//!
//! Runs in: a site's worker and a service's, on either end of a pair; site workers and data proxies, on connections to
//! servers. Sees: the bytes of both. Never: blocks.
//!
//! A reader of a Unix socket makes room for the other end, and the kernel wakes the process that watches that end for
//! room: with every request and every response a process would be woken for nothing, and take the processor from the
//! reader. On a new connection by TCP, the event loop would have to say that there is room before anything was written.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::channel::watch_for;

/// See the file's head.
#[derive(Debug)]
pub struct Pair {
    /// `None` once it could not be watched any more.
    socket: Option<AsyncFd<OwnedFd>>,
    asks_for_room: bool,
    /// The task that waits for bytes: the event loop forgets a waiting task when the socket is watched anew.
    reader: Option<Waker>,
}

impl Pair {
    /// Takes over a connected socket; must be called inside the runtime. The socket may be one that blocks: each call
    /// asks not to be.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = Some(watch_for(socket, Interest::READABLE)?);
        Ok(Self { socket, asks_for_room: false, reader: None })
    }

    /// The socket, for who sets an option of it.
    ///
    /// # Errors
    /// It could not be watched any more.
    pub(crate) fn socket(&self) -> io::Result<&AsyncFd<OwnedFd>> {
        self.socket.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Waits for something to read, or the end.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.socket()?.poll_read_ready(cx).map_ok(drop);
        if polled.is_pending() {
            self.note_reader(cx);
        }
        polled
    }

    fn note_reader(&mut self, cx: &Context<'_>) {
        match &mut self.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Reads what is there, as far as the event loop has heard of it.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is; otherwise what the kernel says.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket()?.try_io(Interest::READABLE, |socket| Ok(recv(socket, bytes, RecvFlags::DONTWAIT)?.0))
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise what the kernel says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.socket()?.get_ref(), &[IoSlice::new(bytes)])?)
    }

    /// Has the socket watched for room as well, from now on.
    fn ask_for_room(&mut self) -> io::Result<()> {
        let socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?.into_inner();
        self.socket = Some(watch_for(socket, Interest::READABLE | Interest::WRITABLE)?);
        self.asks_for_room = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }
}

fn send(socket: &OwnedFd, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            // The connection comes about with the first bytes, and has taken none of them.
            Err(Errno::INPROGRESS) => return Err(Errno::AGAIN),
            sent => return sent,
        }
    }
}

impl AsyncRead for Pair {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let Poll::Ready(ready) = this.socket()?.poll_read_ready(cx) else {
                this.note_reader(cx);
                return Poll::Pending;
            };
            let mut ready = ready?;
            let room = buffer.initialize_unfilled();
            let length = room.len();
            match recv(ready.get_inner(), room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
                Ok((count, _)) => {
                    // A read that does not fill its buffer has taken all that was there.
                    if (1..length).contains(&count) {
                        ready.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Pair {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.asks_for_room {
            match send(this.socket()?.get_ref(), parts) {
                Err(Errno::AGAIN) => this.ask_for_room()?,
                sent => return Poll::Ready(Ok(sent?)),
            }
        }
        loop {
            let mut ready = ready!(this.socket()?.poll_write_ready(cx))?;
            match send(ready.get_inner(), parts) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                sent => return Poll::Ready(Ok(sent?)),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.socket()?.get_ref(), Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Both ends block whoever does not ask them not to.
    fn pair() -> (Pair, Pair) {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        (Pair::new(one.into()).unwrap(), Pair::new(other.into()).unwrap())
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(std::time::Duration::from_secs(10), test).await.unwrap() })
    }

    #[derive(Default)]
    struct WakeCounter(AtomicU32);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn more_than_there_is_room_for_arrives_in_both_directions_at_once() {
        run(async {
            let (one, other) = pair();
            let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number * 31 % 251) as u8).collect();
            let pass = async |end: Pair| {
                let (mut reader, mut writer) = tokio::io::split(end);
                let mut came = Vec::new();
                let sending = async {
                    writer.write_all(&bytes).await.unwrap();
                    writer.shutdown().await.unwrap();
                };
                let (_, read) = tokio::join!(sending, reader.read_to_end(&mut came));
                read.unwrap();
                came
            };
            let (one, other) = tokio::join!(pass(one), pass(other));
            assert!(one == bytes && other == bytes);
        });
    }

    #[test]
    fn who_reads_is_woken_although_the_socket_is_watched_anew() {
        run(async {
            let (mut one, mut other) = pair();
            let reader = Arc::new(WakeCounter::default());
            let waker = Waker::from(reader.clone());
            assert!(one.poll_read_ready(&mut Context::from_waker(&waker)).is_pending());
            let large = vec![0; 1 << 20];
            while poll_fn(|cx| Poll::Ready(Pin::new(&mut one).poll_write(cx, &large))).await.is_ready() {}
            assert!(one.asks_for_room && reader.0.load(Ordering::Relaxed) == 1);
            other.write_all(b"x").await.unwrap();
            assert_eq!(one.read_u8().await.unwrap(), b'x');
        });
    }

    #[test]
    fn what_was_read_wakes_nobody_at_the_other_end() {
        run(async {
            let (mut one, mut other) = pair();
            let waiting = Arc::new(WakeCounter::default());
            let waker = Waker::from(waiting.clone());
            assert!(one.poll_read_ready(&mut Context::from_waker(&waker)).is_pending());
            one.write_all(b"x").await.unwrap();
            assert_eq!(other.read_u8().await.unwrap(), b'x');
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            assert_eq!(waiting.0.load(Ordering::Relaxed), 0);
            let error = one.try_read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            drop(other);
            poll_fn(|cx| one.poll_read_ready(cx)).await.unwrap();
            assert_eq!(one.try_read(&mut [0]).unwrap(), 0);
        });
    }
}
