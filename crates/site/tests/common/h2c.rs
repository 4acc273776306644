//! A client of HTTP/2 that sends whatever frames a test makes up, in plaintext.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Server;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const PROTOCOL_ERROR: u32 = 1;
pub const CANCEL: u32 = 8;
pub const CALM: u32 = 11;

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field, neither indexed nor compressed.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    let mut bytes = vec![0, name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes.push(value.len() as u8);
    bytes.extend(value.as_bytes());
    bytes
}

/// The fields of a request.
pub fn block(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in [(":method", method), (":scheme", "http"), (":path", path)] {
        bytes.extend(field(name, value));
    }
    if !more.iter().any(|(name, _)| *name == ":authority") {
        bytes.extend(field(":authority", "a.example"));
    }
    more.iter().for_each(|(name, value)| bytes.extend(field(name, value)));
    bytes
}

pub struct Raw<S = TcpStream> {
    pub stream: S,
    read: Vec<u8>,
}

impl Raw {
    pub fn connect(server: &Server) -> Raw {
        let stream = server.connect().stream;
        stream.set_nodelay(true).unwrap();
        Raw::over(stream, &[])
    }
}

impl<S: Read + Write> Raw<S> {
    pub fn over(stream: S, settings: &[(u16, u32)]) -> Raw<S> {
        let mut raw = Raw { stream, read: Vec::new() };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &payload));
        raw.send(&bytes);
        raw
    }

    /// Whether it could be sent.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    pub fn request(&mut self, stream: u32, method: &str, path: &str, more: &[(&str, &str)]) {
        let flags = END_HEADERS | if method == "POST" { 0 } else { END_STREAM };
        self.send(&frame(HEADERS, flags, stream, &block(method, path, more)));
    }

    /// The next frame; nothing at the end.
    pub fn next(&mut self) -> Option<Frame> {
        while self.read.len() < 9 || self.read.len() < 9 + self.length() {
            let mut buffer = [0; 65536];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.read.extend(&buffer[..count]),
            }
        }
        let length = self.length();
        let head: Vec<u8> = self.read.drain(..9).collect();
        let payload = self.read.drain(..length).collect();
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn length(&self) -> usize {
        u32::from_be_bytes([0, self.read[0], self.read[1], self.read[2]]) as usize
    }

    /// The next frame of this kind on this stream.
    pub fn wait(&mut self, kind: u8, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind && frame.stream == stream {
                return Some(frame);
            }
        }
    }

    /// The reason of the last GOAWAY before the connection ended.
    pub fn ended(&mut self) -> Option<u32> {
        let mut reason = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                reason = Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        reason
    }
}
