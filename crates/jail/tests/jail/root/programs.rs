//! How a program in a jail is executed, and how it ends.
//!
//! Runs in: the jail's test, as root.

use std::io;
use std::os::fd::AsFd;

use jail::{Identity, Jail, LAYERS};
use sys::process::{Exit, Pids, Program};

use super::{role, uid};
use crate::Test;
use crate::probe::{STAY, TELL};
use crate::process::{self, Prepared, ended, jail, open, start_on};
use crate::rootless;

pub const TESTS: &[Test] = &[
    ("a_program_that_cannot_be_executed_is_named", a_program_that_cannot_be_executed_is_named),
    ("the_program_is_executed_by_its_own_identity", the_program_is_executed_by_its_own_identity),
    (
        "a_program_that_landlock_does_not_list_is_not_executed",
        a_program_that_landlock_does_not_list_is_not_executed,
    ),
    ("a_signal_ends_it_and_is_told", a_signal_ends_it_and_is_told),
    ("the_rootless_tests_pass_as_another_user", the_rootless_tests_pass_as_another_user),
];

fn a_program_that_cannot_be_executed_is_named() {
    let jail = role();
    for (path, errno) in [("/dev/null", libc::EACCES), ("/usr", libc::EACCES), ("/etc/passwd", libc::EACCES)]
    {
        let program = Program { file: open(path), ..process::program(TELL, &[]) };
        let error = sys::process::start(&program, jail.pids(), || jail::enter(&jail)).expect_err(path);
        assert_eq!((&*error.step, error.source.raw_os_error()), ("exec", Some(errno)), "{path}");
    }
}

/// A program that only root may execute: the ids are gone before it is looked at.
fn the_program_is_executed_by_its_own_identity() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("jail-test-program-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &path).expect("a copy");
    let chmod = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    let attempt = || {
        let mut jail = role();
        let file = open(path.to_str().expect("a path in UTF-8"));
        jail.reach.paths = vec![(file.try_clone().expect("a duplicate"), jail::Access::Execute)];
        let program = Program { file, ..process::program(TELL, &[]) };
        sys::process::start(&program, jail.pids(), || jail::enter(&jail)).map(|child| ended(&child))
    };
    chmod(0o700);
    let as_root_only = attempt();
    // The mode of a service's program: its group executes it and nobody of the partition reads it.
    chmod(0o410);
    std::os::unix::fs::chown(&path, Some(0), Some(uid())).expect("chown");
    let as_group = attempt();
    std::fs::remove_file(&path).expect("the copy is removed");
    let error = as_root_only.expect_err("only root may execute it");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("exec", Some(libc::EACCES)));
    assert!(as_group.is_ok(), "{as_group:?}");
}

fn a_program_that_landlock_does_not_list_is_not_executed() {
    let unlisted = || Jail { reach: jail::Reach::default(), ..role() };
    let error = process::start(&[], unlisted()).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("exec", Some(libc::EACCES)));
    let free = process::start(&[], Jail { without: vec!["landlock"], ..unlisted() });
    assert_eq!(free.expect("it starts").dismiss(), Exit::Clean);
}

fn a_signal_ends_it_and_is_told() {
    let probe = start_on(STAY, &[], role(), || Ok(())).expect("the probe starts");
    assert!(matches!(probe.child.try_wait(), Ok(None)), "it stays");
    probe.child.kill();
    assert_eq!(ended(&probe.child), Exit::Signal(libc::SIGKILL));
}

/// The same process without root, which is how a rootless launcher begins.
fn the_rootless_tests_pass_as_another_user() {
    let identity = Jail { identity: Identity::new(uid()), ..jail() };
    let layer = LAYERS.iter().find(|layer| layer.name == "identity").expect("the layer");
    let (output, errors) = (io::stdout(), io::stderr());
    let become_user = || -> Prepared {
        let inherit = |from: std::os::fd::BorrowedFd<'_>, to| sys::process::place(&from, to);
        inherit(output.as_fd(), 1)
            .and_then(|()| inherit(errors.as_fd(), 2))
            .map_err(|error| ("place", error))?;
        (layer.apply)(&identity).map_err(|error| (layer.name, error))
    };
    let program = process::program(rootless::SUITE, &[]);
    let suite = sys::process::start(&program, Pids::Shared, become_user).expect("it starts");
    assert_eq!(ended(&suite), Exit::Clean);
}
