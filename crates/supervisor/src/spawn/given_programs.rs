//! What the launcher has done with programs of the operator's: which files it has given away, and which copies it has
//! made.
//!
//! Runs in: the launcher, as root. Sees: inodes. Never: opens a file.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use sys::file_version::FileVersion;

/// What the launcher has done with programs of the operator's.
#[derive(Debug, Default)]
pub struct OperatorPrograms {
    /// The files, by device and inode, that were found as this launcher gives them, or given by it.
    pub given: RefCell<HashSet<(u64, u64)>>,
    /// Copies that have no name, by the program's path and the uid that they are for; each with what it was made from.
    pub copies: RefCell<HashMap<(PathBuf, u32), (FileVersion, OwnedFd)>>,
}
