//! The limits that a worker states to a client of HTTP/2, before the client has sent anything.
#![allow(clippy::unwrap_used)]

mod common;

use common::Server;
use common::h2c::{Raw, SETTINGS, WINDOW_UPDATE};

/// RFC 9113 6.5.2.
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// RFC 9113 6.9.2: the window of a connection that nobody has changed.
const WINDOW: u32 = 65_535;

/// The numbers of docs/internals/limits.md.
#[test]
fn windows_and_streams_have_their_limits_from_the_first_frame() {
    let server = Server::start();
    let mut peer = Raw::connect(&server);
    let settings = peer.wait(SETTINGS, 0).unwrap();
    let value = |name: u16| {
        let found = settings.payload.chunks(6).find(|setting| setting[..2] == name.to_be_bytes());
        u32::from_be_bytes(found.unwrap()[2..].try_into().unwrap())
    };
    assert_eq!(value(MAX_CONCURRENT_STREAMS), 128);
    assert_eq!(value(INITIAL_WINDOW_SIZE), 64 << 10, "of one stream");
    let more = peer.wait(WINDOW_UPDATE, 0).unwrap().number();
    assert_eq!(WINDOW + more, 256 << 10, "of the connection");
}
