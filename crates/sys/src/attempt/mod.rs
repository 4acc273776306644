//! System calls made on purpose to be refused: what `probe` tries from inside a jail.
//!
//! Runs in: the probe and the example `breakout`, with the privilege of whoever is probed. Sees no untrusted
//! bytes. Never: hands the kernel an address that is not its own, and never does lasting harm where a call is let
//! through: the table in `calls` fixes each argument that could.

pub mod calls;
pub mod child;
pub mod domain;
pub mod memory;
pub mod odd;
pub mod sweep;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use rustix::io::Errno;

/// What one argument of a [`TriedCall`] may be.
#[derive(Debug)]
pub enum ArgumentKind {
    /// A number; the kernel never takes it for an address.
    Int,
    /// One of these numbers, as others would do harm or mean an address.
    Only(&'static [i64]),
    /// An address: null, or memory that lives as long as the call.
    Buffer,
    /// The length of a buffer of the same call.
    Len,
}

/// A system call and the kinds of its arguments.
#[derive(Debug)]
pub struct TriedCall {
    /// The kernel's name of it.
    pub name: &'static str,
    number: i64,
    shape: &'static [ArgumentKind],
}

/// An argument of a [`TriedCall`].
#[derive(Debug)]
pub enum Arg<'a> {
    /// A number.
    Int(i64),
    /// The address 0.
    Null,
    /// A buffer that begins with these bytes.
    Bytes(&'a [u8]),
    /// A buffer that begins with these bytes and a zero.
    Text(&'a str),
    /// A buffer that begins with these bytes, and is copied back.
    Out(&'a mut [u8]),
    /// The length of the argument with this number, counted from 0.
    Len(usize),
}

/// Room behind every buffer.
///
/// LIMIT: the largest structure that a call of the table reads or writes without being told a length is
/// `struct statfs` or `perf_event_attr`, well below a page.
const ROOM: usize = 4096;
const WORD: usize = size_of::<u64>();

impl Arg<'_> {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Arg::Bytes(bytes) => Some(bytes),
            Arg::Text(text) => Some(text.as_bytes()),
            Arg::Out(bytes) => Some(bytes),
            Arg::Int(_) | Arg::Null | Arg::Len(_) => None,
        }
    }

    /// A copy with [`ROOM`] behind it, aligned for any structure.
    fn scratch(&self) -> Option<Vec<u64>> {
        let bytes = self.bytes()?;
        let mut words = vec![0; (bytes.len() + ROOM).div_ceil(WORD)];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(WORD)) {
            let mut part = [0; WORD];
            part[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(part);
        }
        Some(words)
    }
}

impl TriedCall {
    pub(crate) const fn new(name: &'static str, number: i64, shape: &'static [ArgumentKind]) -> Self {
        Self { name, number, shape }
    }

    /// Makes the call; a descriptor that it makes is closed again.
    ///
    /// # Errors
    /// What the kernel said.
    ///
    /// # Panics
    /// If `args` are not what the call takes: an attempt that was never made must not look like one refused.
    pub fn make(&self, args: &mut [Arg<'_>]) -> Result<i64, Errno> {
        if calls::MAKE_DESCRIPTORS.contains(&self.number) {
            return self.open(args).map(|descriptor| descriptor.as_raw_fd().into());
        }
        self.make_raw(args)
    }

    /// Makes a call that makes a descriptor.
    ///
    /// # Errors
    /// What the kernel said.
    ///
    /// # Panics
    /// As [`Self::make`], and for a call that makes none.
    pub fn open(&self, args: &mut [Arg<'_>]) -> Result<OwnedFd, Errno> {
        assert!(calls::MAKE_DESCRIPTORS.contains(&self.number), "bug: {} makes no descriptor", self.name);
        let number = self.make_raw(args)?;
        // SAFETY: the call has just made this descriptor, so nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
    }

    fn make_raw(&self, args: &mut [Arg<'_>]) -> Result<i64, Errno> {
        assert_eq!(args.len(), self.shape.len(), "bug: {} takes another number of arguments", self.name);
        let mut scratch: Vec<Option<Vec<u64>>> = args.iter().map(Arg::scratch).collect();
        let mut raw = [0_i64; 6];
        for (at, (kind, arg)) in self.shape.iter().zip(args.iter()).enumerate() {
            raw[at] = match (kind, arg) {
                (ArgumentKind::Int, Arg::Int(value)) => *value,
                (ArgumentKind::Only(values), Arg::Int(value)) if values.contains(value) => *value,
                (ArgumentKind::Buffer, Arg::Null) => 0,
                (ArgumentKind::Buffer, Arg::Bytes(_) | Arg::Text(_) | Arg::Out(_)) => {
                    scratch[at].as_mut().map_or(0, |words| words.as_mut_ptr() as i64)
                }
                (ArgumentKind::Len, Arg::Len(of)) => {
                    args.get(*of).and_then(Arg::bytes).map_or(0, <[u8]>::len) as i64
                }
                _ => panic!("bug: {} must not get {arg:?} at {at}", self.name),
            };
        }
        // SAFETY: `shape` is that of the kernel's prototype of `number` (the table in `calls`, which nobody else
        // can add to): addresses are passed only where it takes them, and are null or those of `scratch`, which
        // outlives the call and has ROOM for any structure behind what the caller gave; a length is that of a buffer.
        let result = unsafe { libc::syscall(self.number, raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]) };
        let result = checked(result);
        for (arg, words) in args.iter_mut().zip(scratch) {
            if let (Arg::Out(bytes), Some(words)) = (arg, words) {
                for (chunk, word) in bytes.chunks_mut(WORD).zip(words) {
                    chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
                }
            }
        }
        result
    }
}

/// The result of `libc::syscall`, which says -1 and leaves the reason in `errno`.
fn checked(result: i64) -> Result<i64, Errno> {
    if result != -1 {
        return Ok(result);
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    // A raw call may return -1 without an error (getpriority does not, as it adds 20).
    if errno == 0 { Ok(-1) } else { Err(Errno::from_raw_os_error(errno)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_must_fit_the_shape() {
        let other = || calls::KILL.make(&mut [Arg::Int(1), Arg::Int(9)]);
        assert!(std::panic::catch_unwind(other).is_err());
        assert!(std::panic::catch_unwind(|| calls::KILL.make(&mut [Arg::Int(1)])).is_err());
        let own = i64::from(std::process::id());
        assert_eq!(calls::KILL.make(&mut [Arg::Int(own), Arg::Int(0)]), Ok(0));
    }

    #[test]
    fn buffers_go_in_and_come_back() {
        let mut limit = [0; 16];
        let nofile = Arg::Int(libc::RLIMIT_NOFILE.into());
        calls::PRLIMIT64.make(&mut [Arg::Int(0), nofile, Arg::Int(0), Arg::Out(&mut limit)]).unwrap();
        assert_ne!(limit, [0; 16]);
        let missing = calls::ACCT.make(&mut [Arg::Text("/no/such/file")]);
        assert!(missing.is_err());
    }
}
