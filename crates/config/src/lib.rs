//! The configuration file: TOML text in, a checked `Config` or every mistake at once out.
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
mod check;
mod conditioning;
mod decode;
mod diagnostic;
mod document;
mod examine;
mod files;
mod foreign;
mod parse;
mod place;
mod raw;
#[cfg(test)]
mod reference;
mod routes;
mod rules;
mod schema;
mod sections;
mod sites;
mod statics;
mod statics_schema;
mod tls;
mod worker;

use std::path::Path;

pub use backends::{Backend, ProxyHeader, Speech, Talk};
pub use check::lexical;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use examine::{Content, Examine, Finding, Setting, Subject};
pub use rewrite::Matcher;
pub use rules::LAYERS;
pub use schema::{
    AccessFormat, CertificateFiles, Checks, ClientCertificates, Conditioning, Config, Filter, Isolation,
    Limits, Listener, Log, Network, Priority, Restart, Resumption, Server, Service, Site, SiteLimits,
    SiteTls, Tls, TlsVersion, Worker,
};
pub use statics_schema::{Action, Auth, Compress, Encoding, Redirect, Route, Statics, Target, Terms};

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
        let name = path.display().to_string();
        let (text, dir) = files::read(path, &name)?;
        build(&text, &name, &dir, files::check)
    }

    /// The same, with what `examine` finds in the files and folders that the file names. What is to run is loaded so, and
    /// what `bulkhead check` checks: one refuses what the other does.
    ///
    /// # Errors
    ///
    /// As for `load`.
    pub fn load_with(path: &Path, examine: &dyn Examine) -> Result<Config, Diagnostics> {
        let name = path.display().to_string();
        let (text, dir) = files::read(path, &name)?;
        build(&text, &name, &dir, |raw, problems| {
            files::check(raw, problems);
            examine::all(raw, &dir, examine, problems);
        })
    }

    /// Checks `text` without touching the file system. `name` is what diagnostics call the file; `dir`, which
    /// must be absolute, is where relative paths count from.
    ///
    /// # Errors
    ///
    /// Every mistake found, each with its place.
    pub fn parse(text: &str, name: &str, dir: &Path) -> Result<Config, Diagnostics> {
        build(text, name, dir, |raw, problems| check::folders(raw, check::lexical, problems))
    }
}

/// Runs all stages; `last_checks` are those that differ between a file on disk and a mere text.
fn build(
    text: &str,
    name: &str,
    dir: &Path,
    last_checks: impl FnOnce(&RawConfig, &mut Problems<'_>),
) -> Result<Config, Diagnostics> {
    let mut problems = Problems::new(name, text);
    if !dir.is_absolute() {
        problems.report(0, format!("the folder {} is not an absolute path", dir.display()));
    }
    let raw = document::read(text, dir, &mut problems);
    if let Some(raw) = &raw {
        check::all(raw, &mut problems);
        last_checks(raw, &mut problems);
    }
    let config = raw.and_then(|raw| raw.finish(dir));
    match config {
        Some(config) if problems.is_empty() => Ok(Config { warnings: problems.into_warnings(), ..config }),
        None if problems.is_empty() => {
            problems
                .report(0, "bulkhead found this file wrong but cannot say why; this is a bug in bulkhead");
            Err(problems.into_diagnostics())
        }
        _ => Err(problems.into_diagnostics()),
    }
}
