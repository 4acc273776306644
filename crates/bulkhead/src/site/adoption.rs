//! `bulkhead site add` and `adopt`: who comes by the name of a site, and whether with what the one before has left.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words, the folder of sites and the state
//! folder. Never: asks; a script is told what to write.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use supervisor::site_names::generations::{Generation, Standing};
use supervisor::site_names::owner::Owner;
use supervisor::site_names::shown;

use super::record::{self, SiteRecord};
use super::{Files, Remains, SiteChange, accept, carry_out, how, not_done, site_folder};
use crate::fault::Fault;
use crate::table::print;

/// What the new site has of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Nobodys,
    /// All of it: uids, files and data.
    TakenOver,
}

/// Adds a site.
pub fn add(config: &Path, name: &str, text: &[u8], what: State, as_json: bool) -> Result<ExitCode, Fault> {
    let folder = site_folder(config)?;
    if folder.state(name).is_some() {
        let help =
            format!("`bulkhead site remove {name}` removes it, `enable {name}` enables a disabled one");
        return Err(Fault::Failed(format!("there is a site {name} already; {help}")));
    }
    let mut record = SiteRecord::open(config)?;
    let before = record.as_ref().map(|record| record.generation(name)).unwrap_or_default();
    if let Some(record) = record.as_mut().filter(|_| what == State::Nobodys) {
        let left = record.left(name);
        if !left.is_empty() && !matches!(record::holder(config, name), Ok(Some(_))) {
            return refused(name, &left, as_json);
        }
        // Nothing is left of one whose removal was not finished.
        if left.is_empty() && before.standing == Standing::Removed {
            record.put(name, before.next())?;
        }
    }
    let change = folder.add(name, text)?;
    let adopted = match (what, record.as_mut()) {
        (State::TakenOver, Some(record)) => take_over(config, name, record, &before),
        _ => Ok(()),
    };
    if let Err(fault) = adopted {
        change.take_back()?;
        return Err(not_done(name, "added", &fault));
    }
    let done = carry_out(config, name, change, Some(&folder.file(name)), "added");
    if let (Err(_), State::TakenOver, Some(record)) = (&done, what, record.as_mut()) {
        record.put(name, before)?;
    }
    done?.say(as_json, &Remains::Kept(Vec::new()))
}

/// Has the site that the configuration has take over what is left of its name.
pub fn adopt(config: &Path, name: &str, as_json: bool) -> Result<ExitCode, Fault> {
    config::check_name(name).map_err(Fault::Usage)?;
    let begun = Instant::now();
    let Some(mut record) = SiteRecord::open(config)? else {
        return Err(Fault::Usage(format!(
            "nothing is left of a site {name}: no server has run with this configuration"
        )));
    };
    let before = record.generation(name);
    take_over(config, name, &mut record, &before)?;
    match accept(config, name, None, Files::All) {
        Ok(is_running) => {
            let done = SiteChange { site: name.to_owned(), word: "adopted", how: how(is_running, begun) };
            done.say(as_json, &Remains::Kept(Vec::new()))
        }
        Err(fault) => {
            record.put(name, before)?;
            Err(not_done(name, "adopted", &fault))
        }
    }
}

/// Writes down that whoever the configuration has now is who had the name.
fn take_over(config: &Path, name: &str, record: &mut SiteRecord, before: &Generation) -> Result<(), Fault> {
    let holder = record::holder(config, name)?;
    let holder =
        holder.ok_or_else(|| Fault::Usage(format!("there is no site {name} in the configuration")))?;
    if holder.owner == Owner::Unknown {
        return Err(Fault::Failed(format!(
            "site {name}: its `root` cannot be looked at now, so that nobody could tell whose the site is; try again when it can"
        )));
    }
    record.put(name, before.with(Standing::Adopted(holder)))
}

/// Says that there is something left, and both remedies.
fn refused(name: &str, left: &[PathBuf], as_json: bool) -> Result<ExitCode, Fault> {
    let remedies =
        [format!("bulkhead site remove --purge {name}"), format!("bulkhead site add --adopt {name} ...")];
    let error = format!(
        "site {name}: not added; a site of this name has left {}; nothing has changed\n`{}` deletes it; `{}` has the new site take it \
         over, with the uids of the one before",
        shown(left),
        remedies[0],
        remedies[1]
    );
    if !as_json {
        return Err(Fault::Failed(error));
    }
    let left: Vec<String> = left.iter().map(|path| path.display().to_string()).collect();
    let said = json!({ "ok": false, "site": name, "error": error, "left": left, "remedies": remedies });
    print(&format!("{said:#}"))?;
    Ok(ExitCode::FAILURE)
}
