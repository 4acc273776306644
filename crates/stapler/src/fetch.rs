//! One question to a responder, over HTTP.
//!
//! Runs in: the stapler. Untrusted input: all that the responder sends. Must never: wait longer or take more than is
//! said here, follow a redirect, or tell anybody what an answer was if it is none of OCSP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use names::{LocalNames, Search};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::stapler::STAPLE_MAX;

use crate::responder::{Host, Responder};

/// LIMIT: how long a question may take, with the name's.
const DEADLINE: Duration = Duration::from_secs(10);
/// LIMIT: how long one of several addresses may take to answer.
const CONNECT: Duration = Duration::from_secs(3);
/// LIMIT: addresses that are tried.
const ADDRESSES_MAX: usize = 3;
/// LIMIT: bytes of an answer's head.
const HEAD_MAX: usize = 16 * 1024;

/// Asks, and gives what is answered, unread.
///
/// # Errors
/// Why there is no answer, in words.
pub(crate) async fn fetch(
    names: &LocalNames,
    responder: &Responder,
    question: Vec<u8>,
) -> Result<Bytes, String> {
    let answer = timeout(DEADLINE, ask(names, responder, question)).await;
    answer.unwrap_or_else(|_| Err(format!("it has not answered within {} s", DEADLINE.as_secs())))
}

async fn ask(names: &LocalNames, responder: &Responder, question: Vec<u8>) -> Result<Bytes, String> {
    let addresses = match &responder.host {
        // SECURITY: any address is good here, this machine's as well: it is written in a certificate that the operator
        // has installed, and what is sent there says nothing but which certificate that is.
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = names.look_up(name, Search::Never).await;
            found.map_err(|why| format!("its name {why}"))?.addresses
        }
    };
    let stream = connect(&addresses, responder.port).await?;
    let http = |error: hyper::Error| format!("it does not answer in HTTP: {error}");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(http)?;
    // Both end here, at the latest with the deadline.
    tokio::select! {
        answer = exchange(&mut sender, responder, question) => answer,
        Err(error) = connection => Err(http(error)),
    }
}

async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, String> {
    let mut why = String::new();
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let address = SocketAddr::new(*address, port);
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = format!("{address} cannot be connected to: {error}"),
            Err(_) => why = format!("{address} cannot be connected to within {} s", CONNECT.as_secs()),
        }
    }
    Err(why)
}

async fn exchange(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    responder: &Responder,
    question: Vec<u8>,
) -> Result<Bytes, String> {
    let request = Request::post(&responder.target)
        .header(header::HOST, &responder.authority)
        .header(header::CONTENT_TYPE, "application/ocsp-request")
        .header(header::ACCEPT, "application/ocsp-response")
        .header(header::CONNECTION, "close")
        .body(Full::from(question))
        .map_err(|error| format!("its URL makes no request: {error}"))?;
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| format!("it does not answer in HTTP: {error}"))?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers with HTTP status {}", response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), STAPLE_MAX).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| match error.downcast_ref::<hyper::Error>() {
        Some(error) => format!("its answer breaks off: {error}"),
        None => format!("its answer is longer than {STAPLE_MAX} bytes"),
    })
}
