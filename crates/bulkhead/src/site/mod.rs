//! `bulkhead site`: sites that come and go, each with a file of its own.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words, and the folder of `include`. Never: leaves a
//! file in the folder that the server has refused.
//!
//! A change is made to the folder, and the server that runs reads its configuration again; if it refuses, the change is taken
//! back. So the files say what runs, whichever step the command is killed at.

mod folder;
mod write;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use config::Config;
use serde_json::{Value, json};
use supervisor::examine::{Depth, Examiner};

use self::folder::{Change, SiteFolder, State};
use crate::admin::{give, printable};
use crate::cli::{Server, SiteCommand};
use crate::fault::Fault;
use crate::table::{align, print};
use crate::{find, locate};

/// How long a server may be busy with something else.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// How the answer to an order begins that the server does not know.
const NOT_AN_ORDER: &str = "the request is not an order";
/// How often it is asked again.
const BUSY_POLL: Duration = Duration::from_millis(50);

/// Does what was typed.
pub fn site(config: Option<&Path>, command: &SiteCommand) -> Result<ExitCode, Fault> {
    let config = locate::config(config)?;
    let folder = || site_folder(&config);
    match command {
        SiteCommand::List { json } => list(&config, *json),
        SiteCommand::Add { name, from, site } => {
            config::check_name(name).map_err(Fault::Usage)?;
            let text = match from {
                Some(from) => read(from)?,
                None => write::text(name, site)?.into_bytes(),
            };
            let folder = folder()?;
            if folder.state(name).is_some() {
                let help = format!(
                    "`bulkhead site remove {name}` removes it, `enable {name}` enables a disabled one"
                );
                return Err(Fault::Failed(format!("there is a site {name} already; {help}")));
            }
            let change = folder.add(name, &text)?;
            carry_out(&config, name, change, Some(&folder.file(name)), "added")
        }
        SiteCommand::Remove { name } => {
            let folder = folder()?;
            let was = known(&folder, &config, name)?;
            let change = folder.remove(name)?;
            match was {
                State::Enabled => carry_out(&config, name, change, None, "removed"),
                State::Disabled => {
                    change.keep()?;
                    print(&format!("site {name}: removed; it was disabled")).map(|()| ExitCode::SUCCESS)
                }
            }
        }
        SiteCommand::Enable { name } => set(&folder()?, &config, name, State::Enabled),
        SiteCommand::Disable { name } => set(&folder()?, &config, name, State::Disabled),
    }
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
    carry_out(config, name, folder.set(name, state)?, file, word)
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
        let where_else = match Config::load(config) {
            Ok(config) => whereabouts(&config, name),
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
    change: Change<'_>,
    file: Option<&Path>,
    word: &str,
) -> Result<ExitCode, Fault> {
    let before = Instant::now();
    let accepted = accept(config, name, file);
    match accepted {
        Ok(is_running) => {
            change.keep()?;
            let then = match is_running {
                true => format!("in {:.2} s", before.elapsed().as_secs_f64()),
                false => "no server runs with this configuration".into(),
            };
            print(&format!("site {name}: {word} ({then})")).map(|()| ExitCode::SUCCESS)
        }
        Err(fault) => {
            change.take_back()?;
            let text = format!("site {name}: not {word}; nothing has changed\n{fault}");
            Err(if matches!(fault, Fault::Usage(_)) { Fault::Usage(text) } else { Fault::Failed(text) })
        }
    }
}

/// Has the configuration checked, and read by the server that runs with it; whether there is one.
fn accept(config: &Path, name: &str, file: Option<&Path>) -> Result<bool, Fault> {
    file.map_or(Ok(()), |file| is_one_site(file, name))?;
    let server = Server { config: Some(config.to_owned()), folder: None, pid: None, run_dir: None };
    let run_dir = find::run_dir(&server)?;
    let deadline = Instant::now() + BUSY_MAX;
    // Of all files, the server knows which have changed.
    let mut order = json!({ "command": "reload-sites" });
    loop {
        match give(&run_dir, &order) {
            // A server of a version before this one reads all of them.
            Err(Fault::Usage(reason)) if order["dry_run"].is_null() && reason.starts_with(NOT_AN_ORDER) => {
                order = json!({ "command": "reload", "dry_run": false });
            }
            Err(Fault::Busy(_)) if Instant::now() < deadline => std::thread::sleep(BUSY_POLL),
            Err(Fault::Unreachable(_)) => {
                let checked = Config::load_with(config, &Examiner::new(Depth::Check));
                return checked.map(|_| false).map_err(|mistakes| Fault::Usage(mistakes.to_string()));
            }
            answer => return answer.map(|_| true),
        }
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

/// Lists the sites of a configuration, also those that are disabled.
fn list(config: &Path, as_json: bool) -> Result<ExitCode, Fault> {
    let loaded = locate::load(config)?;
    let file_of = |name: &str| -> PathBuf {
        let files = loaded.include.iter().flat_map(|include| &include.files);
        let own = files.clone().find(|file| file.sites.iter().any(|site| site == name));
        own.map_or_else(|| config.to_owned(), |file| file.path.clone())
    };
    let mut sites: Vec<Value> = Vec::new();
    for site in &loaded.sites {
        let file = file_of(&site.name).display().to_string();
        sites.push(json!({ "name": site.name, "enabled": true, "host": site.hosts, "path": site.path, "file": file }));
    }
    if let Some(include) = &loaded.include {
        let folder = SiteFolder::open(include.folder.clone())?;
        let disabled = folder.names()?.into_iter().filter(|(_, state)| *state == State::Disabled);
        sites.extend(disabled.map(|(name, _)| {
            let file = folder.file(&name).display().to_string() + ".disabled";
            json!({ "name": name, "enabled": false, "host": [], "path": null, "file": file })
        }));
    }
    if as_json {
        print(&format!("{:#}", json!({ "sites": sites })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["SITE", "STATE", "HOSTS", "FILE"].map(str::to_owned).to_vec()];
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    rows.extend(sites.iter().map(|site| {
        let hosts = site["host"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        let state = if site["enabled"] == true { "enabled" } else { "disabled" };
        vec![text(&site["name"]), state.to_owned(), hosts, text(&site["file"])]
    }));
    print(&align(&rows, &[])).map(|()| ExitCode::SUCCESS)
}
