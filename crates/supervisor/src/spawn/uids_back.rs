//! Uids that the operator gives back: what the command has found nothing of, for the launcher to take out of the table.
//!
//! Runs in: `bulkhead site uids`, which writes the file, and the launcher, as root, which reads it once. Sees: a file
//! in the state folder, which its owner alone can write. Never: takes a uid or a name from the admin role, which may be
//! compromised: that only says that there is a file.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::directories::replace;
use crate::error::{Error, at};

/// The file in the state folder.
const FILE: &str = "uids_given_back";
/// LIMIT: uids that are given back with one order: for each, the kernel looks through all processes.
pub const BACK_MAX: usize = 64;
/// LIMIT: bytes of the file: as many names, of at most 1,024 bytes each.
const BYTES_MAX: u64 = 128 << 10;

/// A uid that is to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// Its number.
    pub uid: u32,
    /// Whose it was, as the table has it.
    pub owner: String,
}

fn path(state: &Path) -> PathBuf {
    state.join(FILE)
}

/// Writes down what is to be given back.
pub fn write(state: &Path, all: &[Back]) -> Result<(), Error> {
    let mut text = String::new();
    for Back { uid, owner } in all {
        let _ = writeln!(text, "{uid} {owner}");
    }
    replace(&path(state), &text)
}

/// Removes what was written down, if it is there.
pub fn remove(state: &Path) -> Result<(), Error> {
    let path = path(state);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", &path)(error)),
        _ => Ok(()),
    }
}

/// What was written down; from here on it is not any more.
pub fn take(state: &Path) -> Result<Vec<Back>, Error> {
    let path = path(state);
    let mut text = String::new();
    let file = File::open(&path).map_err(at("open", &path))?;
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(at("read", &path))?;
    remove(state)?;
    let line = |line: &str| {
        let (uid, owner) = line.split_once(' ')?;
        Some(Back { uid: uid.parse().ok()?, owner: owner.to_owned() })
    };
    let all: Option<Vec<Back>> = text.lines().map(line).collect();
    all.filter(|all| all.len() <= BACK_MAX)
        .ok_or_else(|| Error::identity(&path, format!("expected at most {BACK_MAX} lines of `UID NAME`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_taken_once() {
        let state = tempfile::tempdir().unwrap();
        let back = |number| Back { uid: number, owner: format!("service/shop@1/{number}") };
        let all: Vec<Back> = (0..BACK_MAX as u32).map(back).collect();
        write(state.path(), &all).unwrap();
        assert_eq!(take(state.path()).unwrap(), all);
        assert!(take(state.path()).is_err());
        remove(state.path()).unwrap();
        write(state.path(), &[&all[..], &all[..1]].concat()).unwrap();
        assert!(take(state.path()).unwrap_err().to_string().contains("at most 64 lines"));
        std::fs::write(state.path().join(FILE), "x site/a\n").unwrap();
        assert!(take(state.path()).is_err());
    }
}
