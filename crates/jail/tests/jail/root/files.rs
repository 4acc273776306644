//! What a process sees of the file system.
//!
//! Runs in: the jail's test, as root.

use std::path::Path;

use jail::{Jail, Mode, Root};
use sys::process::Exit;

use super::{POWERLESS, TempDir, assert_found, bind, probe, role, root, tries, uid};
use crate::Test;

pub const TESTS: &[Test] = &[
    ("the_root_is_empty", the_root_is_empty),
    ("the_root_holds_only_what_is_bound", the_root_holds_only_what_is_bound),
    ("even_root_writes_only_where_it_is_let", even_root_writes_only_where_it_is_let),
    ("mounts_allow_no_more_than_they_are_for", mounts_allow_no_more_than_they_are_for),
    ("a_view_cannot_be_left", a_view_cannot_be_left),
    ("its_temporary_files_are_its_own", its_temporary_files_are_its_own),
    ("its_temporary_files_have_a_limit", its_temporary_files_have_a_limit),
    (
        "without_the_root_the_machines_temporary_files_are_shut",
        without_the_root_the_machines_temporary_files_are_shut,
    ),
];

fn the_root_is_empty() {
    let expected = [("list /", "(nothing)"), ("list ../../..", "(nothing)"), ("open /etc/passwd", "ENOENT")];
    let found = probe(&tries(&expected), Jail { without: vec!["landlock"], ..role() });
    assert_found(&found, &expected);
    assert_eq!(found.link("cwd"), found.link("root"), "it starts in its root");
    assert_eq!(found.dismiss(), Exit::Clean);
    // Landlock does not even let it look.
    assert_eq!(probe(&["list /"], role()).found(), "EACCES");
}

/// A root with a bind of each kind.
pub(super) fn furnished(place: &TempDir) -> Root {
    let binds = vec![
        bind(&place.0, "/data/here", Mode::Read),
        bind(&place.0, "/programs", Mode::Execute),
        bind(&place.0.join("file"), "/etc/file", Mode::Read),
        bind(&place.0, "/work", Mode::Write),
        bind(&place.0.join("file"), "/tmp/bound/file", Mode::Read),
        bind(Path::new("/dev"), "/machine", Mode::Read),
        bind(Path::new("/dev/null"), "/dev/null", Mode::Device),
    ];
    Root { temporary_bytes: Some(1 << 20), start_in: "/srv/app".into(), ..root(binds) }
}

fn the_root_holds_only_what_is_bound() {
    let place = TempDir::new("bound");
    let expected = [
        ("list /", "data dev etc machine programs srv tmp work"),
        ("list /data", "here"),
        ("list /data/here", "file program"),
        ("list /etc", "file"),
        ("list /dev", "null"),
        ("list /srv", "app"),
        ("list .", "(nothing)"),
        ("list ..", "app"),
        ("list ../../../..", "data dev etc machine programs srv tmp work"),
        ("open /data/here/file", "ok"),
        ("open /data/here/../../../etc/passwd", "ENOENT"),
        ("open /etc/file", "ok"),
        ("open /tmp/bound/file", "ok"),
        ("open /proc/self/status", "ENOENT"),
    ];
    let jail = Jail { root: Some(furnished(&place)), without: vec!["landlock"], ..role() };
    let found = probe(&tries(&expected), jail);
    assert_found(&found, &expected);
    assert_eq!(found.link("cwd").to_str(), Some("/inside/srv/app"));
    assert_eq!(found.link("root").to_str(), Some("/inside"));
    assert_eq!(found.dismiss(), Exit::Clean);
}

/// The jail of somebody whom permissions do not stop.
fn powerful(root: Root) -> Jail {
    let without = [&POWERLESS[..], &["landlock", "seccomp"]].concat();
    Jail { root: Some(root), without, ..role() }
}

fn even_root_writes_only_where_it_is_let() {
    let place = TempDir::new("read-only");
    let expected = [
        ("write /new", "EROFS"),
        ("mkdir /new", "EROFS"),
        ("mkdir /srv/app/new", "EROFS"),
        ("write /data/here/new", "EROFS"),
        ("write /data/here/file", "EROFS"),
        ("write /etc/file", "EROFS"),
        ("write /programs/program", "EROFS"),
        // A device is not a file of its file system.
        ("write /dev/null", "ok"),
        ("write /tmp/new", "ok"),
        ("write /tmp/bound/file", "EROFS"),
        // What was asked for.
        ("write /work/new", "ok"),
    ];
    assert_found(&probe(&tries(&expected), powerful(furnished(&place))), &expected);
    assert_eq!(std::fs::read_dir(&place.0).expect("it is there").count(), 3, "file, program, new");
}

fn mounts_allow_no_more_than_they_are_for() {
    let place = TempDir::new("mounts");
    let expected = [
        ("flags /", "ro nosuid nodev noexec"),
        ("flags /data", "ro nosuid nodev noexec"),
        ("flags /data/here", "ro nosuid nodev noexec"),
        ("flags /programs", "ro nosuid nodev"),
        ("flags /etc/file", "ro nosuid nodev noexec"),
        ("flags /dev/null", "ro nosuid noexec"),
        ("flags /work", "nosuid nodev noexec"),
        ("flags /tmp", "nosuid nodev noexec"),
        ("execute /data/here/program", "EACCES"),
        ("execute /programs/program", "ENOEXEC"),
        ("program /tmp/new", "EACCES"),
        ("execute /work/program", "EACCES"),
        ("open /machine/null", "EACCES"),
        ("open /dev/null", "ok"),
    ];
    assert_found(&probe(&tries(&expected), powerful(furnished(&place))), &expected);
    // It is not the lack of a program that stops it.
    let mut jail = powerful(root(vec![]));
    jail.without.push("root");
    assert_eq!(probe(&[&place.attempt("execute", "program")], jail).found(), "ENOEXEC");
}

fn a_view_cannot_be_left() {
    let place = TempDir::new("view");
    let view = jail::view(&place.open(), Mode::Read).expect("a view");
    let without = vec!["landlock"];
    let descriptors = vec![(view, 5), (place.open(), 6)];
    let found = probe(&["climb 5", "climb 6"], Jail { descriptors, without, ..role() });
    // The one of which no view was made shows that the way is there.
    assert_found(&found, &[("climb 5", "ENOENT"), ("climb 6", "ok")]);
    let descriptors = vec![(place.open(), 6)];
    let shut = probe(&["climb 6"], Jail { descriptors, ..role() });
    assert_eq!(shut.found(), "EACCES", "Landlock stops what the root would let through");
}

fn with_temporary(bytes: u64) -> Jail {
    Jail { root: Some(Root { temporary_bytes: Some(bytes), ..root(vec![]) }), ..role() }
}

fn its_temporary_files_are_its_own() {
    let owner = format!("{0} {0} 700", uid());
    let (first, second) = (with_temporary(1 << 20), with_temporary(1 << 20));
    let expected = [
        ("status /tmp", owner.as_str()),
        ("list /tmp", "(nothing)"),
        ("write /tmp/jail-test-secret", "ok"),
        ("mkdir /tmp/new", "ok"),
        ("open /tmp/jail-test-secret", "ok"),
    ];
    let writer = probe(&tries(&expected), first);
    assert_found(&writer, &expected);
    assert_eq!(probe(&["list /tmp"], second).found(), "(nothing)");
    assert!(!Path::new("/tmp/jail-test-secret").exists());
    assert_eq!(writer.dismiss(), Exit::Clean);
    assert_eq!(probe(&["status /tmp"], role()).found(), "ENOENT", "nobody has one who was given none");
}

fn its_temporary_files_have_a_limit() {
    assert_eq!(probe(&["fill /tmp/file"], with_temporary(1 << 20)).found(), "ENOSPC");
    assert_eq!(probe(&["fill /tmp/file"], with_temporary(128 << 20)).found(), "ok");
    assert_eq!(probe(&["crowd /tmp"], with_temporary(128 << 20)).found(), "ENOSPC");
}

/// The rule for a private `/tmp` is not to open the machine's, where the root was taken away.
fn without_the_root_the_machines_temporary_files_are_shut() {
    let jail = Jail { without: vec!["root"], ..with_temporary(1 << 20) };
    let found = probe(&["write /tmp/jail-test-out", "list /tmp"], jail);
    let _ = std::fs::remove_file("/tmp/jail-test-out");
    assert_found(&found, &[("write /tmp/jail-test-out", "EACCES"), ("list /tmp", "EACCES")]);
}
