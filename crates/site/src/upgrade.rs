//! WebSocket on a client's connection (RFC 9110 7.8) or on one of its streams (RFC 8441): asked for, granted by who
//! answers, and then passed through unread.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client asks for, and every byte after that,
//! of both sides. Must never: let a connection go on as HTTP after that, or keep one on which nothing moves.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand;
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::turns::Turn;

/// LIMIT: bytes that are on their way at once in each direction.
const STEP_BYTES: usize = 16 << 10;

/// LIMIT: how long a server may take from its consent to the first byte of the new protocol: no time at all.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// RFC 6455 1.3: what a server adds to the key, which shows that it knows what it grants.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// That a request asks for WebSocket; goes with the request, as its headers do not.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `Sec-WebSocket-Key`, where it is for us to send it; otherwise the client sends it, and checks the answer.
    key: Option<HeaderValue>,
}

impl Asked {
    /// Of a checked head.
    ///
    /// SECURITY: WebSocket alone. A server behind the site that was asked for HTTP/2 (`h2c`) would get from the client,
    /// unread, what requests it likes, past every rule that is ours.
    pub(crate) fn of(head: &crate::head::Head<'_>) -> Option<Self> {
        let asks = head.upgrade.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
        asks.then_some(Self { key: None })
    }

    /// For a client that neither sends a key nor checks what was made of it (RFC 8441 5); `None` without random bytes.
    pub(crate) fn with_key() -> Option<Self> {
        let mut nonce = [0; 16];
        rand::fill(&mut nonce).ok()?;
        let key = HeaderValue::try_from(Base64::encode_string(&nonce)).ok()?;
        Some(Self { key: Some(key) })
    }

    /// RFC 6455 4.1: whether an answer that switches is what the client, or we in its place, have asked for.
    pub(crate) fn is_met_by(&self, answer: &HeaderMap) -> bool {
        let Some(key) = &self.key else {
            return true;
        };
        let says = |name: HeaderName, word: &[u8]| {
            let mut words =
                answer.get_all(name).iter().flat_map(|line| line.as_bytes().split(|&b| b == b','));
            words.any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
        };
        let text = [key.as_bytes(), GUID.as_bytes()].concat();
        let expected = Base64::encode_string(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref());
        let accepts: Vec<&[u8]> =
            answer.get_all(header::SEC_WEBSOCKET_ACCEPT).iter().map(HeaderValue::as_bytes).collect();
        says(header::CONNECTION, b"upgrade")
            && says(header::UPGRADE, b"websocket")
            && matches!(accepts[..], [accept] if accept == expected.as_bytes())
    }
}

/// What the request asks for.
pub(crate) fn asked(extensions: &Extensions) -> Option<Asked> {
    extensions.get::<Asked>().cloned()
}

/// Asks for it in the headers of a request that is passed on.
pub(crate) fn ask(headers: &mut HeaderMap, asked: Asked) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
    if let Some(key) = asked.key {
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
    }
}

/// The other side of a tunnel, as it goes with the answer that opens it.
#[derive(Clone)]
pub(crate) struct Opened {
    other: OnUpgrade,
    /// That of the request, until the end of the tunnel.
    turn: Option<Turn>,
}

/// Makes an answer that grants what was asked for what the client must see, and one that [`opened`] finds.
pub(crate) fn grant<B>(response: &mut Response<B>) {
    let Some(other) = response.extensions_mut().remove::<OnUpgrade>() else {
        return;
    };
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
    response.extensions_mut().insert(Opened { other, turn: None });
}

/// The other side of the tunnel that the answer opens.
pub(crate) fn opened<B>(response: &Response<B>) -> Option<Opened> {
    response.extensions().get::<Opened>().cloned()
}

/// Keeps `turn` for as long as the tunnel that the answer opens, if it opens one.
pub(crate) fn keep<B>(response: &mut Response<B>, turn: &Turn) {
    if let Some(opened) = response.extensions_mut().get_mut::<Opened>() {
        opened.turn = Some(turn.clone());
    }
}

/// Passes bytes in both directions, `taken` first, and counts them, until both sides have ended; an error if one has
/// broken off, or neither has sent anything for `idle`.
pub(crate) async fn tunnel<C>(
    client: C,
    taken: Bytes,
    Opened { other, turn: _turn }: Opened,
    idle: Duration,
    count: &Cell<u64>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
{
    let other = tokio::time::timeout(SWITCH_TIMEOUT, other).await?.map_err(io::Error::other)?;
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_other, mut to_other) = tokio::io::split(TokioIo::new(other));
    let moved = Cell::new(Instant::now());
    let both = async {
        let sending = async {
            to_other.write_all(&taken).await?;
            count.set(count.get() + taken.len() as u64);
            pass(&mut from_client, &mut to_other, &moved, count).await
        };
        let receiving = pass(&mut from_other, &mut to_client, &moved, count);
        // One that breaks ends both.
        tokio::try_join!(sending, receiving).map(|_| ())
    };
    let silence = async {
        while let Some(left) = idle.checked_sub(moved.get().elapsed()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    };
    tokio::select! {
        ended = both => ended,
        () = silence => Err(io::ErrorKind::TimedOut.into()),
    }
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
