//! WebSocket on a client's connection (RFC 9110 7.8) or on one of its streams (RFC 8441): asked for, granted by who
//! answers, and then passed through unread.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client asks for, and every byte after that,
//! of both sides. Must never: let a connection go on as HTTP after that, or keep one on which nothing moves.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand;
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Extensions, Response, StatusCode};
use request::fields::clean_answer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::head::{RequestHead, Verb};
use crate::http::body::ResponseBody;
use crate::http::response;

/// LIMIT: bytes that are on their way at once in each direction.
const STEP_BYTES: usize = 16 << 10;

const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// RFC 6455 1.3: what a server adds to the key, which shows that it knows what it grants.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The one version of WebSocket (RFC 6455 4.1).
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// That a request asks for WebSocket; goes with the request, as its headers do not.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    key: HeaderValue,
    /// Whether the client sends the key and checks the answer; over HTTP/2 both are for us to do.
    by_client: bool,
    protocols: Vec<HeaderValue>,
    extensions: Vec<HeaderValue>,
}

impl UpgradeRequest {
    /// Of a request over HTTP/1.1 that [`names_websocket`]; the status of the refusal, if its handshake is none.
    pub(crate) fn over_http1(headers: &HeaderMap) -> Result<Self, StatusCode> {
        check_version(headers)?;
        let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
        match (keys.next(), keys.next()) {
            (Some(key), None) if is_key(key.as_bytes()) => Ok(Self::new(key.clone(), true, headers)),
            _ => Err(StatusCode::BAD_REQUEST),
        }
    }

    /// Of an extended CONNECT, whose client neither sends a key nor checks what was made of it (RFC 8441 5).
    pub(crate) fn over_http2(headers: &HeaderMap) -> Result<Self, StatusCode> {
        check_version(headers)?;
        let mut nonce = [0; 16];
        rand::fill(&mut nonce).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let key = HeaderValue::try_from(Base64::encode_string(&nonce));
        Ok(Self::new(key.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?, false, headers))
    }

    fn new(key: HeaderValue, by_client: bool, headers: &HeaderMap) -> Self {
        let all = |name| headers.get_all(name).iter().cloned().collect();
        let (protocols, extensions) =
            (all(header::SEC_WEBSOCKET_PROTOCOL), all(header::SEC_WEBSOCKET_EXTENSIONS));
        Self { key, by_client, protocols, extensions }
    }

    /// RFC 6455 4.1: whether an answer that switches is what the client has asked for.
    ///
    /// SECURITY: what follows such an answer passes no rule. An answer that does not prove that its server speaks
    /// WebSocket could come from any program that is made to say 101.
    pub(crate) fn is_met_by(&self, answer: &HeaderMap) -> bool {
        let text = [self.key.as_bytes(), GUID.as_bytes()].concat();
        let expected = Base64::encode_string(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref());
        let mut connection = words(answer.get_all(header::CONNECTION));
        let mut upgrades = words(answer.get_all(header::UPGRADE));
        let mut accepts = answer.get_all(header::SEC_WEBSOCKET_ACCEPT).iter();
        connection.any(|word| word.eq_ignore_ascii_case(b"upgrade"))
            && upgrades.next().is_some_and(|word| word.eq_ignore_ascii_case(b"websocket"))
            && upgrades.next().is_none()
            && accepts.next().is_some_and(|accept| accept.as_bytes() == expected.as_bytes())
            && accepts.next().is_none()
            && self.offers(answer)
    }

    /// Whether the protocol and the extensions that an answer grants are among those that the client named.
    fn offers(&self, answer: &HeaderMap) -> bool {
        let mut protocols = answer.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let protocol = protocols.next().map(HeaderValue::as_bytes);
        protocols.next().is_none()
            && protocol.is_none_or(|one| words(&self.protocols).any(|offered| offered == one))
            && words(answer.get_all(header::SEC_WEBSOCKET_EXTENSIONS))
                .all(|one| words(&self.extensions).any(|offered| extension(offered) == extension(one)))
    }
}

/// Whether a checked head asks for WebSocket; then its handshake has to be right.
///
/// A request that is no GET, has a body or is of HTTP/1.0 is answered without regard to its `Upgrade` (RFC 9110 7.8).
///
/// SECURITY: WebSocket alone. A server behind the site that was asked for HTTP/2 (`h2c`) would get from the client,
/// unread, what requests it likes, past every rule that is ours.
pub(crate) fn names_websocket(head: &RequestHead<'_>) -> bool {
    head.verb == Verb::Get && head.upgrade.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Notes what a request over HTTP/1.1 that [`names_websocket`] asks for.
///
/// # Errors
/// The status of the refusal, if the handshake is none.
pub(crate) fn take_up(parts: &mut Parts) -> Result<(), StatusCode> {
    let asked = UpgradeRequest::over_http1(&parts.headers)?;
    parts.extensions.insert(asked);
    Ok(())
}

/// RFC 6455 4.4: another version, or none, is no version that we speak.
fn check_version(headers: &HeaderMap) -> Result<(), StatusCode> {
    let mut versions = headers.get_all(header::SEC_WEBSOCKET_VERSION).iter();
    match (versions.next(), versions.next()) {
        (Some(version), None) if *version == VERSION => Ok(()),
        _ => Err(StatusCode::UPGRADE_REQUIRED),
    }
}

/// RFC 6455 4.1: 16 bytes in base64. Which they are says nothing.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==").is_some_and(|digits| digits.len() == 22 && digits.iter().all(is_digit))
}

/// The elements of a list, which may be spread over several lines.
fn words<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> impl Iterator<Item = &'a [u8]> {
    lines.into_iter().flat_map(|line| line.as_bytes().split(|&b| b == b',')).map(<[u8]>::trim_ascii)
}

/// The name of an extension, without its parameters.
fn extension(element: &[u8]) -> &[u8] {
    element.split(|&b| b == b';').next().unwrap_or_default().trim_ascii()
}

/// The answer to a request whose handshake is refused.
pub(crate) fn refusal(status: StatusCode) -> Response<ResponseBody> {
    let mut response = response::error(status);
    if status == StatusCode::UPGRADE_REQUIRED {
        let headers = response.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_VERSION, VERSION);
        headers.insert(header::UPGRADE, WEBSOCKET);
        headers.insert(header::CONNECTION, UPGRADE);
    }
    response
}

/// The upgrade that the request asks for.
pub(crate) fn asked(extensions: &Extensions) -> Option<UpgradeRequest> {
    extensions.get::<UpgradeRequest>().cloned()
}

/// Asks for it in the headers of a request that is passed on.
pub(crate) fn ask(headers: &mut HeaderMap, asked: UpgradeRequest) {
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
    if !asked.by_client {
        headers.insert(header::SEC_WEBSOCKET_KEY, asked.key);
    }
}

/// A value that the owner of a tunnel has dropped when the tunnel ends.
pub(crate) type TunnelGuard = Arc<dyn Any + Send + Sync>;

/// A connection on which the new protocol is spoken.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection and what was read from it; the first of all clones has them.
type TunnelStream = Arc<Mutex<Option<(Box<dyn Duplex>, Bytes)>>>;

/// The other side of a tunnel, as it goes with the answer that opens it.
#[derive(Clone)]
pub(crate) struct OpenTunnel {
    other: TunnelStream,
    /// Held until the end of the tunnel, and never looked at.
    guard: Option<TunnelGuard>,
}

/// Makes an answer that grants what was asked for what the client must see, and one that [`opened`] finds: the new
/// protocol is spoken on `stream`, from which `first` was read.
pub(crate) fn grant<B>(response: &mut Response<B>, stream: impl Duplex + 'static, first: Bytes) {
    let headers = response.headers_mut();
    clean_answer(headers);
    headers.insert(header::CONNECTION, UPGRADE);
    headers.insert(header::UPGRADE, WEBSOCKET);
    // RFC 9110 8.6: such an answer has no length.
    headers.remove(header::CONTENT_LENGTH);
    let other: TunnelStream = Arc::new(Mutex::new(Some((Box::new(stream), first))));
    response.extensions_mut().insert(OpenTunnel { other, guard: None });
}

/// The other side of the tunnel that the answer opens.
pub(crate) fn opened<B>(response: &Response<B>) -> Option<OpenTunnel> {
    response.extensions().get::<OpenTunnel>().cloned()
}

/// Keeps `guard` for as long as the tunnel that the answer opens, if it opens one.
pub(crate) fn keep<B>(response: &mut Response<B>, guard: TunnelGuard) {
    if let Some(opened) = response.extensions_mut().get_mut::<OpenTunnel>() {
        opened.guard = Some(guard);
    }
}

/// Passes bytes in both directions, `preread` first, and counts them, until both sides have ended; an error if one has
/// broken off, or neither has sent anything for `idle`.
pub(crate) async fn tunnel<C>(
    client: C,
    preread: Bytes,
    OpenTunnel { other, guard: _guard }: OpenTunnel,
    idle: Duration,
    count: &Cell<u64>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
{
    let other = other.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (other, first) = other.ok_or(io::ErrorKind::NotConnected)?;
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_other, mut to_other) = tokio::io::split(other);
    let moved = Cell::new(Instant::now());
    let both = async {
        let sending = async {
            to_other.write_all(&preread).await?;
            count.set(count.get() + preread.len() as u64);
            pass(&mut from_client, &mut to_other, &moved, count).await
        };
        let receiving = async {
            to_client.write_all(&first).await?;
            count.set(count.get() + first.len() as u64);
            pass(&mut from_other, &mut to_client, &moved, count).await
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 1.3.
    const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    const ACCEPT: (&str, &str) = ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    const SWITCHES: (&str, &str) = ("connection", "Upgrade");
    const TO: (&str, &str) = ("upgrade", "WebSocket");
    const V13: (&str, &str) = ("sec-websocket-version", "13");

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_handshake_has_one_key_and_the_one_version() {
        let status = |lines: &[_]| {
            UpgradeRequest::over_http1(&map(lines)).map(|_| ()).map_err(|status| status.as_u16())
        };
        assert_eq!(status(&[KEY, V13]), Ok(()));
        assert_eq!(status(&[V13]), Err(400));
        assert_eq!(status(&[KEY, KEY, V13]), Err(400));
        for key in
            ["", "AAAA", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ===", "dGhlIHNhbXBsZSBub25j!Q=="]
        {
            assert_eq!(status(&[("sec-websocket-key", key), V13]), Err(400), "{key}");
        }
        assert_eq!(status(&[KEY]), Err(426));
        assert_eq!(status(&[KEY, V13, V13]), Err(426));
        for version in ["", "8", "1337", "13, 8", "013"] {
            assert_eq!(status(&[KEY, ("sec-websocket-version", version)]), Err(426), "{version}");
        }
    }

    #[test]
    fn an_answer_grants_what_was_asked_for_and_nothing_else() {
        const CHAT: (&str, &str) = ("sec-websocket-protocol", "chat");
        const DEFLATE: (&str, &str) =
            ("sec-websocket-extensions", "permessage-deflate; server_no_context_takeover");
        let plain = UpgradeRequest::over_http1(&map(&[KEY, V13])).unwrap();
        let offers = [
            KEY,
            V13,
            ("sec-websocket-protocol", "other, chat"),
            ("sec-websocket-extensions", "x, permessage-deflate"),
        ];
        let offering = UpgradeRequest::over_http1(&map(&offers)).unwrap();
        let good = [ACCEPT, SWITCHES, TO];
        assert!(plain.is_met_by(&map(&good)) && offering.is_met_by(&map(&good)));
        for missing in 0..3 {
            let mut lines = good.to_vec();
            lines.remove(missing);
            assert!(!plain.is_met_by(&map(&lines)), "{lines:?}");
        }
        for more in [ACCEPT, TO, ("upgrade", "h2c"), CHAT, DEFLATE] {
            assert!(!plain.is_met_by(&map(&[&good[..], &[more]].concat())), "{more:?}");
        }
        assert!(!plain.is_met_by(&map(&[("sec-websocket-accept", "AAAA"), SWITCHES, TO])));
        assert!(offering.is_met_by(&map(&[&good[..], &[CHAT, DEFLATE]].concat())));
        for more in [
            ("sec-websocket-protocol", "CHAT"),
            ("sec-websocket-protocol", "other, chat"),
            ("sec-websocket-extensions", "y"),
        ] {
            assert!(!offering.is_met_by(&map(&[&good[..], &[more]].concat())), "{more:?}");
        }
        assert!(!offering.is_met_by(&map(&[&good[..], &[CHAT, CHAT]].concat())));
    }
}
