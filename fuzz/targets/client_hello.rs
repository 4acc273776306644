//! The first message of a TLS connection (`request::hello`), as a gate looks at it.
//!
//! What is whole stays so, with the same name, whatever follows; and is partial until its last byte.

use request::hello::{CheckedHello, check};

pub fn fuzz(data: &[u8]) {
    let CheckedHello::Whole(hello) = check(data) else {
        return;
    };
    assert!(hello.name().len() <= 255 && !hello.name().iter().any(u8::is_ascii_uppercase));
    let mut shortest = data.len();
    for end in (0..data.len()).rev() {
        match check(&data[..end]) {
            CheckedHello::Whole(again) => {
                assert_eq!((again.name(), again.http2), (hello.name(), hello.http2));
                assert_eq!(shortest, end + 1, "whole, then not, then whole");
                shortest = end;
            }
            CheckedHello::Partial(_) => {}
            CheckedHello::Foreign | CheckedHello::Malformed => panic!("the beginning of what is whole is refused"),
        }
    }
}
