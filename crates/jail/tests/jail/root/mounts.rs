//! What is mounted where, on either side of the wall.
//!
//! Runs in: the jail's test, as root. Never: mounts anything that the machine sees.

use std::io;
use std::path::Path;

use jail::{Jail, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use sys::process::Pids;

use super::files::furnished;
use super::{TempDir, assert_found, bind, probe, role, root, tries};
use crate::Test;
use crate::probe::TELL;
use crate::process::{self, Prepared, Probe};

pub const TESTS: &[Test] = &[
    ("nothing_of_either_is_mounted_on_the_other", nothing_of_either_is_mounted_on_the_other),
    ("what_is_mounted_later_is_not_seen", what_is_mounted_later_is_not_seen),
];

/// The mount points that a process sees.
fn points(probe: &Probe) -> Vec<String> {
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", probe.child.pid)).expect("mounts");
    let mut points: Vec<_> =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(String::from).collect();
    points.sort();
    points
}

fn nothing_of_either_is_mounted_on_the_other() {
    let ours = || std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let before = ours();
    let place = TempDir::new("unseen");
    let mut root = furnished(&place);
    root.binds.retain(|bind| bind.at != Path::new("/machine"));
    let found = probe(&[], Jail { root: Some(root), ..role() });
    assert_eq!(ours(), before);
    // What is above its root is not shown to it.
    let expected =
        ["/", "/data/here", "/dev/null", "/etc/file", "/programs", "/tmp", "/tmp/bound/file", "/work"];
    assert_eq!(points(&found), expected, "the frame, its temporary files, and what is bound");
}

/// On a machine whose mounts are shared, as systemd makes them; in a child with a view of its own.
fn what_is_mounted_later_is_not_seen() {
    let place = TempDir::new("shared");
    let seen = || -> Prepared {
        let failed = |error: io::Error| ("mount", error);
        // SAFETY: this is a namespace of mounts, and none of descriptors or memory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
            .map_err(|error| failed(error.into()))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(|error| failed(error.into()))?;
        tmpfs(&place.0).map_err(failed)?;
        rustix::mount::mount_change(&place.0, shared).map_err(|error| failed(error.into()))?;
        let [before, after] = ["before", "after"].map(|name| place.0.join(name));
        tmpfs(&before).map_err(failed)?;
        std::fs::create_dir(&after).map_err(failed)?;
        let binds = vec![bind(&place.0, "/data", Mode::Read)];
        let jail = Jail { root: Some(root(binds)), without: vec!["landlock"], ..role() };
        let expected = [
            ("flags /data/before", "ro nosuid nodev noexec"),
            ("open /data/before/../../etc/passwd", "ENOENT"),
            ("list /data", "after before"),
        ];
        let found = probe(&tries(&expected), jail);
        assert_found(&found, &expected);
        tmpfs(&after).map_err(failed)?;
        assert_eq!(points(&found), ["/", "/data", "/data/before"]);
        Err(("all is well", io::ErrorKind::Other.into()))
    };
    let error = sys::process::start(&process::program(TELL, &[]), Pids::Shared, seen).expect_err("no start");
    assert_eq!(error.step, "all is well");
}

/// Mounts an empty file system over a directory, which is made if it is not there.
fn tmpfs(at: &Path) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    Ok(rustix::mount::mount("jail-test", at, "tmpfs", MountFlags::empty(), None)?)
}
