//! What runs under a uid, or what such a process has left in the kernel that is no file.
//!
//! Runs in: the `bulkhead` command, as root. Sees: `/proc`. Never: ends a process, or removes an object.

use std::collections::HashMap;

use supervisor::spawn::living;

use crate::fault::Fault;

/// Where the kernel lists what processes may leave behind that is no file. Jails leave no call to make such a thing.
const OBJECTS: [&str; 3] = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"];

/// Why a uid is not free of processes, and of what these leave that is no file.
pub fn at_work(uid: u32, pid: Option<u32>) -> Result<Option<String>, Fault> {
    let pid = pid
        .or_else(|| living::all().find(|process| process.uids().contains(&uid)).map(|process| process.pid));
    if let Some(pid) = pid {
        return Ok(Some(format!("process {pid} runs under it; nothing is searched while one does: end it")));
    }
    if living::is_used(uid) {
        return Ok(Some("a process that has ended has it yet; try again when its parent has noticed".into()));
    }
    for path in OBJECTS {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            text => text.map_err(Fault::io(path))?,
        };
        if has_object(&text, uid) {
            return Ok(Some(format!(
                "an object of {path} belongs to it; `ipcs` lists these, and `ipcrm` removes them"
            )));
        }
    }
    Ok(None)
}

/// Whether a list of System V's objects has one of a uid, in one of the columns that name the owner and the maker.
fn has_object(text: &str, uid: u32) -> bool {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let columns: Vec<usize> = head
        .iter()
        .enumerate()
        .filter(|(_, name)| ["uid", "gid", "cuid", "cgid"].contains(name))
        .map(|(at, _)| at)
        .collect();
    lines.any(|line| columns.iter().any(|&at| line.get(at).is_some_and(|field| field.parse() == Ok(uid))))
}

/// A process of each uid that has one.
pub fn pids() -> HashMap<u32, u32> {
    living::all().flat_map(|process| process.uids().map(|uid| (uid, process.pid))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_their_columns() {
        let text = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid\n\
                    51003          0   600           0          0     0     0     0 51007 51004     0\n";
        assert_eq!([51003, 51004, 51007, 51008].map(|uid| has_object(text, uid)), [false, true, true, false]);
        assert!(!has_object("", 0));
        assert_eq!(at_work(4_000_000_000, None).unwrap(), None);
        let own = rustix::process::getuid().as_raw();
        assert!(at_work(own, None).unwrap().unwrap().starts_with("process "));
    }
}
