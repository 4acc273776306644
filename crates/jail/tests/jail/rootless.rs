//! The jail that any user can build.
//!
//! Runs in: the jail's test, as any user but root; root's test starts it as one.

use std::fs::File;

use jail::Jail;
use sys::process::Exit;

use crate::Test;
use crate::probe::TELL;
use crate::process::{jail, open, start};

/// The errand of a process that runs these tests.
pub const SUITE: &str = "rootless tests";

/// The tests.
pub const TESTS: &[Test] = &[
    ("rootless_layers_are_applied", rootless_layers_are_applied),
    ("rootless_layers_that_need_root_are_left_out", rootless_layers_that_need_root_are_left_out),
];

fn rootless_layers_are_applied() {
    let null = File::open("/dev/null").expect("it opens");
    let descriptors = vec![(null.into(), 3)];
    let probe =
        start(TELL, Jail { descriptors, directory: Some(open("/usr")), ..jail() }).expect("it starts");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(probe.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(probe.status("NoNewPrivs"), "1");
    assert_eq!(probe.status("Umask"), "0077");
    let pid = i64::from(probe.child.pid);
    assert_eq!(probe.session(), [pid, pid, 0], "group, session, terminal");
    assert_eq!(probe.limit("Max open files"), ("64".into(), "64".into()));
    assert_eq!(probe.limit("Max core file size"), ("0".into(), "0".into()));
    assert_eq!(probe.told("parent_death_signal"), libc::SIGKILL.to_string());
    assert_eq!(probe.link("cwd").to_str(), Some("/usr"));
    assert_eq!(probe.dismiss(), Exit::Clean);
}

/// The uid is the user's own, so its processes are not counted against the jail.
fn rootless_layers_that_need_root_are_left_out() {
    let own = rustix::process::getuid().as_raw().to_string();
    let probe = start(TELL, jail()).expect("it starts");
    assert_eq!(probe.status("Uid"), [&*own; 4].join(" "));
    assert_eq!(probe.link("root").to_str(), Some("/"));
    assert_ne!(probe.limit("Max processes").0, "64");
    assert_eq!(probe.dismiss(), Exit::Clean);
}
