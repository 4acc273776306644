//! What a guard's jails stand on: the launcher's own ground, without its state, logs and control groups.
//!
//! Runs in: the guard. Sees: the checked configuration. Never: shares a uid with another guard.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::Path;

use config::{Config, Isolation};

use crate::cgroups::Cgroups;
use crate::cores::Cores;
use crate::error::{Error, during};
use crate::guard::identity::Leases;
use crate::guard::voice::say;
use crate::jails::Filters;
use crate::launch::{self, Ground};
use crate::launcher::left_out;
use crate::places::{self, own_directory};
use crate::program;
use crate::reaper::Reaper;
use crate::runtime::Answers;

/// Where guards that root starts keep what is theirs: an empty directory, and locks on uids.
const FOLDER: &str = "/run/bulkhead-guard";

/// The ground for a configuration, and, as root, where uids come from.
pub fn ground(mut config: Config) -> Result<(Ground, Option<Leases>), Error> {
    let root = rustix::process::geteuid().is_root();
    let folder = Path::new(FOLDER);
    let (mut empty, mut leases) = (None, None);
    // Nobody's files are in it, so no program is given to a uid that is another's tomorrow.
    config.dir = folder.join("empty");
    if root {
        own_directory(folder, 0o755)?;
        own_directory(&config.dir, 0o555)?;
        empty = Some(places::directory(&config.dir)?);
        leases = Some(Leases::new(&folder.join("uids"), config.server.user_range.clone())?);
    }
    config.listeners.clear();
    let null = File::options().read(true).write(true).open("/dev/null");
    let ground = Ground {
        empty_root: empty,
        directory: places::directory(Path::new("/"))?,
        launcher: jail::Launcher::this().map_err(during("open the guard's pidfd"))?,
        filters: Filters::default(),
        reaper: Reaper::default(),
        cores: Cores::below(folder),
        cgroups: Cgroups::default(),
        degrades: !root || config.server.isolation == Isolation::Degraded,
        without: RefCell::new(left_out(&config)),
        answers: Answers::default(),
        started: Cell::new(0),
        chain: launch::chain(&config),
        roles_folder: program::roles_folder()?,
        null: null.map_err(during("open /dev/null"))?.into(),
        config,
    };
    Ok((ground, leases))
}

/// Says which layers the gate and the filters do without.
pub fn tell_isolation(ground: &Ground) {
    let root = ground.empty_root.is_some();
    let mut missing = jail::missing(root);
    missing.extend(ground.without.borrow().iter());
    if !root {
        say(format_args!(
            "not started as root: the gate runs as this user, without the layers {}",
            missing.join(", ")
        ));
    } else if !missing.is_empty() {
        say(format_args!("isolation is degraded: without the layers {}", missing.join(", ")));
    }
}
