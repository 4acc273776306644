//! Limits of processes and descriptors that the launcher was given: how much is left, and how to raise them.
//!
//! Runs in: the launcher, as root, and the guard. Sees: the kernel's figures. Never: changes a limit.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::spawn::cgroup;

/// How a limit of processes of a control group is raised.
pub(crate) const RAISE_PROCESSES: &str = "raise `TasksMax=` of the unit, or `pids.max`";
/// How that of descriptors is.
pub(crate) const RAISE_DESCRIPTORS: &str = "raise `LimitNOFILE=` of the unit, or `ulimit -Hn`";

/// What to raise where a limit of processes or descriptors was reached; `None` for another failure.
pub(crate) fn remedy(source: &io::Error) -> Option<String> {
    match Errno::from_io_error(source)? {
        Errno::AGAIN => Some(of_processes()),
        Errno::MFILE => Some(format!(
            "EMFILE: the launcher has the {} descriptors that it may have: {RAISE_DESCRIPTORS}",
            descriptors().map_or_else(|| "most".into(), |most| most.to_string())
        )),
        Errno::NFILE => {
            Some("ENFILE: the machine has as many open files as it may have: raise `fs.file-max`".into())
        }
        _ => None,
    }
}

fn of_processes() -> String {
    let is_full = |(most, now, _): &(u64, u64, PathBuf)| now + 1 >= *most;
    match of_groups().into_iter().find(is_full) {
        Some((most, _, group)) => format!(
            "EAGAIN: the control group {} has the {most} processes and threads that it may have: {RAISE_PROCESSES}",
            group.display()
        ),
        None => {
            "EAGAIN: the machine, or the user, has as many processes as it may have: raise `kernel.pid_max`, \
                 `kernel.threads-max` or `ulimit -Hu`"
                .into()
        }
    }
}

/// How many descriptors this process may have, if there is a limit.
pub(crate) fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The control groups around this process that have a limit of processes: that, how many they have, and where each is.
pub(crate) fn of_groups() -> Vec<(u64, u64, PathBuf)> {
    let number = |group: &Path, file| cgroup::number_in(group, &[file]);
    let limited =
        |group: PathBuf| Some((number(&group, "pids.max")?, number(&group, "pids.current")?, group));
    cgroup::own_groups(&["pids.current"]).into_iter().filter_map(limited).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_for_a_limit_says_which_and_others_do_not() {
        let says = |errno: Errno| remedy(&errno.into()).unwrap_or_default();
        assert!(says(Errno::MFILE).contains("LimitNOFILE="));
        assert!(says(Errno::NFILE).contains("fs.file-max"));
        assert!(says(Errno::AGAIN).starts_with("EAGAIN: "));
        assert_eq!(says(Errno::PERM), "");
    }
}
