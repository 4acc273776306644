//! Every class of path against links, hard links, FIFOs and folders of others, at every component.
//!
//! Runs in: `cargo test`; what needs files of several users, as root alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot make its files should panic")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use super::*;

const ALICE: u32 = 1001;
const BOB: u32 = 1002;

/// A tree of root's and two tenants', below a folder of root's.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, uid, mode) in [
            ("", 0, 0o755),
            ("root", 0, 0o755),
            ("root/closed", 0, 0o700),
            ("root/closed/in", 0, 0o755),
            ("root/many", 0, 0o775),
            ("root/sticky", 0, 0o1777),
            ("alice", ALICE, 0o755),
            ("alice/own", ALICE, 0o700),
            ("bob", BOB, 0o755),
            ("bob/own", BOB, 0o700),
            ("bob/own/in", BOB, 0o755),
        ] {
            let path = tree.at(path);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
        for (path, uid, mode) in [
            ("root/open", 0, 0o644),
            ("root/secret", 0, 0o600),
            ("alice/file", ALICE, 0o600),
            ("alice/own/file", ALICE, 0o600),
            ("bob/file", BOB, 0o600),
        ] {
            let path = tree.at(path);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
        tree
    }

    /// With links of a tenant's, and of root's to what is a tenant's, or where others may make links.
    fn with_links() -> Self {
        let tree = Self::new();
        tree.link("root/secret", "alice/link", ALICE);
        tree.link("root", "alice/folder", ALICE);
        tree.link("alice/file", "root/link", 0);
        tree.link("alice/own", "root/folder", 0);
        tree.link("root/secret", "root/many/link", 0);
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn link(&self, target: &str, path: &str, uid: u32) {
        let path = self.at(path);
        symlink(self.at(target), &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(uid), Some(uid)).unwrap();
    }

    fn look(&self, class: Class, path: &str) -> Result<Found, PathFault> {
        Opener::trusting([0, 0]).look(class, &self.at(path))
    }

    fn folder(&self, path: &str) -> bool {
        self.look(Class::Published, path).is_ok_and(|found| found.open_folder().is_ok())
    }

    fn file(&self, path: &str) -> bool {
        Opener::trusting([0, 0]).file(&self.at(path)).is_ok()
    }

    fn own(&self, path: &str) -> bool {
        self.look(Class::Own, path).is_ok()
    }
}

/// These need files of several users.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn links_of_tenants_lead_to_no_secret() {
    if !is_root() {
        return;
    }
    let tree = Tree::with_links();
    tree.link("alice/folder", "root/twice", 0);
    tree.link("root/secret", "root/sticky/mine", ALICE);
    tree.link("root/secret", "root/sticky/roots", 0);
    for good in
        ["root/open", "root/secret", "root/link", "root/folder/file", "alice/file", "root/sticky/roots"]
    {
        assert!(tree.file(good), "{good}");
    }
    for bad in
        ["alice/link", "alice/folder/secret", "root/twice/secret", "root/sticky/mine", "root/many/link"]
    {
        assert!(!tree.file(bad), "{bad}");
        assert!(matches!(tree.look(Class::Private, bad), Err(PathFault::Link { .. })), "{bad}");
    }
}

#[test]
fn other_names_of_files_lead_to_no_secret() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    for (file, name) in [("root/secret", "alice/a"), ("bob/file", "alice/b"), ("root/open", "alice/c")] {
        fs::hard_link(tree.at(file), tree.at(name)).unwrap();
    }
    assert!(!tree.file("alice/a") && !tree.file("alice/b"));
    assert!(tree.file("alice/c"), "everybody can read it");
    // The other name is gone, as after a program that puts a whole new file in the place of the old one.
    fs::remove_file(tree.at("root/secret")).unwrap();
    assert!(!tree.file("alice/a"), "one name is no proof");
    fs::hard_link(tree.at("alice/a"), tree.at("root/sticky/a")).unwrap();
    fs::hard_link(tree.at("alice/a"), tree.at("root/many/a")).unwrap();
    assert!(!tree.file("root/sticky/a") && !tree.file("root/many/a"));
}

#[test]
fn folders_are_followed_as_far_as_the_links_maker_may_go() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    tree.link("alice/own", "alice/current", ALICE);
    tree.link("alice/current", "alice/twice", ALICE);
    tree.link("root", "alice/open", ALICE);
    tree.link("root/closed", "alice/closed", ALICE);
    tree.link("root/closed/in", "alice/below", ALICE);
    tree.link("bob/own/in", "alice/bobs", ALICE);
    tree.link("bob/own/in", "root/bobs", 0);
    tree.link("alice/bobs", "root/twice", 0);
    tree.link("bob/own", "alice/given", BOB);
    for good in
        ["root", "root/closed", "alice/own", "alice/current", "alice/twice", "alice/open", "root/bobs"]
    {
        assert!(tree.folder(good), "{good}");
    }
    // The last one is bob's link, in a folder of alice's: neither goes where only the other may.
    for bad in
        ["alice/closed", "alice/below", "alice/bobs", "root/twice", "alice/open/closed/in", "alice/given"]
    {
        let fault = tree.look(Class::Published, bad).unwrap_err();
        assert!(matches!(fault, PathFault::Closed { .. }), "{bad}: {fault}");
    }
}

#[test]
fn the_servers_own_lies_in_folders_of_roots_alone() {
    if !is_root() {
        return;
    }
    let tree = Tree::new();
    tree.link("root/closed", "root/link", 0);
    tree.link("alice/own", "root/out", 0);
    fs::create_dir(tree.at("alice/roots")).unwrap();
    for good in ["root/closed/in", "root/link", "root/link/in", "root/sticky"] {
        assert!(tree.own(good), "{good}");
    }
    for bad in ["alice/roots", "root/out", "alice/own/file"] {
        assert!(!tree.own(bad), "{bad}");
    }
    fs::create_dir(tree.at("root/many/x")).unwrap();
    assert!(!tree.own("root/many/x"));
    let owner = Opener::trusting([0, ALICE]);
    assert!(owner.look(Class::Own, &tree.at("alice/roots")).is_ok(), "the configuration is alice's");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink("fifo", at("link")).unwrap();
    let opener = Opener::of(folder.path());
    for name in ["fifo", "socket", "link", "."] {
        let fault = opener.file(&at(name)).unwrap_err();
        assert!(matches!(fault, PathFault::WrongKind { .. }), "{name}: {fault}");
    }
    assert!(opener.file(Path::new("/dev/null")).is_err());
    assert!(opener.file(&at("none")).unwrap_err().is_not_found());
}

#[test]
fn links_have_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    symlink("loop", at("loop".into())).unwrap();
    fs::write(at("0".into()), "x").unwrap();
    for number in 1..=41 {
        symlink((number - 1).to_string(), at(number.to_string())).unwrap();
    }
    let opener = Opener::of(folder.path());
    assert!(opener.file(&at("40".into())).is_ok());
    for name in ["41", "loop"] {
        let fault = opener.look(Class::Published, &at(name.into())).unwrap_err();
        let is_loop =
            |source: &std::io::Error| source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        assert!(matches!(&fault, PathFault::Io { source, .. } if is_loop(source)), "{name}: {fault}");
    }
}

#[test]
fn names_above_are_those_of_the_real_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/file"), "x").unwrap();
    symlink("a/b", at("link")).unwrap();
    let opener = Opener::of(folder.path());
    assert!(opener.file(&at("link/../file")).is_ok(), "as the kernel finds it");
    assert!(opener.file(&at("a/./b/../file")).is_ok());
    let found = opener.look(Class::Published, &at("link/..")).unwrap();
    assert_eq!(found.real, at("a").canonicalize().unwrap());
    assert_eq!(opener.look(Class::Own, Path::new("/..")).unwrap().real, Path::new("/"));
}

#[test]
fn keys_of_one_name_are_of_one_class() {
    for row in PATH_KEYS {
        assert_eq!(class_of(row.key), row.class, "{}", row.key);
    }
    assert_eq!(class_of("none"), Class::Own);
}

#[test]
fn a_look_at_many_files_finds_what_a_walk_to_each_finds() {
    if !is_root() {
        return;
    }
    let tree = Tree::with_links();
    fs::hard_link(tree.at("root/secret"), tree.at("alice/hard")).unwrap();
    let opener = Opener::trusting([0, 0]);
    let (mut versions, neighbours) = (opener.versions(), opener.neighbours());
    let below = [
        "root/open",
        "root/secret",
        "root/none",
        "root/link",
        "root/closed",
        "root/closed/../open",
        "root/folder/file",
        "root/folder/none",
        "alice/file",
        "alice/link",
        "alice/hard",
        "alice/folder/secret",
        "root/many/link",
        "alice/own/file",
        "root/open/file",
        "none/file",
        "alice/file",
        "bob/own/../file",
    ];
    let others = ["/proc/self/status", "/proc/self/exe", "/dev/null", "/"].map(PathBuf::from);
    for path in below.iter().map(|path| tree.at(path)).chain(others) {
        let walked =
            opener.look(Class::Private, &path).map(|found| sys::file_version::FileVersion::from(&found.stat));
        assert_eq!(format!("{:?}", versions.of(&path)), format!("{walked:?}"), "{}", path.display());
        for class in [Class::Private, Class::Published, Class::Own] {
            // The folder is known at the second look.
            for _ in 0..2 {
                let found = seen(neighbours.look(class, &path));
                assert_eq!(found, seen(opener.look(class, &path)), "{class:?} {}", path.display());
            }
            assert_eq!(neighbours.would_wait(class, &path), opener.would_wait(class, &path));
        }
    }
}

/// The result of a look without the number of its descriptor.
fn seen(found: Result<Found, PathFault>) -> String {
    let inode = |found: &Found| rustix::fs::fstat(&found.file).map(|stat| (stat.st_dev, stat.st_ino));
    found.map_or_else(
        |fault| format!("{fault:?}"),
        |found| {
            let Found { held, stat, real, placed, folder, is_remote, .. } = &found;
            format!("{:?} {held:?} {stat:?} {real:?} {placed:?} {folder:?} {is_remote}", inode(&found))
        },
    )
}

/// Nobody opens anything for a process that does not wait.
#[derive(Debug)]
struct Nobody;

impl Beside for Nobody {
    fn found(&self, _: Class, path: &Path) -> Result<Found, PathFault> {
        Err(PathFault::Remote { at: path.to_owned(), mount: None })
    }
}

#[test]
fn what_was_asked_about_is_what_is_looked_at_and_nothing_else() {
    open_beside(std::rc::Rc::new(Nobody));
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    fs::write(&one, "x").unwrap();
    fs::write(&two, "xx").unwrap();
    let opener = Opener::of(folder.path());
    let neighbours = opener.neighbours();
    let size = |class, path: &Path| neighbours.look(class, path).unwrap().stat.st_size;
    assert!(!neighbours.would_wait(Class::Private, &one));
    assert_eq!((size(Class::Private, &two), size(Class::Published, &one)), (2, 1));
    // The answer serves one look. The next look asks the kernel.
    fs::write(&one, "xxx").unwrap();
    fs::remove_file(&two).unwrap();
    assert_eq!(size(Class::Private, &one), 1);
    assert_eq!(size(Class::Private, &one), 3);
    assert!(neighbours.look(Class::Private, &two).is_err_and(|fault| fault.is_not_found()));
    open_here();
}
