//! Bytes that nobody guesses.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: makes fewer than were asked for.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use supervisor::error::{Error, during};

/// LIMIT: at most 256 bytes, which the kernel gives whole or not at all (getrandom(2)).
pub(crate) fn random<const COUNT: usize>() -> Result<[u8; COUNT], Error> {
    let mut bytes = [0; COUNT];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(got) if got == COUNT => Ok(bytes),
        Ok(_) => Err(during("make a secret")(io::ErrorKind::UnexpectedEof)),
        Err(error) => Err(during("make a secret")(error)),
    }
}
