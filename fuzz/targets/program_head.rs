//! The head of a program: whatever the bytes, the launcher finds the path of a loader, finds none, or says why not.
//!
//! Runs in: `fuzz/run`. The bytes are those of a program that a partition's owner has made.
#![no_main]

// The launcher is a program, not a library; the parser needs nothing of it.
#[allow(dead_code)]
#[path = "../../crates/bulkheadd/src/spawn/libraries/elf.rs"]
mod elf;

use std::io;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut reads = 0;
    let found = elf::interpreter(|at, buffer| {
        reads += 1;
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let bytes = at.checked_add(buffer.len()).and_then(|end| data.get(at..end));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    });
    assert!(reads <= 66, "the head, at most 64 headers, and the path");
    match found {
        Ok(Some(path)) => assert!((1..256).contains(&path.len())),
        Ok(None) => {}
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
});
