//! Responses of HTTP/1 as the site worker writes them: however they are made and sent, a client reads the same ones
//! again.

// The modules need nothing else of the site worker, which is large.
#[allow(dead_code)]
#[path = "../../crates/site/src/http1/outgoing.rs"]
mod outgoing;
#[allow(dead_code)]
#[path = "../../crates/site/src/http1/response.rs"]
mod response;
#[path = "../../crates/site/src/http1/roundtrip.rs"]
mod roundtrip;

pub fn fuzz(data: &[u8]) {
    roundtrip::check(data);
}
