//! `bulkheadd`, the launcher: root, as only its reaper, its closer and its copies are beside it.
//!
//! Runs as: root (or the user who starts it, with the layers that this user can apply). Sees: the configuration
//! file, exits of its children, and small messages of enumerations and integers from them. Never: a byte from
//! the network, a string from a child, TLS, HTTP, JSON, a database, a second thread.
//!
//! From the bottom: the crate `supervisor` starts the processes in their jails, owns them, and says what each is sent
//! before it serves; `components` are the launcher's other concerns, one a file, and `transactions` the changes under
//! way; `launcher` has the event loop, and is alone in knowing all of them. Each uses only what is below. The guard, a
//! program of its own, is built on `supervisor` as well.
//!
//! Design: `okld` in Krohn, *Building Secure High-Performance Web Services with OKWS*, USENIX ATC 2004, section 4.1.

mod components;
mod entry;
mod given;
mod launcher;
mod secret;
mod site_watch;
mod staged;
mod transactions;
mod upgrade;
mod upgrades;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::ExitCode;
use std::rc::Rc;

use config::{Before, Cache, Config, Diagnostics, Judged, Judgement, Tolerance};

use components::registry::Started;
use entry::Entry;
use given::Given;
use site_watch::SiteWatch;
use supervisor::examine::{Depth, Examiner};
use supervisor::good_copies::GoodCopies;
use supervisor::opened_files::OpenedFiles;

/// What the user is told who starts it with the wrong words.
const USAGE: &str = "usage: bulkheadd CONFIG\n\nThe launcher of Bulkhead. It is started by `bulkhead run CONFIG`, \
                     which also explains what is wrong with a configuration.";

/// LIMIT: mistakes in files of sites that a start says: each may be one tenant's, and whoever reads this looks for
/// another's.
const MISTAKES_SAID_MAX: usize = 100;
/// LIMIT: bytes of each: a path is said as a whole, however long it is.
const MISTAKE_BYTES_MAX: usize = 8 << 10;

/// The whole program.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "reap").is_some() {
        return supervisor::spawn::reaper::main();
    }
    if arguments.next_if(|first| first == "close").is_some() {
        return supervisor::foreign::main();
    }
    if arguments.next_if(|first| first == "keep-core").is_some() {
        return supervisor::spawn::core_copy::main(arguments);
    }
    if arguments.peek().is_some_and(|first| first == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    // Before the configuration is read: what it names may lie where nobody answers.
    config::open_beside(Rc::new(OpenedFiles::default()));
    let (entry, words) = Entry::parse(arguments.collect());
    let Some(started) = Started::parse(words.into_iter()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // Before anything is opened: the first free number could be that of a passed socket.
    match (entry, Given::take()) {
        (Some(entry), Ok(given)) => upgrade::main(&entry, started, given),
        (Some(entry), Err(error)) => upgrade::cannot_begin(&entry, &error.to_string()),
        (None, Ok(given)) => start(started, given),
        (None, Err(error)) => upgrade::failed(&error.to_string()),
    }
}

/// A launcher that nobody was before.
fn start(started: Started, given: Given) -> ExitCode {
    let mut read_files = config::Cache::default();
    // What changes while the files are read is not missed.
    let mut site_watch = SiteWatch::default();
    site_watch.look(&started.config);
    let judged = match judge(&started, &mut read_files) {
        Ok(judged) => judged,
        Err(diagnostics) => {
            eprintln!("{diagnostics}");
            return ExitCode::from(2);
        }
    };
    let left_out = judged.left_out.iter().filter_map(|left| left.file.file_name()).map(OsStr::to_owned);
    site_watch.all_is_read(&judged.config, left_out);
    let launcher = launcher::Launcher::new(judged, (read_files, site_watch), started, given);
    upgrade::ended(launcher.and_then(launcher::Launcher::run))
}

/// The configuration for a start: where a file of sites is wrong, the copy of it that was good last stands in.
fn judge(started: &Started, read_files: &mut Cache) -> Result<Judged, Diagnostics> {
    let copies = config::state_dir(&started.config).ok().map(|state| GoodCopies::of(&state));
    let kept = |name: &OsStr| {
        let copies = copies.as_ref()?;
        copies.read(name).unwrap_or_else(|error| {
            let path = copies.folder().join(name);
            eprintln!(
                "{}: {error}; the copy of the file as it was good last does not stand in",
                path.display()
            );
            None
        })
    };
    let (before, refused) = (Before::Kept(&kept), BTreeMap::new());
    let judgement = Judgement { before, tolerance: Tolerance::EachFile, only: None, refused: &refused };
    let judged =
        Config::judge(&started.config, &Examiner::new(Depth::Start), (read_files, None), &judgement)?;
    for (mistake, _) in judged.mistakes.iter().take(MISTAKES_SAID_MAX) {
        let said = mistake.to_string();
        eprintln!("{}", &said[..said.floor_char_boundary(MISTAKE_BYTES_MAX)]);
    }
    let more = judged.mistakes.len().saturating_sub(MISTAKES_SAID_MAX);
    if more > 0 {
        eprintln!("and {more} more mistakes in files of sites; `bulkhead check` says all");
    }
    Ok(judged)
}
