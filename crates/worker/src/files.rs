//! Small files that the launcher has opened for this process.
//!
//! Sees: files of the operator's. Never: takes a part for the whole.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Reads a file from its beginning, wherever those who hold the same description of it have come to.
///
/// # Errors
/// It cannot be read, or is longer than `bytes_max`.
pub fn read(file: &OwnedFd, bytes_max: usize) -> Result<Vec<u8>, String> {
    let unread = |error: std::io::Error| format!("it cannot be read: {error}");
    let file = File::from(file.try_clone().map_err(unread)?);
    let (mut bytes, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        match file.read_at(&mut piece, bytes.len() as u64).map_err(unread)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
        if bytes.len() > bytes_max {
            return Err(format!("it is longer than {bytes_max} bytes"));
        }
    }
}
