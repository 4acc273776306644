//! Databases that other machines hold, and the doors at which services of other machines call for those of this one.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! door stand open to whoever comes, or a data proxy speak to another machine without a certificate of its own.

use std::path::Path;

use wire::data::DOORS_AT;

use crate::decode::Table;
use crate::diagnostic::Problems;
use crate::parse::web;
use crate::place::At;
use crate::raw::site::{RawService, RawSite};
use crate::statics_schema::Target;

/// The word of `engine` for a database that another machine holds.
pub(crate) const REMOTE: &str = "remote";
/// The keys of a source that the other machine has.
const OF_THE_OTHER: [&str; 6] = ["statements", "schema", "database", "user", "password", "connections"];
/// The keys of a service that are about a program of the operator's.
const OF_A_PROGRAM: [&str; 11] = [
    "command",
    "path",
    "read",
    "libraries",
    "network",
    "files",
    "templates",
    "jit",
    "label",
    "takes_connections",
    "environment",
];

/// Where the other machine of a source listens; what is missing was reported.
pub(crate) fn target(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Option<Target> {
    for entry in OF_THE_OTHER.iter().filter_map(|key| table.get(key)) {
        let message =
            format!("`{}` is for the machine that holds the database, and this is not that", entry.key());
        problems.report_help(entry.offset, message, "remove it here, and say it there");
    }
    let examples = [("server_ca", "\"ca.pem\""), ("certificate", "\"web1.pem\""), ("key", "\"web1.key\"")];
    for (key, example) in examples {
        table.require(key, example, problems);
    }
    let entry = table.require("server", "\"db.example.org:7443\"", problems)?;
    let target = entry.parsed(|text| web::target(text, dir), problems)?;
    if matches!(target.value, Target::Unix(_)) {
        let message = "another machine is not at a Unix socket";
        problems.report_help(entry.offset, message, "write a host and a port: `\"db.example.org:7443\"`");
        return None;
    }
    Some(target.value)
}

/// A certificate is of use with its key, and where TLS is spoken.
pub(crate) fn check_identity(table: &Table<'_>, problems: &mut Problems) {
    let (certificate, key) = (table.get("certificate"), table.get("key"));
    match (&certificate, &key) {
        (Some(entry), None) => {
            let message = "`certificate` is shown to a server by who has its key, and there is no `key`";
            problems.report_help(entry.offset, message, "add for example `key = \"web1.key\"`");
        }
        (None, Some(entry)) => {
            let message = "`key` is that of a `certificate`, and there is none";
            problems.report_help(entry.offset, message, "add for example `certificate = \"web1.pem\"`");
        }
        _ => {}
    }
    if let Some(entry) = certificate.filter(|_| table.lacks("server_ca")) {
        let message = "`certificate` is shown under TLS, which is spoken where there is a `server_ca`";
        problems.report_help(entry.offset, message, "add for example `server_ca = \"ca.pem\"`");
    }
}

/// Where `remote` stands in a service, if it is true; then nothing else may be said of its program.
pub(crate) fn door(table: &Table<'_>, problems: &mut Problems) -> Option<usize> {
    let entry = table.get("remote")?;
    if !entry.boolean(problems)? {
        return None;
    }
    for entry in OF_A_PROGRAM.iter().filter_map(|key| table.get(key)) {
        let message = format!("`{}` is for a service of this machine, and this one is `remote`", entry.key());
        problems.report_help(entry.offset, message, "remove one of the two");
    }
    Some(entry.offset)
}

/// Below which path the doors of a service are.
pub(crate) fn path(name: Option<&str>, offset: usize) -> Option<At<String>> {
    name.map(|name| At::default(format!("{DOORS_AT}/{name}"), offset))
}

/// Doors are where their callers look for them, and open to nobody without a certificate.
pub(crate) fn check(site: &RawSite, problems: &mut Problems) {
    let doors = site.services.iter().filter_map(|service| Some((service, service.remote?)));
    for (service, offset) in doors {
        has_certificates(site, service, offset, problems);
        if site.path.as_deref().is_some_and(|path| path != "/") {
            let message = format!(
                "{} is `remote`, whose callers look for `{DOORS_AT}` at the top of a host, and {} has a `path`",
                service.label, site.label
            );
            problems.report_help(offset, message, "move it to a site without `path`");
        }
        if service.data.is_empty() {
            let message =
                format!("{} is `remote`, which is for calling databases, and has no `data`", service.label);
            problems.report_help(offset, message, "add for example `data = [\"catalog\"]`");
        }
    }
}

fn has_certificates(site: &RawSite, service: &RawService, offset: usize, problems: &mut Problems) {
    if site.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()) {
        return;
    }
    let message = format!(
        "{} is `remote`, so whoever calls it shows a certificate, and {} asks for none",
        service.label, site.label
    );
    let help = "add `certificates`, and `client_ca = \"ca.pem\"`, the authority of the callers' certificates";
    problems.report_help(offset, message, help);
}
