//! The context of a guard's jails: the launcher's own, without its state, logs and control groups.
//!
//! Runs in: the guard. Sees: the checked configuration. Never: shares a uid with another guard.

use std::path::Path;

use config::Config;

use crate::stderr_relay::say;
use crate::uid_leases::Leases;
use supervisor::directories::{self, own_directory};
use supervisor::error::Error;
use supervisor::spawn::cgroup::Cgroups;
use supervisor::spawn::context::SpawnContext;

/// Where guards that root starts keep what is theirs: an empty directory, and locks on uids.
const FOLDER: &str = "/run/bulkhead-guard";

/// The context for a configuration, and, as root, where uids come from.
pub fn context(mut config: Config) -> Result<(SpawnContext, Option<Leases>), Error> {
    let root = rustix::process::geteuid().is_root();
    let folder = Path::new(FOLDER);
    let (mut empty, mut leases) = (None, None);
    // Nobody's files are in it, so no program is given to a uid that is another's tomorrow.
    config.dir = folder.join("empty");
    if root {
        own_directory(folder, 0o755)?;
        own_directory(&config.dir, 0o555)?;
        empty = Some(directories::directory(&config.dir)?);
        leases = Some(Leases::new(&folder.join("uids"), config.server.user_range.clone())?);
    }
    config.listeners.clear();
    let directory = directories::directory(Path::new("/"))?;
    let context = SpawnContext::new(config, empty, directory, folder, Cgroups::default())?;
    Ok((context, leases))
}

/// Says which layers the gate and the filters do without.
pub fn log_isolation(context: &SpawnContext) {
    let root = context.empty_root.is_some();
    let mut missing = jail::missing(root);
    missing.extend(context.without.borrow().iter());
    if !root {
        say(format_args!(
            "not started as root: the gate runs as this user, without the layers {}",
            missing.join(", ")
        ));
    } else if !missing.is_empty() {
        say(format_args!("isolation is degraded: without the layers {}", missing.join(", ")));
    }
}
