//! No process outlives its launcher.
//!
//! Runs in: the jail's test, as root.

use std::io::{self, Read, Write};

use jail::{Jail, Launcher};
use rustix::process::WaitOptions;
use sys::process::{Exit, Pids};

use super::{probe, role};
use crate::Test;
use crate::probe::TELL;
use crate::process::{self, Prepared, ended};

pub const TESTS: &[Test] = &[
    ("it_dies_with_the_launcher", it_dies_with_the_launcher),
    ("without_the_launcher_it_does_not_start", without_the_launcher_it_does_not_start),
];

fn it_dies_with_the_launcher() {
    assert_eq!(probe(&[], role()).fact("parent_death_signal"), libc::SIGKILL.to_string());
    // The orphan becomes our child, so its end can be seen.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("we reap");
    let (launcher, orphan, _keep) = process::start_launcher();
    launcher.kill();
    assert_eq!(ended(&launcher), Exit::Signal(libc::SIGKILL));
    let end = rustix::process::waitpid(Some(orphan), WaitOptions::empty()).expect("the orphan is ours now");
    rustix::process::set_child_subreaper(None).expect("we reap no more");
    let (_, status) = end.expect("it has ended");
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
}

/// A launcher that dies after the fork and before its child asks for the signal sends none.
fn without_the_launcher_it_does_not_start() {
    for (without, expected) in
        [(vec!["pid namespace"], "parent death 3"), (vec!["pid namespace", "parent death"], "ok")]
    {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let launch = || -> Prepared {
            let launcher = Launcher::this().map_err(|error| ("launcher", error))?;
            let jail = Jail { launcher, without, ..role() };
            let orphaned = || -> Prepared {
                end_parent().map_err(|error| ("end parent", error))?;
                let entered = jail::enter(&jail);
                let found = entered.as_ref().map_or_else(
                    |(step, error)| format!("{step} {}", error.raw_os_error().unwrap_or(0)),
                    |()| "ok".into(),
                );
                (&writer).write_all(found.as_bytes()).map_err(|error| ("tell", error))?;
                entered
            };
            let started = sys::process::start(&process::program(TELL, &[]), jail.pids(), orphaned);
            Err(("still there", io::Error::other(format!("{started:?}"))))
        };
        let launcher = sys::process::start(&process::program(TELL, &[]), Pids::Shared, launch);
        drop(writer);
        assert_eq!(ended(&launcher.expect("it ends before it says anything")), Exit::Signal(libc::SIGKILL));
        let mut found = String::new();
        reader.read_to_string(&mut found).expect("the orphan tells");
        assert_eq!(found, expected);
    }
}

/// Ends the calling process's parent and waits until it is gone.
fn end_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    rustix::process::kill_process(parent, rustix::process::Signal::KILL)?;
    while rustix::process::getppid() == Some(parent) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}
