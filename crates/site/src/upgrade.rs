//! Another protocol on a client's connection (RFC 9110 7.8), such as WebSocket: asked for, granted by who answers, and
//! then passed through unread.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client asks for, and every byte after that,
//! of both sides. Must never: let a connection go on as HTTP after that, or keep one on which nothing moves.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Extensions, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// LIMIT: bytes that are on their way at once in each direction.
const STEP_BYTES: usize = 16 << 10;

/// LIMIT: how long a server may take from its consent to the first byte of the new protocol: no time at all.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol that a request asks for; goes with the request, as its headers do not.
#[derive(Clone, Debug)]
pub struct Asked(HeaderValue);

impl Asked {
    /// Of a checked head.
    ///
    /// SECURITY: WebSocket alone. A server behind the site that was asked for HTTP/2 (`h2c`) would get from the client,
    /// unread, what requests it likes, past every rule that is ours.
    pub(crate) fn of(head: &crate::head::Head<'_>) -> Option<Self> {
        let asks = head.upgrade.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
        asks.then(|| Self(HeaderValue::from_static("websocket")))
    }
}

/// What the request asks for.
pub(crate) fn asked(extensions: &Extensions) -> Option<Asked> {
    extensions.get::<Asked>().cloned()
}

/// Asks for it in the headers of a request that is passed on.
pub(crate) fn ask(headers: &mut HeaderMap, Asked(protocol): Asked) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// The other side of a tunnel, as it goes with the answer that opens it.
#[derive(Clone)]
pub(crate) struct Opened(OnUpgrade);

/// If the answer grants what was asked for, makes it what the client must see, and one that [`opened`] finds.
pub(crate) fn grant<B>(response: &mut Response<B>, asked: Option<Asked>) {
    let (true, Some(Asked(protocol))) = (response.status() == StatusCode::SWITCHING_PROTOCOLS, asked) else {
        return;
    };
    let Some(other) = response.extensions_mut().remove::<OnUpgrade>() else {
        return;
    };
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
    response.extensions_mut().insert(Opened(other));
}

/// The other side of the tunnel that the answer opens.
pub(crate) fn opened<B>(response: &Response<B>) -> Option<Opened> {
    response.extensions().get::<Opened>().cloned()
}

/// Passes bytes in both directions until both sides have ended or neither has sent any for `idle`; how many those were
/// that the client sent, after `taken`, and that it was sent.
pub(crate) async fn tunnel<C>(client: C, taken: Bytes, Opened(other): Opened, idle: Duration) -> (u64, u64)
where
    C: AsyncRead + AsyncWrite,
{
    let (up, down) = (Cell::new(0), Cell::new(0));
    let Ok(Ok(other)) = tokio::time::timeout(SWITCH_TIMEOUT, other).await else {
        return (0, 0);
    };
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_other, mut to_other) = tokio::io::split(TokioIo::new(other));
    let moved = Cell::new(Instant::now());
    let both = async {
        let sending = async {
            to_other.write_all(&taken).await?;
            up.set(taken.len() as u64);
            pass(&mut from_client, &mut to_other, &moved, &up).await
        };
        let receiving = pass(&mut from_other, &mut to_client, &moved, &down);
        // One that breaks ends both.
        let _ = tokio::try_join!(sending, receiving);
    };
    let silence = async {
        while let Some(left) = idle.checked_sub(moved.get().elapsed()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    };
    tokio::select! {
        () = both => {}
        () = silence => {}
    }
    (up.get(), down.get())
}

async fn pass<R, W>(from: &mut R, to: &mut W, moved: &Cell<Instant>, count: &Cell<u64>) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; STEP_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        moved.set(Instant::now());
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        moved.set(Instant::now());
        count.set(count.get() + length as u64);
    }
}
