//! `bulkhead site`: sites that come and go, each with a file of its own.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words, and the folder of `include`. Never:
//! leaves a file in the folder that the server has refused.
//!
//! A change is made to the folder, and the server that runs reads its configuration again; if it refuses, the change is
//! taken back. So the files say what runs, whichever step the command is killed at.

mod adoption;
mod emptying;
mod folder;
mod list;
mod owned;
mod purge;
mod record;
mod removal;
mod turn;
mod uid_use;
mod uids;
mod write;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use config::Config;
use serde_json::{Value, json};
use supervisor::examine::{Depth, Examiner};
use supervisor::site_names::shown;

use self::folder::{FolderChange, SiteFolder, State};
use crate::admin::give;
use crate::cli::{ServerOptions, SiteCommand};
use crate::fault::Fault;
use crate::left_out::LeftOut;
use crate::table::print;
use crate::{find, locate};

/// How long a server may be busy with something else.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// How the answer to an order begins that the server does not know.
const NOT_AN_ORDER: &str = "the request is not an order";
/// How often it is asked again.
const BUSY_POLL: Duration = Duration::from_millis(50);

/// What a change has come to.
#[derive(Debug)]
struct SiteChange {
    site: String,
    word: &'static str,
    /// How it came: how long the server took, or that none runs.
    how: String,
}

/// Does what was typed.
pub fn site(config: Option<&Path>, command: &SiteCommand) -> Result<ExitCode, Fault> {
    let config = locate::config(config)?;
    match command {
        SiteCommand::List { json } => list::list(&config, *json),
        SiteCommand::Add { name, from, site, adopt, json } => {
            config::check_name(name).map_err(Fault::Usage)?;
            let text = match from {
                Some(from) => read(from)?,
                None => write::text(name, site)?.into_bytes(),
            };
            let how = if *adopt { adoption::State::TakenOver } else { adoption::State::Nobodys };
            adoption::add(&config, name, &text, how, *json)
        }
        SiteCommand::Uids(what) => uids::uids(&config, what),
        SiteCommand::Adopt { name, json } => adoption::adopt(&config, name, *json),
        SiteCommand::Remove { name, purge, json } => {
            let what = if *purge { removal::Leftovers::Deleted } else { removal::Leftovers::Kept };
            removal::remove(&config, name, what, *json)
        }
        SiteCommand::Enable { name } => set(&site_folder(&config)?, &config, name, State::Enabled),
        SiteCommand::Disable { name } => set(&site_folder(&config)?, &config, name, State::Disabled),
    }
}

impl SiteChange {
    /// Says it, with what is left of the site.
    fn say(&self, as_json: bool, left: &Remains) -> Result<ExitCode, Fault> {
        let Self { site, word, how } = self;
        if as_json {
            let paths =
                |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            let (kept, deleted) = match left {
                Remains::Kept(kept) => (paths(kept), Vec::new()),
                Remains::Deleted(deleted) => (Vec::new(), paths(deleted)),
            };
            let said = json!({ "ok": true, "site": site, "done": word, "left": kept, "deleted": deleted });
            print(&format!("{said:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        print(&format!("site {site}: {word}{how}"))?;
        match left {
            Remains::Kept(kept) if !kept.is_empty() => print(&format!(
                "what is left belongs to nobody: {}; `bulkhead site remove --purge {site}` deletes it",
                shown(kept)
            ))?,
            Remains::Deleted(deleted) if !deleted.is_empty() => {
                print(&format!("deleted: {}; logs are kept", shown(deleted)))?;
            }
            Remains::Kept(_) | Remains::Deleted(_) => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What has become of what a site had.
#[derive(Debug)]
enum Remains {
    Kept(Vec<PathBuf>),
    Deleted(Vec<PathBuf>),
}

fn set(folder: &SiteFolder, config: &Path, name: &str, state: State) -> Result<ExitCode, Fault> {
    let file = folder.file(name);
    let (file, word) = match state {
        State::Enabled => (Some(&*file), "enabled"),
        State::Disabled => (None, "disabled"),
    };
    if known(folder, config, name)? == state {
        return print(&format!("site {name}: is {word} already")).map(|()| ExitCode::SUCCESS);
    }
    carry_out(config, name, folder.set(name, state)?, file, word)?.say(false, &Remains::Kept(Vec::new()))
}

/// The folder of a configuration, which may have mistakes: a site that has them must be removable.
fn site_folder(config: &Path) -> Result<SiteFolder, Fault> {
    let folder = config::site_folder(config).map_err(|mistakes| Fault::Usage(mistakes.to_string()))?;
    let folder = folder.ok_or_else(|| {
        Fault::Usage(format!(
            "{} has no folder of sites; add `include = \"sites/*.toml\"` at its top, and create the folder",
            config.display()
        ))
    })?;
    SiteFolder::open(folder)
}

/// What there is of a site that has a file of its own.
fn known(folder: &SiteFolder, config: &Path, name: &str) -> Result<State, Fault> {
    config::check_name(name).map_err(Fault::Usage)?;
    folder.state(name).ok_or_else(|| {
        let file = folder.file(name);
        let where_else = match locate::load_good(config) {
            Ok(judged) => whereabouts(&judged.config, name),
            Err(_) => String::new(),
        };
        Fault::Usage(format!(
            "there is no {}{where_else}; `bulkhead site list` lists the sites",
            file.display()
        ))
    })
}

/// Where a site is that has no file of its own.
fn whereabouts(config: &Config, name: &str) -> String {
    let include = config.include.iter().flat_map(|include| &include.files);
    let file = include.clone().find(|file| file.sites.iter().any(|site| site == name));
    match file {
        Some(file) => format!(" (the site is one of {} in {})", file.sites.len(), file.path.display()),
        None if config.sites.iter().any(|site| site.name == name) => " (the site is in the main file)".into(),
        None => String::new(),
    }
}

/// A file of a site, or standard input.
fn read(from: &Path) -> Result<Vec<u8>, Fault> {
    if from == Path::new("-") {
        let mut text = Vec::new();
        return std::io::stdin().read_to_end(&mut text).map(|_| text).map_err(Fault::io("standard input"));
    }
    std::fs::read(from).map_err(Fault::io(from.display()))
}

/// Has the server know of a change, and keeps it; or takes it back. `file` is what is there after it.
fn carry_out(
    config: &Path,
    name: &str,
    change: FolderChange<'_>,
    file: Option<&Path>,
    word: &'static str,
) -> Result<SiteChange, Fault> {
    let before = Instant::now();
    match accept(config, name, file, Files::Changed) {
        Ok(is_running) => {
            change.keep()?;
            Ok(SiteChange { site: name.to_owned(), word, how: how(is_running, before) })
        }
        Err(fault) => {
            change.take_back()?;
            Err(not_done(name, word, &fault))
        }
    }
}

fn how(is_running: bool, begun: Instant) -> String {
    match is_running {
        true => format!(" (in {:.2} s)", begun.elapsed().as_secs_f64()),
        false => " (no server runs with this configuration)".into(),
    }
}

fn not_done(name: &str, word: &str, fault: &Fault) -> Fault {
    let text = format!("site {name}: not {word}; nothing has changed\n{fault}");
    if matches!(fault, Fault::Usage(_)) { Fault::Usage(text) } else { Fault::Failed(text) }
}

/// Which files of sites a server that runs reads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// Those that it knows to have changed.
    Changed,
    All,
}

/// Has the configuration checked, and read by the server that runs with it; whether there is one.
fn accept(config: &Path, name: &str, file: Option<&Path>, files: Files) -> Result<bool, Fault> {
    file.map_or(Ok(()), |file| is_one_site(file, name))?;
    let server = ServerOptions { config: Some(config.to_owned()), folder: None, pid: None, run_dir: None };
    let run_dir = find::run_dir(&server)?;
    let deadline = Instant::now() + BUSY_MAX;
    let all = json!({ "command": "reload", "dry_run": false });
    // Of all files, the server knows which have changed.
    let seen = json!({ "command": "reload-sites", "site": name });
    let mut order = if files == Files::All { all.clone() } else { seen };
    loop {
        match give(&run_dir, &order) {
            // A server of a version before this one reads all of them.
            Err(Fault::Usage(reason)) if order["dry_run"].is_null() && reason.starts_with(NOT_AN_ORDER) => {
                order = all.clone();
            }
            Err(Fault::Busy(_)) if Instant::now() < deadline => std::thread::sleep(BUSY_POLL),
            Err(Fault::Unreachable(_)) => {
                let judged = locate::judge(config, &Examiner::new(Depth::Check))?;
                let mut left_out = judged.left_out.iter();
                return match left_out.find(|left| Some(left.file.as_path()) == file) {
                    Some(left) => Err(Fault::Usage(left.reason.clone())),
                    None => Ok(false),
                };
            }
            answer => return answer.and_then(|answer| is_taken_in(&answer, name)),
        }
    }
}

/// Whether the site is not left out of what the server has taken in.
fn is_taken_in(answer: &Value, name: &str) -> Result<bool, Fault> {
    let left_out: Option<Vec<LeftOut>> = serde_json::from_value(answer["left_out"].clone())
        .map_err(|error| Fault::Failed(format!("the answer has no list of files: {error}")))?;
    match left_out.into_iter().flatten().find(|left| left.sites.iter().any(|site| site == name)) {
        Some(left) => Err(Fault::Failed(left.text())),
        None => Ok(true),
    }
}

/// The file of a site has one site, of the name of the file.
fn is_one_site(file: &Path, name: &str) -> Result<(), Fault> {
    let sites = config::sites_in(file).map_err(|mistakes| Fault::Usage(mistakes.to_string()))?;
    if sites == [name] {
        return Ok(());
    }
    Err(Fault::Usage(format!(
        "{} has the site {}; the file of a site has one, of the name of the file: `name = \"{name}\"`",
        file.display(),
        sites.join(", ")
    )))
}
