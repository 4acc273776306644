//! `bulkhead site remove`: the end of a site, and of the generation of its name.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words, the folder of sites and the state
//! folder. Never: has what is left go to whoever comes next, whichever step it is killed at after the file is out of
//! the folder for good.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use supervisor::site_names::generations::Standing;

use super::folder::{SiteFolder, State};
use super::record::{self, SiteRecord};
use super::{Files, Remains, SiteChange, accept, how, known, not_done, purge, site_folder};
use crate::fault::Fault;

/// What becomes of what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// It stays where it is, and is nobody's.
    Kept,
    /// It is deleted.
    Deleted,
}

/// Removes a site; with its state, also one that was removed before, or whose file was taken out by hand.
pub fn remove(config: &Path, name: &str, what: Leftovers, as_json: bool) -> Result<ExitCode, Fault> {
    config::check_name(name).map_err(Fault::Usage)?;
    let folder = match what {
        Leftovers::Kept => Some(site_folder(config)?),
        // A configuration without such a folder has names all the same.
        Leftovers::Deleted => config::site_folder(config)
            .ok()
            .flatten()
            .map(SiteFolder::open)
            .transpose()?
            .filter(|folder| folder.state(name).is_some()),
    };
    let done = match &folder {
        Some(folder) => take_out(config, folder, name)?,
        None => absent(config, name)?,
    };
    drop(folder);
    let left = match what {
        Leftovers::Kept => Remains::Kept(begin_anew(config, name)?),
        Leftovers::Deleted => Remains::Deleted(purge::purge(config, name)?),
    };
    done.say(as_json, &left)
}

/// Takes the file of a site out, and ends the generation of its name.
fn take_out(config: &Path, folder: &SiteFolder, name: &str) -> Result<SiteChange, Fault> {
    let (was, begun) = (known(folder, config, name)?, Instant::now());
    let mut record = SiteRecord::open(config)?;
    let before = record.as_ref().map(|record| record.generation(name)).unwrap_or_default();
    let change = folder.remove(name)?;
    let mut put = |generation| record.as_mut().map_or(Ok(()), |record| record.put(name, generation));
    // Before the server knows: from then on nobody may come by this name.
    if let Err(fault) = put(before.with(Standing::Removed)) {
        change.take_back()?;
        return Err(not_done(name, "removed", &fault));
    }
    let accepted = match was {
        State::Enabled => accept(config, name, None, Files::Changed).map(|is_running| how(is_running, begun)),
        State::Disabled => Ok("; it was disabled".to_owned()),
    };
    match accepted {
        Ok(how) => {
            change.keep()?;
            record.as_ref().map_or(Ok(()), |record| record.forget_copy(name))?;
            Ok(SiteChange { site: name.to_owned(), word: "removed", how })
        }
        Err(fault) => {
            put(before)?;
            change.take_back()?;
            Err(not_done(name, "removed", &fault))
        }
    }
}

/// A name that the configuration does not have, and of which something may be left.
fn absent(config: &Path, name: &str) -> Result<SiteChange, Fault> {
    if record::holder(config, name)?.is_some() {
        return Err(Fault::Usage(format!(
            "site {name} is in the configuration, in no file of its own; take its table out, and run this again"
        )));
    }
    if !SiteRecord::open(config)?.map_or(Ok(false), |record| record.knows(name))? {
        return Err(Fault::Usage(format!("there is no site {name}, and nothing is left of one")));
    }
    // A server that runs may not know yet that its table was taken out.
    accept(config, name, None, Files::All).map_err(|fault| not_done(name, "purged", &fault))?;
    Ok(SiteChange { site: name.to_owned(), word: "purged", how: String::new() })
}

/// What is left of a name that was removed; if nothing is, the name begins anew, with other uids.
fn begin_anew(config: &Path, name: &str) -> Result<Vec<std::path::PathBuf>, Fault> {
    let Some(mut record) = SiteRecord::open(config)? else { return Ok(Vec::new()) };
    let (left, generation) = (record.left(name), record.generation(name));
    if left.is_empty() && generation.standing == Standing::Removed {
        record.put(name, generation.next())?;
    }
    Ok(left)
}
