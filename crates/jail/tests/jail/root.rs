//! The jails that only root can build.
//!
//! Runs in: the jail's test, as root.

mod calls;
mod effects;
mod faults;
mod files;
mod groups;
mod launcher;
mod mounts;
mod own;
mod programs;
mod reach;

use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jail::{Bind, Identity, Jail, Mode, MountTemplate, Root};

use crate::Test;
use crate::process::{Probe, jail, open, start};

/// A uid that nobody has: its limit of processes is one for all processes of the same uid, those of another run of
/// this test included.
pub fn uid() -> u32 {
    1_000_000 + std::process::id()
}

/// What keeps root from doing as it likes, besides the layer under test.
const POWERLESS: [&str; 3] = ["bounding set", "identity", "capabilities"];

/// The tests.
pub fn tests() -> Vec<Test> {
    let all = [
        own::TESTS,
        programs::TESTS,
        launcher::TESTS,
        faults::TESTS,
        effects::TESTS,
        files::TESTS,
        mounts::TESTS,
        groups::TESTS,
        reach::TESTS,
        calls::TESTS,
    ];
    all.concat()
}

/// The jail of a role of ours.
fn role() -> Jail {
    Jail { identity: Identity::new(uid()), root: Some(root(vec![])), ..jail() }
}

/// A root with nothing in it but `binds`.
fn root(binds: Vec<Bind>) -> Root {
    Root { template: template(), binds, temporary_bytes: None, start_in: "/".into() }
}

/// Of what roots are made, as the launcher makes it: once.
fn template() -> Rc<MountTemplate> {
    thread_local! {
        static MADE: Rc<MountTemplate> = Rc::new(MountTemplate::make(&staging()).expect("it is made"));
    }
    MADE.with(Rc::clone)
}

/// The directory over which roots are mounted, as the launcher keeps one.
fn staging() -> OwnedFd {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("staging");
    std::fs::create_dir_all(&path).expect("the directory is made");
    open(path.to_str().expect("a path in UTF-8"))
}

/// `path` of the machine's, to appear at `at`.
fn bind(path: &Path, at: &str, mode: Mode) -> Bind {
    let opened = open(path.to_str().expect("a path in UTF-8"));
    let tree = jail::view(&opened, mode).expect("a view");
    Bind { at: at.into(), tree, directory: path.is_dir() }
}

fn probe(tries: &[&str], jail: Jail) -> Probe {
    start(tries, jail).expect("the probe starts")
}

/// A directory of the machine's with a file that anybody may read, `file`, and one that they may execute, `program`,
/// which is none. It is removed with this value.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("jail-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&place).expect("the directory is made");
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode is set");
        };
        set(&place, 0o755);
        for (name, mode) in [("file", 0o644), ("program", 0o755)] {
            std::fs::write(place.join(name), "no program").expect("the file is written");
            set(&place.join(name), mode);
        }
        Self(place)
    }

    fn open(&self) -> OwnedFd {
        open(self.0.to_str().expect("a path in UTF-8"))
    }

    /// An attempt on a file in it.
    fn attempt(&self, name: &str, file: &str) -> String {
        format!("{name} {}", self.0.join(file).display())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compares what a probe found with a table of it.
fn assert_found(probe: &Probe, expected: &[(&str, &str)]) {
    let found: Vec<_> = expected.iter().map(|(what, _)| (*what, probe.fact(what))).collect();
    assert_eq!(found, expected);
}

/// The attempts of such a table.
fn tries<'a>(expected: &[(&'a str, &str)]) -> Vec<&'a str> {
    expected.iter().map(|(what, _)| *what).collect()
}
