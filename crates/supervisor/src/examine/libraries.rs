//! Whether a folder from which code is loaded is root's alone, with all that is in it.
//!
//! Runs in: as the module above. Sees: owners and modes below folders that the operator named. Never: follows a link,
//! or opens a file. At each start the launcher looks at the folder itself ([`crate::spawn::libraries`]); this is for
//! who asks.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::{Finding, Opener};

use super::finding::{Depth, error, warning};
use crate::spawn::libraries;

/// LIMIT: entries that are looked at, those of outer folders first; a virtual environment with Django has some 7,000.
const ENTRIES_MAX: usize = 20_000;
/// Names that are said.
const NAMES: usize = 3;

/// What is wrong with a folder of `libraries`, or perhaps with what is in it.
pub(super) fn examine(path: &Path, opener: &Opener, depth: Depth) -> Option<Finding> {
    if let Some((what, remedy)) = libraries::folder_fault(path, opener) {
        return Some(error(what, remedy));
    }
    // In those of the machine, distributions let a few accounts of their own have folders (MariaDB's has one).
    if depth == Depth::Start || libraries::is_the_machines(path) {
        return None;
    }
    let others = others(path, 0);
    let names: Vec<String> = others.iter().take(NAMES).map(|name| name.display().to_string()).collect();
    (!names.is_empty()).then(|| {
        warning(
            format!(
                "has {}, which others than root can change: a service would load their code",
                names.join(", ")
            ),
            format!(
                "run `chown -R root: {0} && chmod -R go-w {0}`, or name a narrower folder",
                path.display()
            ),
        )
    })
}

/// Up to [`NAMES`] entries, at whatever depth, that do not belong to `owner` alone.
fn others(top: &Path, owner: u32) -> Vec<PathBuf> {
    let (mut found, mut folders, mut left) = (Vec::new(), VecDeque::from([top.to_path_buf()]), ENTRIES_MAX);
    while let Some(folder) = folders.pop_front() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            left = left.saturating_sub(1);
            if left == 0 || found.len() == NAMES {
                return found;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if is_of_others(&metadata, owner) {
                found.push(entry.path().strip_prefix(top).unwrap_or(&entry.path()).to_path_buf());
            } else if metadata.is_dir() {
                folders.push_back(entry.path());
            }
        }
    }
    found
}

/// Of a link, its own owner and mode say nothing: where it leads is another name's matter.
fn is_of_others(found: &Metadata, owner: u32) -> bool {
    !found.is_symlink() && (found.uid() != owner || found.mode() & 0o022 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_others_can_change_is_named_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap().uid();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.so"), "").unwrap();
        for path in [folder.path().join("a"), deep.clone(), deep.join("x.so")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("/tmp", deep.join("link")).unwrap();
        assert_eq!(others(folder.path(), owner), [""; 0].map(PathBuf::from));
        assert_eq!(others(folder.path(), owner + 1), [PathBuf::from("a")]);
        fs::set_permissions(deep.join("x.so"), fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(others(folder.path(), owner), [PathBuf::from("a/b/x.so")]);
    }
}
