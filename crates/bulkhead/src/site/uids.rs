//! `bulkhead site uids`: whose each uid is, and those that sites have left are given back.
//!
//! Runs in: the `bulkhead` command, as root. Sees: the table of uids, the configuration, processes, and
//! [folders](super::owned) of tenants. Never: gives a uid back that a process has, that owns a file in a folder that is
//! known, or of which that is not known.
//!
//! No process has the uid before the search, and none after it, and the site has not come back meanwhile: so nothing of
//! it can be made where the search has been already.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use config::Config;
use serde_json::{Value, json};
use supervisor::directories;
use supervisor::error::range_text;
use supervisor::setup::process_table::process_table;
use supervisor::site_names::generations::{Generations, site_of};
use supervisor::site_names::holders::{Held, Holders};
use supervisor::spawn::uid_range;
use supervisor::spawn::uids::Uids;
use supervisor::spawn::uids_back::{self, BACK_MAX, Back};

use super::folder::{SiteFolder, State};
use super::owned::{self, OwnedFiles, SEARCH_MAX};
use super::record::SiteRecord;
use super::uid_use::{at_work, pids};
use super::{BUSY_MAX, BUSY_POLL};
use crate::admin::{give, printable};
use crate::cli::{ServerOptions, UidsOf};
use crate::fault::Fault;
use crate::find;
use crate::left_out::{self, LeftOut, LeftOutFiles};
use crate::table::{align, print};

/// LIMIT: folders that are named in the answer for people; `--json` has all.
const FOLDERS_SHOWN: usize = 20;
/// Where the kernel has the files of shared memory and of message queues.
const SHARED: [&str; 2] = ["/dev/shm", "/dev/mqueue"];

/// What stands behind a name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The configuration has it.
    InUse,
    /// Its site is disabled, or its table was taken out by hand: it may come back.
    Kept,
    /// Nothing comes by this name any more, or can have it again.
    Left,
}

impl Standing {
    fn word(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::Kept => "kept",
            Self::Left => "left",
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
struct UidLine {
    back: Back,
    standing: Standing,
    /// A process that has it.
    pid: Option<u32>,
}

/// The table, and what it is compared with.
struct UidTable {
    config: Config,
    /// Files of sites with a mistake, of which others stand in the configuration.
    left_out: LeftOutFiles,
    table: Uids,
    state: PathBuf,
    lines: Vec<UidLine>,
}

/// What has become of a uid.
struct UidOutcome {
    back: Back,
    /// Why it is not given back.
    refusal: Option<String>,
    /// The file that it owns.
    file: Option<String>,
}

impl UidOutcome {
    fn refused(back: &Back, refusal: impl Into<String>) -> Self {
        Self { back: back.clone(), refusal: Some(refusal.into()), file: None }
    }
}

/// Lists uids, or gives some back.
pub fn uids(config: &Path, what: &UidsOf) -> Result<ExitCode, Fault> {
    if !rustix::process::geteuid().is_root() {
        return Err(Fault::Usage(
            "a server has uids of its own only where root has started it; run this as root".into(),
        ));
    }
    let record = SiteRecord::open(config)?;
    let view = UidTable::of(config)?;
    if !what.give_back {
        return view.say(what);
    }
    if what.names.is_empty() && !what.all {
        return Err(Fault::Usage(
            "say whose uids are given back: `--give-back NAME`, or `--give-back --all`".into(),
        ));
    }
    if let Some(LeftOut { file, .. }) = view.left_out.0.first() {
        return Err(Fault::Usage(format!(
            "{} has a mistake, so that nobody knows which uids its sites have: correct the file, which `bulkhead check` does not \
             take, and run this again",
            printable(file)
        )));
    }
    let chosen = view.chosen(config, what)?;
    // Other commands are not to wait for a search.
    drop(record);
    let begun = Instant::now();
    let (searched, outcomes) = give_back(config, &view, chosen, &what.search)?;
    say(what, &searched, &outcomes, begun)
}

impl UidTable {
    fn of(path: &Path) -> Result<Self, Fault> {
        // What is in the files that a configuration names does not say whose uids are which.
        let (config, left_out) = left_out::read::<&str>(path, &[])?;
        let (server, state) = (&config.server, config.server.state_dir.clone());
        let written = server.user_range_given.then_some(&server.user_range);
        let range = uid_range::wanted(written, &server.user_range, &state).map_err(failed)?;
        let table = Uids::load(&state, range).map_err(failed)?;
        // Of a table of its own, which is not written: it gives uids to what has none.
        let mut all = Uids::load(&state, 1000..=u32::MAX - 2).map_err(failed)?;
        let specs = process_table(&config, 1, Some(&mut all)).map_err(failed)?;
        let in_use: HashSet<u32> = specs.iter().filter_map(|spec| Some(spec.identity?.id())).collect();
        let pids = pids();
        let has_site = |name: &str| config.sites.iter().any(|site| site.name == name);
        let lines = table.all().map(|(owner, uid)| {
            let is_kept = || site_of(owner).is_some_and(|site| table.is_current(owner) && !has_site(site));
            let standing = match () {
                () if in_use.contains(&uid) => Standing::InUse,
                () if is_kept() => Standing::Kept,
                () => Standing::Left,
            };
            UidLine { back: Back { uid, owner: owner.to_owned() }, standing, pid: pids.get(&uid).copied() }
        });
        let mut lines: Vec<UidLine> = lines.collect();
        lines.sort_by_key(|line| line.back.uid);
        Ok(Self { config, left_out, table, state, lines })
    }

    /// The lines of a name, which is a site's, or as the table has it.
    fn lines_of<'v>(&'v self, name: &'v str) -> impl Iterator<Item = &'v UidLine> {
        self.lines
            .iter()
            .filter(move |line| line.back.owner == name || site_of(&line.back.owner) == Some(name))
    }

    fn say(&self, what: &UidsOf) -> Result<ExitCode, Fault> {
        let is_wanted = |line: &&UidLine| {
            what.names.is_empty()
                || what.names.iter().any(|name| self.lines_of(name).any(|of| of.back == line.back))
        };
        let lines: Vec<&UidLine> = self.lines.iter().filter(is_wanted).collect();
        let share = self.table.share();
        let sites: Vec<&str> = what.names.iter().map(|name| site_of(name).unwrap_or(name.as_str())).collect();
        let left_out = self.left_out.about(&sites);
        let (range, free) = (range_text(self.table.range()), share.size() - u64::from(share.taken));
        if what.json {
            let uids: Vec<Value> = lines
                .iter()
                .map(|line| json!({ "uid": line.back.uid, "name": line.back.owner, "state": line.standing.word(), "pid": line.pid }))
                .collect();
            let said = json!({
                "range": range, "taken": share.taken, "free": free, "uids": uids, "left_out": left_out.0,
            });
            return print(&format!("{said:#}")).map(|()| left_out.say());
        }
        let mut rows = vec![["UID", "NAME", "STATE"].map(str::to_owned).to_vec()];
        rows.extend(lines.iter().map(|line| {
            vec![line.back.uid.to_string(), printable(&line.back.owner), line.standing.word().to_owned()]
        }));
        print(&format!("{}\n\n{} of {range} are given out, {free} are free", align(&rows, &[0]), share.taken))
            .map(|()| left_out.say())
    }

    /// The uids that are to be given back.
    fn chosen(&self, path: &Path, what: &UidsOf) -> Result<Vec<UidLine>, Fault> {
        if what.all {
            return Ok(self.lines.iter().filter(|line| line.standing == Standing::Left).cloned().collect());
        }
        let mut chosen = Vec::new();
        for name in &what.names {
            if self.lines_of(name).next().is_none() {
                let text = format!("no uid was given to {name}; `bulkhead site uids` lists all");
                return Err(Fault::Usage(text));
            }
            let left: Vec<UidLine> =
                self.lines_of(name).filter(|line| line.standing == Standing::Left).cloned().collect();
            if left.is_empty() {
                return Err(Fault::Usage(self.not_left(path, name)));
            }
            chosen.extend(left);
        }
        Ok(chosen)
    }

    fn not_left(&self, path: &Path, name: &str) -> String {
        let is_kept = self.lines_of(name).all(|line| line.standing == Standing::Kept);
        let site = site_of(name).unwrap_or(name);
        let folder = config::site_folder(path).ok().flatten().map(SiteFolder::open).and_then(Result::ok);
        let is_disabled = folder.is_some_and(|folder| folder.state(site) == Some(State::Disabled));
        let why = match (is_kept, is_disabled) {
            (true, true) => format!("site {site} is disabled, and may come back"),
            (true, false) => {
                format!("the table of site {site} was taken out of the configuration, and may come back")
            }
            (false, _) => format!("{name} is in the configuration, and has its uids"),
        };
        format!(
            "{why}; nothing is given back: run `bulkhead site remove {site}` first, which ends that (`--purge` deletes its files and data)"
        )
    }
}

/// Gives back what nothing has.
fn give_back(
    config: &Path,
    view: &UidTable,
    chosen: Vec<UidLine>,
    more: &[PathBuf],
) -> Result<(Vec<String>, Vec<UidOutcome>), Fault> {
    let before = SiteNames::of(&view.state, &chosen)?;
    let mut outcomes: Vec<UidOutcome> = Vec::new();
    let mut rest: Vec<Back> = Vec::new();
    for UidLine { back, pid, .. } in &chosen {
        match at_work(back.uid, *pid)? {
            Some(why) => outcomes.push(UidOutcome::refused(back, why)),
            None => rest.push(back.clone()),
        }
    }
    if rest.is_empty() {
        return Ok((Vec::new(), outcomes));
    }
    let folders = folders(view, &rest, more)?;
    let uids: Vec<u32> = rest.iter().map(|back| back.uid).collect();
    let OwnedFiles { owned, unread, searched } = owned::search(&folders, &uids, SEARCH_MAX)?;
    let mut clean = Vec::new();
    for back in rest {
        match (owned.get(&back.uid), &unread) {
            (Some(file), _) => {
                let why = format!(
                    "{} belongs to it, or to its group; delete that, or give it to somebody else (`chown`)",
                    printable(file)
                );
                outcomes.push(UidOutcome { file: Some(file.clone()), ..UidOutcome::refused(&back, why) });
            }
            (None, Some(unread)) => {
                outcomes.push(UidOutcome::refused(
                    &back,
                    format!("not everything could be searched: {}", printable(unread)),
                ));
            }
            (None, None) => clean.push(back),
        }
    }
    let _record = SiteRecord::open(config)?;
    let now = UidTable::of(config)?;
    let is_as_before = SiteNames::of(&view.state, &chosen)? == before;
    clean.retain(|back| {
        let is_left = now.lines.iter().any(|line| line.back == *back && line.standing == Standing::Left);
        let why = match (is_left && is_as_before, at_work(back.uid, None)) {
            (true, Ok(None)) => return true,
            (true, Ok(Some(why))) => why,
            (true, Err(fault)) => fault.to_string(),
            (false, _) => "it was used again while its files were looked for; run this again".to_owned(),
        };
        outcomes.push(UidOutcome::refused(back, why));
        false
    });
    for some in clean.chunks(BACK_MAX) {
        let refusal = hand_over(config, &now, some).err().map(|fault| fault.to_string());
        outcomes.extend(some.iter().map(|back| UidOutcome {
            back: back.clone(),
            refusal: refusal.clone(),
            file: None,
        }));
    }
    Ok((searched, outcomes))
}

/// What is written down of the sites of some uids.
#[derive(PartialEq, Eq)]
struct SiteNames(Vec<(supervisor::site_names::generations::Generation, Option<Held>)>);

impl SiteNames {
    fn of(state: &Path, lines: &[UidLine]) -> Result<Self, Fault> {
        let generations = Generations::load(state).map_err(failed)?;
        let holders = Holders::load(state).map_err(failed)?;
        let sites = lines.iter().filter_map(|line| site_of(&line.back.owner));
        Ok(Self(sites.map(|site| (generations.get(site), holders.get(site).cloned())).collect()))
    }
}

/// The folders in which a uid of this server may have left something.
fn folders(view: &UidTable, chosen: &[Back], more: &[PathBuf]) -> Result<Vec<PathBuf>, Fault> {
    let config = &view.config;
    let mut folders =
        vec![config.server.state_dir.clone(), config.server.log_dir.clone(), config.dir.clone()];
    for site in &config.sites {
        folders.extend(site.folders().cloned());
        folders.extend(site.templates.iter().map(|templates| templates.folder.clone()));
        folders.extend(site.services.iter().flat_map(|service| &service.read).cloned());
    }
    folders.extend(config.conditioning.filters.iter().flat_map(|filter| &filter.read).cloned());
    // That of a site that has gone, as it was written down.
    let holders = Holders::load(&view.state).map_err(failed)?;
    let sites = chosen.iter().filter_map(|back| site_of(&back.owner));
    folders.extend(sites.filter_map(|site| holders.get(site)).map(|held| PathBuf::from(held.place())));
    folders.extend(SHARED.iter().map(PathBuf::from));
    folders.extend(more.iter().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone())));
    folders.retain(|folder| folder.is_absolute());
    folders.sort();
    folders.dedup();
    Ok(folders)
}

/// Has the server that runs take these out of its table; where none runs, takes them out of the file.
fn hand_over(config: &Path, view: &UidTable, all: &[Back]) -> Result<(), Fault> {
    // SECURITY: whoever else owns the folder could have put a link in the place of the file.
    directories::examine(&view.state).map_err(failed)?;
    uids_back::write(&view.state, all).map_err(failed)?;
    let done = order(config, view, all);
    // One that nobody has taken is of no use to the next order.
    uids_back::remove(&view.state).map_err(failed)?;
    done
}

fn order(config: &Path, view: &UidTable, all: &[Back]) -> Result<(), Fault> {
    let server = ServerOptions { config: Some(config.to_owned()), folder: None, pid: None, run_dir: None };
    let run_dir = find::run_dir(&server)?;
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match give(&run_dir, &json!({ "command": "take-uids-back" })) {
            Err(Fault::Busy(_)) if Instant::now() < deadline => std::thread::sleep(BUSY_POLL),
            Err(Fault::Usage(reason)) if reason.starts_with(super::NOT_AN_ORDER) => {
                return Err(Fault::Failed(
                    "the server that runs is of a version before this one: `bulkhead upgrade` first".into(),
                ));
            }
            Err(Fault::Unreachable(_)) => {
                let owners: Vec<String> = all.iter().map(|back| back.owner.clone()).collect();
                return uid_range::while_unreserved(view.table.range(), || {
                    Uids::load(&view.state, view.table.range().clone())?.take_back(&owners)
                })
                .map_err(failed);
            }
            answer => return answer.map(drop),
        }
    }
}

/// Says which folders were searched, and what has become of each uid.
fn say(
    what: &UidsOf,
    searched: &[String],
    outcomes: &[UidOutcome],
    begun: Instant,
) -> Result<ExitCode, Fault> {
    let is_all = outcomes.iter().all(|outcome| outcome.refusal.is_none());
    let code = if is_all { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if what.json {
        let uids = outcomes.iter().map(|UidOutcome { back, refusal, file }| {
            json!({ "uid": back.uid, "name": back.owner, "given_back": refusal.is_none(), "reason": refusal, "file": file })
        });
        let said = json!({ "ok": is_all, "searched": searched, "uids": uids.collect::<Vec<_>>() });
        return print(&format!("{said:#}")).map(|()| code);
    }
    if outcomes.is_empty() {
        return print("no site has left a uid").map(|()| code);
    }
    if !searched.is_empty() {
        let shown =
            searched.iter().take(FOLDERS_SHOWN).map(|path| printable(path)).collect::<Vec<_>>().join(", ");
        let more = searched.len().saturating_sub(FOLDERS_SHOWN);
        let more = if more > 0 { format!(" and {more} more (`--json` names them)") } else { String::new() };
        print(&format!(
            "searched in {:.2} s, while no process had one of the uids: {shown}{more}",
            begun.elapsed().as_secs_f64()
        ))?;
    }
    for UidOutcome { back: Back { uid, owner }, refusal, .. } in outcomes {
        let owner = printable(owner);
        match refusal {
            None => print(&format!("uid {uid} of {owner}: given back"))?,
            Some(why) => print(&format!("uid {uid} of {owner}: not given back: {why}"))?,
        }
    }
    Ok(code)
}

fn failed(error: supervisor::error::Error) -> Fault {
    Fault::Failed(error.to_string())
}
