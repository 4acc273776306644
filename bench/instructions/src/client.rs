//! The client: makes one request again and again, on one connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::warm::WarmUp;

/// What a request is sent over.
#[derive(Clone, Debug)]
pub enum Over {
    /// HTTP/1.1.
    Plain,
    /// HTTP/1.1 under TLS.
    Tls(Arc<ClientConfig>),
    /// HTTP/2 in plaintext, with prior knowledge.
    Http2,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its method.
    pub method: &'static str,
    /// Its path.
    pub path: &'static str,
    /// More lines of the head, each with its end; not over HTTP/2.
    pub lines: &'static str,
    /// Its body; not over HTTP/2.
    pub body: &'static str,
    /// The status that it is answered with.
    pub status: u16,
}

/// A GET that is answered with 200.
pub const fn get(path: &'static str) -> Request {
    Request { method: "GET", path, lines: "", body: "", status: 200 }
}

/// Makes `request` `count` times on `stream`, one after the other, once that is warm.
///
/// # Panics
/// If an answer has another status, or if there is none.
pub fn ask(stream: TcpStream, over: Over, request: &Request, count: u32, warm: WarmUp) {
    stream.set_nodelay(true).unwrap();
    match over {
        Over::Plain => ask_http1(stream, request, count, warm),
        Over::Tls(config) => {
            let client = ClientConnection::new(config, ServerName::try_from("a.example").unwrap()).unwrap();
            ask_http1(StreamOwned::new(client, stream), request, count, warm);
        }
        Over::Http2 => ask_http2(stream, request, count, warm),
    }
}

fn ask_http1(mut stream: impl Read + Write, request: &Request, count: u32, warm: WarmUp) {
    let Request { method, path, lines, body, status } = request;
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a client\r\n{lines}{length}\r\n{body}"
    );
    let begins = format!("HTTP/1.1 {status}");
    let (is_head, mut buffer) = (*method == "HEAD", vec![0; 65536]);
    warm.then(count, || {
        stream.write_all(text.as_bytes()).unwrap();
        let mut read = 0;
        while !is_whole(&buffer[..read], is_head) {
            let more = stream.read(&mut buffer[read..]).unwrap();
            assert!(more > 0, "ended in {:?}", String::from_utf8_lossy(&buffer[..read]));
            read += more;
        }
        assert!(buffer.starts_with(begins.as_bytes()), "{}", String::from_utf8_lossy(&buffer[..read]));
    });
}

/// Whether `read` is a whole response, which has a length.
fn is_whole(read: &[u8], is_head: bool) -> bool {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = std::str::from_utf8(&read[..end]).unwrap();
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value);
    let length = if is_head { 0 } else { length.map_or(0, |length| length.parse().unwrap()) };
    read.len() == end + 4 + length
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// RFC 9113, 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

fn ask_http2(mut stream: TcpStream, request: &Request, count: u32, warm: WarmUp) {
    // RFC 7541: GET, http and the authority by their places in the static table, as literals where there is a value.
    let mut block = vec![0x82, 0x86, 0x04, request.path.len() as u8];
    block.extend(request.path.as_bytes());
    block.extend([0x01, "a.example".len() as u8]);
    block.extend(b"a.example");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    let mut number = 1;
    warm.then(count, || {
        stream.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, number, &block)).unwrap();
        while !ends(&mut stream) {}
        number += 2;
    });
}

/// Reads a frame; whether it ends a stream.
fn ends(stream: &mut TcpStream) -> bool {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).unwrap();
    // 200 has a place in the static table.
    assert!(head[3] != HEADERS || payload[0] == 0x88, "{payload:?}");
    matches!(head[3], HEADERS | DATA) && head[4] & END_STREAM != 0
}
