//! A service for the tests: a WebSocket that says everything again.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo. Sees: what tests send.
//! Never: asks for a privilege.

use std::io;
use std::process::ExitCode;

use base64ct::{Base64, Encoding as _};
use bulkhead_service::http::header::{CONNECTION, UPGRADE};
use bulkhead_service::http::{HeaderName, Response as HttpResponse};
use bulkhead_service::{
    Bytes, Context, Error, Request, Response, ResponseBody, Service, StatusCode, Upgraded,
};
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// RFC 6455 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
/// LIMIT: bytes of a frame.
const FRAME_MAX: u64 = 16 << 20;

struct Socket;

impl Service for Socket {
    async fn init(_: &Context) -> Result<Self, Error> {
        Ok(Self)
    }

    async fn process(&self, mut request: Request) -> Response {
        let key = request.headers().get(KEY).and_then(|key| key.to_str().ok()).map(str::to_owned);
        let (Some(key), Some(upgrade)) = (key, request.upgrade()) else {
            return Response::status_page(StatusCode::UPGRADE_REQUIRED);
        };
        tokio::task::spawn_local(async move {
            if let Ok(both) = upgrade.await {
                let _ = echo(both).await;
            }
        });
        accept(&key)
    }
}

fn accept(key: &str) -> Response {
    let digest = Base64::encode_string(&Sha1::digest(format!("{key}{GUID}")));
    let bodiless = HttpResponse::new(ResponseBody::from(Bytes::new()));
    Response::from(bodiless)
        .with_status(StatusCode::SWITCHING_PROTOCOLS)
        .with_header(CONNECTION, "upgrade")
        .with_header(UPGRADE, "websocket")
        .with_header(ACCEPT, &digest)
}

/// Sends each frame back, unmasked, until the one that closes (RFC 6455 5.2).
async fn echo(mut both: Upgraded) -> io::Result<()> {
    loop {
        let (first, second) = (both.read_u8().await?, both.read_u8().await?);
        let length = match second & 0x7f {
            126 => both.read_u16().await?.into(),
            127 => both.read_u64().await?,
            short => u64::from(short),
        };
        if second & 0x80 == 0 || length > FRAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut mask = [0; 4];
        both.read_exact(&mut mask).await?;
        let mut content = vec![0; length as usize];
        both.read_exact(&mut content).await?;
        content.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        let (ping, close) = (first & 0x0f == 0x09, first & 0x0f == 0x08);
        both.write_u8(if ping { first + 1 } else { first }).await?;
        match content.len() {
            short @ 0..126 => both.write_u8(short as u8).await?,
            middle @ 126..0x1_0000 => {
                both.write_u8(126).await?;
                both.write_u16(middle as u16).await?;
            }
            long => {
                both.write_u8(127).await?;
                both.write_u64(long as u64).await?;
            }
        }
        both.write_all(&content).await?;
        both.flush().await?;
        if close {
            return both.shutdown().await;
        }
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Socket>()
}
