//! What an examination has found out of a program, and the items by which it says so.
//!
//! Runs in: the launcher, as root, and a copy of it that examines. Sees: items that the copy has written. Never: opens
//! a file, or takes a part of what was said.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sys::file_version::FileVersion;
use wire::examination::{ExaminationToLauncher as Item, FINDINGS_MAX, StartKind, read_items, write_items};
use wire::{Bytes, Text};

use crate::spawn::failures::Failure;
use crate::spawn::inspect;
use crate::spawn::program::{Inspected, Start};

/// All that an examination has found out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// What the inspector says of the program, and of its loader.
    pub(super) inspected: Vec<(PathBuf, FileVersion, Inspected)>,
    /// What is wrong with the program, or with its loader.
    pub(super) failures: Vec<(PathBuf, FileVersion, Failure)>,
    /// The libraries of this version of the program.
    pub(super) libraries: Option<(FileVersion, Vec<PathBuf>)>,
    /// The version that was copied.
    pub(super) copied: Option<FileVersion>,
    /// Why the program would not be started.
    pub(super) refusal: Option<String>,
}

impl Findings {
    /// As they are said.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let inspected =
            self.inspected.iter().map(|(path, version, inspected)| item_of(path, version, inspected));
        let failures =
            self.failures.iter().map(|(path, version, failure)| item_of_failure(path, version, failure));
        let libraries = self.libraries.iter().flat_map(|(version, files)| {
            let files = files.iter().map(|file| Item::Library { path: bytes(file) });
            files.chain([Item::Listed { version: numbers(version) }])
        });
        let copied = self.copied.iter().map(|version| Item::Copied { version: numbers(version) });
        let refused = self.refusal.iter().map(|reason| Item::Refused { reason: Text::new(reason) });
        let items: Vec<Item> =
            inspected.chain(failures).chain(libraries).chain(copied).chain(refused).collect();
        write_items(&items)
    }

    /// The findings that were said so; `None` if that makes no sense.
    pub(super) fn of_bytes(said: &[u8]) -> Option<Self> {
        let (mut found, mut files) = (Self::default(), Vec::new());
        for item in read_items(said, FINDINGS_MAX).ok()? {
            match item {
                Item::Inspected { path, version, start, named, loose } => {
                    let inspected = inspected_of(start, &named, loose.as_str())?;
                    found.inspected.push((path_of(&path), version_of(version)?, inspected));
                }
                Item::Unfit { path, version, problem } => {
                    let failure = Failure::Program(problem.as_str().into());
                    found.failures.push((path_of(&path), version_of(version)?, failure));
                }
                Item::Lacks { path, version, library, problem } => {
                    let failure = Failure::Library(library.as_str().into(), problem.as_str().into());
                    found.failures.push((path_of(&path), version_of(version)?, failure));
                }
                Item::Library { path } => files.push(path_of(&path)),
                Item::Listed { version } => {
                    found.libraries = Some((version_of(version)?, std::mem::take(&mut files)));
                }
                Item::Copied { version } => found.copied = Some(version_of(version)?),
                Item::Refused { reason } => found.refusal = Some(reason.as_str().into()),
            }
        }
        Some(found)
    }
}

fn item_of(path: &Path, version: &FileVersion, inspected: &Inspected) -> Item {
    let (start, named) = match &inspected.start {
        Start::Static => (StartKind::Static, Bytes::default()),
        Start::Dynamic { loader, is_go: false } => (StartKind::Dynamic, bytes(Path::new(loader))),
        Start::Dynamic { loader, is_go: true } => (StartKind::Go, bytes(Path::new(loader))),
        Start::Script(interpreter) => (StartKind::Script, bytes(interpreter)),
    };
    let loose = Text::new(inspected.loose.unwrap_or_default());
    Item::Inspected { path: bytes(path), version: numbers(version), start, named, loose }
}

fn item_of_failure(path: &Path, version: &FileVersion, failure: &Failure) -> Item {
    let (path, version) = (bytes(path), numbers(version));
    match failure {
        Failure::Program(problem) => Item::Unfit { path, version, problem: Text::new(problem) },
        Failure::Library(library, problem) => {
            Item::Lacks { path, version, library: Text::new(library), problem: Text::new(problem) }
        }
    }
}

fn inspected_of<const MAX: usize>(start: StartKind, named: &Bytes<MAX>, loose: &str) -> Option<Inspected> {
    let loader = || String::from_utf8(named.0.clone()).ok();
    let start = match start {
        StartKind::Static => Start::Static,
        StartKind::Dynamic => Start::Dynamic { loader: loader()?, is_go: false },
        StartKind::Go => Start::Dynamic { loader: loader()?, is_go: true },
        StartKind::Script => Start::Script(path_of(named)),
    };
    let loose = if loose.is_empty() { None } else { Some(inspect::loose_of(loose.as_bytes())?) };
    Some(Inspected { start, loose })
}

fn bytes<const MAX: usize>(path: &Path) -> Bytes<MAX> {
    // What is longer than a path of the kernel's stands for no file.
    let name = path.as_os_str().as_bytes();
    Bytes(name[..name.len().min(MAX)].to_vec())
}

fn path_of<const MAX: usize>(path: &Bytes<MAX>) -> PathBuf {
    std::ffi::OsStr::from_bytes(&path.0).into()
}

fn numbers(version: &FileVersion) -> Vec<u64> {
    version.numbers().to_vec()
}

fn version_of(numbers: Vec<u64>) -> Option<FileVersion> {
    numbers.try_into().ok().map(FileVersion::of_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::program;

    #[test]
    fn what_is_said_is_what_was_found() {
        let (path, loader) = (Path::new("/proc/self/exe"), Path::new("/lib/ld.so"));
        let version = program::version(path).unwrap();
        assert_eq!(FileVersion::of_numbers(version.numbers()), version);
        let loose = inspect::LOOSE.first().map(|(_, why)| *why);
        let dynamic = Start::Dynamic { loader: "/lib/ld.so".into(), is_go: true };
        let found = Findings {
            inspected: vec![
                (loader.into(), version, Inspected { start: Start::Static, loose: None }),
                (path.into(), version, Inspected { start: dynamic, loose }),
                (path.into(), version, Inspected { start: Start::Script("/bin/sh".into()), loose: None }),
            ],
            failures: vec![
                (path.into(), version, Failure::Library("x.so".into(), "is missing".into())),
                (loader.into(), version, Failure::Program("is nothing".into())),
            ],
            libraries: Some((version, vec!["/lib/a.so".into(), "/lib/b.so".into()])),
            copied: Some(version),
            refusal: Some("no".into()),
        };
        assert_eq!(Findings::of_bytes(&found.to_bytes()), Some(found));
        assert_eq!(Findings::of_bytes(&[]), Some(Findings::default()));
    }

    #[test]
    fn nonsense_is_none() {
        let said = |item: Item| Findings::of_bytes(&write_items([&item]));
        assert_eq!(said(Item::Copied { version: vec![1, 2, 3] }), None);
        let path = || Bytes(b"/x".to_vec());
        let inspected = |start, named: &[u8], loose: &str| {
            let (version, named) = (vec![0; 5], Bytes(named.to_vec()));
            said(Item::Inspected { path: path(), version, start, named, loose: Text::new(loose) })
        };
        assert!(inspected(StartKind::Static, b"", "").is_some());
        assert_eq!(inspected(StartKind::Static, b"", "made up"), None);
        assert_eq!(inspected(StartKind::Dynamic, b"\xff", ""), None);
    }
}
