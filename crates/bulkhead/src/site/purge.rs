//! `bulkhead site remove --purge`: deletes what a site has left, once its processes have ended.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: numbers of processes, and [folders](super::emptying) of
//! tenants. Never: deletes something of a site that the configuration has, or that has a process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use supervisor::site_names::KEPT;
use supervisor::site_names::generations::{Generation, Standing};
use supervisor::spawn::living;

use super::emptying;
use super::record::SiteRecord;
use crate::admin::give;
use crate::cli::ServerOptions;
use crate::fault::Fault;
use crate::find;

/// LIMIT: how long a site that is removed may take to finish what it has begun, before the command gives up.
const END_MAX: Duration = Duration::from_secs(60);
/// How often its processes are looked for.
const END_POLL: Duration = Duration::from_millis(50);

/// Deletes what is left of a name that the configuration does not have; where it was.
pub fn purge(config: &Path, name: &str) -> Result<Vec<PathBuf>, Fault> {
    let Some(mut record) = SiteRecord::open(config)? else { return Ok(Vec::new()) };
    // From here on nobody can come by this name, whichever step this ends at.
    let ended = record.generation(name).with(Standing::Removed);
    record.put(name, ended.clone())?;
    let (state, uids) = (record.state().to_owned(), record.uids(name)?);
    let folders = record.left(name);
    // Other sites are not to wait for this one's.
    drop(record);
    await_end(config, name, &uids)?;
    for kind in KEPT {
        emptying::delete(&state, kind, name)
            .map_err(|error| unfinished(&state.join(kind).join(name), name, &error))?;
    }
    finish(config, name, &ended)?;
    Ok(folders)
}

/// The name begins anew: its uids are never given to anybody.
fn finish(config: &Path, name: &str, ended: &Generation) -> Result<(), Fault> {
    let Some(mut record) = SiteRecord::open(config)? else { return Ok(()) };
    match record.generation(name) == *ended {
        true => record.put(name, ended.next()),
        // Another command has done the same meanwhile.
        false => Ok(()),
    }
}

fn unfinished(folder: &Path, name: &str, error: &std::io::Error) -> Fault {
    let folder = folder.display();
    let what = match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::XDEV.raw_os_error() => {
            "something is mounted there; unmount it".to_owned()
        }
        _ if error.kind() == std::io::ErrorKind::TimedOut => {
            format!("there is more than can be deleted in {} s", emptying::EMPTYING_MAX.as_secs())
        }
        _ => error.to_string(),
    };
    Fault::Failed(format!(
        "site {name}: removed, but {folder} is not deleted: {what}; then run `bulkhead site remove --purge {name}` again"
    ))
}

/// Waits until no process of the site is left: those of a server that runs, and whatever has one of the uids.
fn await_end(config: &Path, name: &str, uids: &[u32]) -> Result<(), Fault> {
    let server = ServerOptions { config: Some(config.to_owned()), folder: None, pid: None, run_dir: None };
    let run_dir = find::run_dir(&server)?;
    let deadline = Instant::now() + END_MAX;
    let lives = || -> Result<bool, Fault> {
        let has_uid =
            |process: living::Living| uids.iter().any(|uid| process.uid_in(&(*uid..=*uid)).is_some());
        Ok(is_listed(&run_dir, name)? || (!uids.is_empty() && living::all().any(has_uid)))
    };
    while lives()? {
        if Instant::now() >= deadline {
            return Err(Fault::Failed(format!(
                "site {name}: removed, and nothing is deleted yet: its processes have not ended within {} s; run `bulkhead site \
                 remove --purge {name}` again when `bulkhead status` lists none of them",
                END_MAX.as_secs()
            )));
        }
        std::thread::sleep(END_POLL);
    }
    Ok(())
}

/// Whether a server that runs has a process of the site.
fn is_listed(run_dir: &Path, name: &str) -> Result<bool, Fault> {
    let status = match give(run_dir, &json!({ "command": "status" })) {
        Err(Fault::Unreachable(_)) => return Ok(false),
        Err(Fault::Busy(_)) => return Ok(true),
        answer => answer?,
    };
    let processes = status["processes"].as_array().into_iter().flatten();
    let is_its = |process: &Value| {
        let label = process["name"].as_str().unwrap_or_default();
        label.split(['/', ':', '#']).next() == Some(name)
    };
    Ok(processes.clone().any(is_its))
}
