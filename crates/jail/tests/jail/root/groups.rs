//! The control group that a process joins, and the label of a security module.
//!
//! Runs in: the jail's test, as root. Never: changes a group that it did not make.

use std::fs::{self, File};
use std::path::PathBuf;

use jail::{Jail, LAYERS};

use super::{probe, role};
use crate::Test;
use crate::probe::TELL;
use crate::process::{start, start_on};

pub const TESTS: &[Test] = &[
    ("its_control_group_holds_it", its_control_group_holds_it),
    ("a_label_is_put_on_or_nothing_runs", a_label_is_put_on_or_nothing_runs),
];

/// A control group of version 1 that holds at most one process; it is removed with this value.
struct Group(PathBuf);

impl Group {
    fn new() -> std::io::Result<Self> {
        let name = format!("jail-test-{}", std::process::id());
        let path = PathBuf::from("/sys/fs/cgroup/pids").join(name);
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join("pids.max"), "1")?;
        Ok(group)
    }

    /// As the launcher opens it.
    fn jail(&self, without: Vec<&'static str>) -> Jail {
        let join = File::options().write(true).open(self.0.join("cgroup.procs")).expect("it opens");
        Jail { cgroups: vec![join.into()], without, ..role() }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn its_control_group_holds_it() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => {
            println!("(skipped: no group can be made in the pids hierarchy of version 1: {error})");
            return;
        }
    };
    let name = group.0.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let member = |pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("groups").contains(&name);
    let held = probe(&["fork"], group.jail(vec![]));
    assert_eq!((held.found().as_str(), member(held.child.pid)), ("EAGAIN", true));
    drop(held);
    let free = probe(&["fork"], group.jail(vec!["cgroup"]));
    assert_eq!((free.found().as_str(), member(free.child.pid)), ("ok", false));
}

/// Where no security module takes labels, as on most machines of tests, the program must not run.
fn a_label_is_put_on_or_nothing_runs() {
    let labelled = |without| Jail { label: Some("jail-test no such label".into()), without, ..role() };
    let error = start(&[], labelled(vec![])).expect_err("there is no such label");
    assert_eq!(error.step, "label");
    let free = start_on(TELL, &[], labelled(vec!["label"]), || Ok(()));
    assert!(free.is_ok(), "{free:?}");
    assert!(
        LAYERS.iter().any(|layer| layer.name == "label" && layer.mandatory),
        "it is never silently left out"
    );
}
