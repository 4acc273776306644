//! The configuration file, and the files of sites that it includes: TOML text in, a checked `Config` or every mistake
//! at once out.
//!
//! Runs in: the launcher, as root, before it starts anything; and the `bulkhead` command, as whoever types
//! it. Input: the operator's file, which is trusted to mean well and not to be right. Must never: stop at
//! the first mistake, guess at a value, run anything, or pull in more than the `toml` parser (this crate is
//! part of the only program that is root).
//!
//! Stages: text -> [`toml::de::DeTable`] (`document`) -> `RawConfig`, whose values remember their places
//! (`sections`, `conditioning`, `sites`) -> cross checks (`check`, `files`) -> [`Config`].

mod answers;
mod backends;
mod cache;
mod changed;
mod check;
mod conditioning;
mod data;
mod data_schema;
mod decode;
mod diagnostic;
mod differing;
mod document;
mod examine;
mod files;
mod foreign;
mod include;
mod judge;
mod keys;
mod known;
mod lexical;
mod needs;
mod parse;
mod part;
mod paths;
mod place;
mod portions;
mod programs;
mod raw;
mod readers;
#[cfg(test)]
mod reference;
mod remote;
mod routes;
mod rules;
mod schema;
mod sections;
mod seen;
mod service;
mod shared_list;
mod sites;
mod source;
mod statics;
mod statics_schema;
mod taken;
mod tls;
mod worker;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use cache::Cache;
pub use data_schema::{DataSource, Database, DatabaseServer, Engine, Identity, RemoteServer, Secured};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use examine::{Content, Examine, Finding, ProgramKind, Setting, Subject};
pub use include::SUFFIX as SITE_FILE_SUFFIX;
pub use judge::{Before, Judged, Judgement, LeftOut, StandIn, Tolerance};
pub use lexical::lexical;
pub use paths::{
    ANSWER_TIME, Beside, Class, Found, Held, Kind, Neighbours, Opener, PATH_KEYS, PathFault, PathKey,
    PathOwner, Placement, Versions, class_of, open_beside, open_here,
};
pub use raw::site::DOOR;
pub use rewrite::Matcher;
pub use rules::{FILE_BYTES_MAX, LAYERS};
pub use schema::{
    AccessFormat, CertificateFiles, Checks, ClientCertificates, Conditioning, Config, Filter, Include,
    Isolation, Limits, Listener, Log, Network, Priority, PublicValue, Recycle, Restart, Resumption, Server,
    Service, Site, SiteFile, SiteLimits, SiteTls, Start, Templates, Tls, TlsVersion, Worker, Workers,
};
pub use shared_list::SharedList;
pub use source::Source;
pub use statics_schema::{
    Action, Auth, Backend, Compress, Encoding, ProxyHeader, Redirect, Route, Speech, Statics, Talk, Target,
    Terms,
};

use diagnostic::Problems;
use raw::RawConfig;

impl Config {
    /// Reads the file at `path`, checks it, and checks that every folder and program it names exists.
    ///
    /// Relative paths in the file count from the file's folder, wherever this process was started.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place; or the one reason why the file cannot be read.
    pub fn load(path: &Path) -> Result<Config, Diagnostics> {
        let loaded = load(path, &mut Cache::default(), files::check);
        loaded.map(|(config, _)| config)
    }

    /// The same, with what `examine` finds in the files and folders that the file names. What is to run is loaded so,
    /// and what `bulkhead check` checks: one refuses what the other does.
    ///
    /// # Errors
    ///
    /// As for `load`.
    pub fn load_with(path: &Path, examine: &dyn Examine) -> Result<Config, Diagnostics> {
        Self::load_again(path, examine, &mut Cache::default()).map(|(config, _)| config)
    }

    /// The same, once more: of files of sites that are as `cache` remembers them, nothing is read, and nothing that
    /// they name is looked for. What is found right is kept in `cache`. The texts come along.
    ///
    /// # Errors
    ///
    /// As for `load`.
    pub fn load_again(
        path: &Path,
        examine: &dyn Examine,
        cache: &mut Cache,
    ) -> Result<(Config, Source), Diagnostics> {
        load(path, cache, |raw, dir, problems| {
            files::check(raw, dir, problems);
            examine::all(raw, dir, examine, problems);
        })
    }

    /// The same, if of the files in the folder of `include` only those of these names can have changed since `cache`
    /// was last filled: others are not even looked at. If anything is wrong, all are, so that all is said.
    ///
    /// # Errors
    ///
    /// As for `load`.
    pub fn load_changed(
        path: &Path,
        examine: &dyn Examine,
        cache: &mut Cache,
        changed: &BTreeSet<OsString>,
    ) -> Result<(Config, Source), Diagnostics> {
        match changed::load(path, examine, cache, (changed, changed::Unseen::Looked)) {
            Some(loaded) => Ok(loaded),
            None => Self::load_again(path, examine, cache),
        }
    }

    /// The configuration of texts that were read before, and that run, whatever is in the files now. With `examine`,
    /// what these texts name on disk is examined as well. A certificate need not be there any more.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place.
    pub fn of_source(source: &Source, examine: Option<&dyn Examine>) -> Result<Config, Diagnostics> {
        let dir = source.path.parent().unwrap_or(Path::new("/"));
        let problems = Problems::new(&source.path.display().to_string(), &source.main);
        let check = |raw: &RawConfig, dir: &Path, problems: &mut Problems| {
            files::check_running(raw, dir, problems);
            examine.into_iter().for_each(|examine| examine::all(raw, dir, examine, problems));
        };
        let included: document::ReadFolder<'_> = &|_, _| source.site_files().collect();
        build(&source.main, dir, included, problems, check).map(|built| built.config)
    }

    /// Checks `text` without touching the file system: what it includes is not read. `name` is what diagnostics call
    /// the file; `dir`, which must be absolute, is where relative paths count from.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place.
    pub fn parse(text: &str, name: &str, dir: &Path) -> Result<Config, Diagnostics> {
        let nothing: document::ReadFolder<'_> = &|_, _| Vec::new();
        let problems = Problems::new(name, text);
        let check = |raw: &RawConfig, _: &Path, problems: &mut Problems| {
            check::folders(raw, &lexical, problems);
        };
        build(text, dir, nothing, problems, check).map(|built| built.config)
    }
}

/// Reads a file, and those that it includes.
fn load(
    path: &Path,
    cache: &mut Cache,
    last_checks: impl FnOnce(&RawConfig, &Path, &mut Problems),
) -> Result<(Config, Source), Diagnostics> {
    let name = path.display().to_string();
    let (text, dir) = files::read(path, &name)?;
    cache.begin(&text);
    let mut problems = Problems::new(&name, &text);
    cache.next().into_iter().for_each(|next| problems.go_on_at(next));
    let (known, opener) = (&*cache, &Opener::of(&dir));
    let built = build(
        &text,
        &dir,
        &|folder, problems| include::read(folder, (opener, None), known, problems),
        problems,
        last_checks,
    )?;
    cache.keep(built.included, built.next, &built.config);
    Ok((built.config, Source::of(path, &text, cache.texts())))
}

/// The folder of the files of sites, if the file at `path` has `include`; whatever else is in the file may be wrong.
///
/// # Errors
///
/// `include` is wrong, or the file cannot be read or parsed.
pub fn site_folder(path: &Path) -> Result<Option<PathBuf>, Diagnostics> {
    let name = path.display().to_string();
    let (text, dir) = files::read(path, &name)?;
    let mut problems = Problems::new(&name, &text);
    let folder = document::include_of(&text, &dir, &mut problems);
    if problems.is_empty() { Ok(folder) } else { Err(problems.into_diagnostics()) }
}

/// The folder that the file at `path` has for `state_dir`; whatever else is in the file may be wrong.
///
/// # Errors
///
/// `state_dir` is wrong, or the file cannot be read or parsed.
pub fn state_dir(path: &Path) -> Result<PathBuf, Diagnostics> {
    let name = path.display().to_string();
    let (text, dir) = files::read(path, &name)?;
    let mut problems = Problems::new(&name, &text);
    let folder = document::state_dir_of(&text, &dir, &mut problems);
    folder.filter(|_| problems.is_empty()).ok_or_else(|| problems.into_diagnostics())
}

/// The names of the sites in a file of sites.
///
/// # Errors
///
/// Every mistake in the file alone; what is wrong beside other files is not known here.
pub fn sites_in(path: &Path) -> Result<Vec<String>, Diagnostics> {
    let name = path.display().to_string();
    let (text, _) = files::read(path, &name)?;
    let mut problems = Problems::new(&name, &text);
    let sites = document::included(path, &text, 0, &mut problems).unwrap_or_default();
    if problems.is_empty() {
        Ok(sites.into_iter().filter_map(|site| site.name).collect())
    } else {
        Err(problems.into_diagnostics())
    }
}

/// Whether a site may have this name.
///
/// # Errors
///
/// Why not, and what to write.
pub fn check_name(name: &str) -> Result<(), String> {
    parse::names::name(name)
        .map_err(|fault| format!("bad name {}: {}", diagnostic::quote(name), fault.in_words()))
}

/// Milliseconds of a duration such as `10s`.
///
/// # Errors
///
/// Why it is none, and what to write.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    parse::units::duration_ms(text).map_err(|fault| fault.in_words())
}

/// Bytes of a size such as `64KiB`.
///
/// # Errors
///
/// Why it is none, and what to write.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    parse::units::size_bytes(text).map_err(|fault| fault.in_words())
}

/// A configuration, and what is to be remembered of it.
struct Built {
    config: Config,
    included: Vec<known::ReadFile>,
    /// The offset of the next text.
    next: usize,
}

/// Runs all stages; `last_checks` are those that differ between a file on disk and a mere text.
fn build(
    text: &str,
    dir: &Path,
    read_folder: document::ReadFolder<'_>,
    mut problems: Problems,
    last_checks: impl FnOnce(&RawConfig, &Path, &mut Problems),
) -> Result<Built, Diagnostics> {
    let raw = check_built(text, dir, read_folder, &mut problems, last_checks);
    finish_built(raw, dir, problems)
}

/// Runs all stages in which mistakes are found.
fn check_built(
    text: &str,
    dir: &Path,
    read_folder: document::ReadFolder<'_>,
    problems: &mut Problems,
    last_checks: impl FnOnce(&RawConfig, &Path, &mut Problems),
) -> Option<RawConfig> {
    if !dir.is_absolute() {
        problems.report(0, format!("the folder {} is not an absolute path", dir.display()));
    }
    let raw = document::read(text, dir, read_folder, problems);
    if let Some(raw) = &raw {
        check::all(raw, problems);
        last_checks(raw, dir, problems);
    }
    raw
}

/// The configuration, if there were none.
fn finish_built(raw: Option<RawConfig>, dir: &Path, mut problems: Problems) -> Result<Built, Diagnostics> {
    match raw.and_then(|raw| raw.finish(dir)) {
        Some((config, included)) if problems.is_empty() => {
            let next = problems.next();
            Ok(Built { config: Config { warnings: problems.into_warnings(), ..config }, included, next })
        }
        None if problems.is_empty() => {
            problems
                .report(0, "bulkhead found this file wrong but cannot say why; this is a bug in bulkhead");
            Err(problems.into_diagnostics())
        }
        _ => Err(problems.into_diagnostics()),
    }
}
