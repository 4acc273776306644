//! Turns of commands that change one folder: each has the folder to itself.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: a folder that others may be able to open. Never: waits
//! for ever: whoever can open a folder can lock it.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::fault::Fault;

/// LIMIT: how long a command waits for its turn; dozens of others can have theirs before.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How often the lock is tried.
const POLL: Duration = Duration::from_millis(10);

/// The folder, locked until it is closed.
///
/// # Errors
/// It cannot be opened, or others have it locked all the time.
pub fn wait(folder: &Path) -> Result<File, Fault> {
    let opened = File::open(folder).map_err(Fault::io(folder.display()))?;
    lock(&opened, folder, WAIT_MAX)?;
    Ok(opened)
}

fn lock(opened: &File, folder: &Path, most: Duration) -> Result<(), Fault> {
    let deadline = Instant::now() + most;
    loop {
        match flock(opened, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(POLL),
            Err(Errno::WOULDBLOCK) => {
                let (folder, seconds) = (folder.display(), most.as_secs());
                return Err(Fault::Failed(format!(
                    "{folder}: other processes have had it locked for {seconds} s; nothing has changed; `fuser {folder}` says which"
                )));
            }
            Err(Errno::INTR) => {}
            locked => return locked.map_err(|error| Fault::io(folder.display())(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_and_nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (wait(folder.path()).unwrap(), File::open(folder.path()).unwrap());
        let refused = lock(&second, folder.path(), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(refused.contains("have had it locked") && refused.contains("fuser /"), "{refused}");
        let waiting = std::thread::spawn(move || lock(&second, Path::new("/"), WAIT_MAX).is_ok());
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
