//! The form of a path that its text alone gives.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: paths of the operator's file. Must never: look at
//! the file system.

use std::path::{Component, Path, PathBuf};

/// The path without `.` and `..`, by its text alone.
pub fn lexical(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}
