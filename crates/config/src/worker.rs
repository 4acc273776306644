//! The keys of `[[site]]` about its worker: as whom it runs, which program it is, and where it logs.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let two
//! sites write into one log, or share an account unless both say so.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use crate::decode::Table;
use crate::diagnostic::{Problems, quote};
use crate::parse::KeyFault;
use crate::place::At;
use crate::programs::command_of;
use crate::raw::ListedSite;
use crate::raw::site::{RawSite, RawWorker};
use crate::seen::FirstSeen;
use crate::statics_schema::Action;

/// Files in the folder of logs that are no site's.
const OTHER_LOGS: [&str; 2] = ["error.log", "no-site.access.log"];
/// LIMIT: LOGIN_NAME_MAX of useradd(8).
const USER_BYTES_MAX: usize = 32;
/// LIMIT: NAME_MAX, less a day (`.20261121`).
const LOG_NAME_BYTES_MAX: usize = 246;

pub(crate) fn worker(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> RawWorker {
    let shared = table.get("danger_shared_user").and_then(|entry| entry.boolean(problems));
    RawWorker {
        access_log: table.get("access_log").and_then(|entry| entry.string(log_name, problems)),
        user: table.get("user").and_then(|entry| entry.string(user, problems)),
        danger_shared_user: shared.unwrap_or(false),
        is_given: !table.lacks("worker"),
        program: table.get("worker").and_then(|entry| command_of(&entry, dir, problems)),
    }
}

/// A file in the folder of logs.
fn log_name(text: &str) -> Result<(), KeyFault> {
    let rule =
        "a log is the name of a file in `log_dir`, of a-z, A-Z, 0-9, `.`, `_` and `-`, without a folder";
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if text.is_empty() || text.len() > LOG_NAME_BYTES_MAX || text.starts_with('.') || !text.bytes().all(good)
    {
        return Err(KeyFault::with_help(rule, "write for example `\"blog.access.log\"`"));
    }
    if OTHER_LOGS.contains(&text) {
        return Err(KeyFault::new(format!("`{text}` is a log of bulkhead's own; choose another name")));
    }
    Ok(())
}

/// The name of an account.
fn user(text: &str) -> Result<(), KeyFault> {
    let first = |b: u8| b.is_ascii_lowercase() || b == b'_';
    let good = |b: u8| first(b) || b.is_ascii_digit() || b == b'-';
    if text == "root" {
        return Err(KeyFault::with_help(
            "no worker runs as root",
            "name an account that may read the site's files, for example `\"www-data\"`",
        ));
    }
    match text.bytes().next() {
        Some(b) if first(b) && text.bytes().all(good) && text.len() <= USER_BYTES_MAX => Ok(()),
        _ => Err(KeyFault::with_help(
            "a user is the name of an account, of a-z, 0-9, `_` and `-`, as in /etc/passwd",
            "write for example `\"www-data\"`",
        )),
    }
}

/// Logs and accounts that two sites have.
pub(crate) fn check(sites: &[ListedSite], problems: &mut Problems) {
    logs(sites, problems);
    users(sites, problems);
    hooks(sites, problems);
}

/// The usual worker has no functions.
fn hooks(sites: &[ListedSite], problems: &mut Problems) {
    for site in sites.iter().filter(|site| site.is_new() && !site.worker.is_given) {
        for route in &site.routes {
            if let Some(Action::Hook(name)) = &route.action {
                let name = quote(name);
                let message = format!(
                    "`hook` {name} is a function of a worker of your own, and {} has none",
                    site.label
                );
                problems.report_help(
                    route.offset,
                    message,
                    "add for example `worker = [\"bin/my-worker\"]` to the site",
                );
            }
        }
    }
}

/// The log of a site of this name.
pub(crate) fn log_of<'s>(worker: &'s RawWorker, site: Option<&str>) -> Option<Cow<'s, str>> {
    match &worker.access_log {
        Some(log) => Some(Cow::Borrowed(&log.value)),
        None => site.map(|site| Cow::Owned(format!("{site}.access.log"))),
    }
}

fn logs(sites: &[ListedSite], problems: &mut Problems) {
    let mut seen = FirstSeen::new();
    // Those that are written first: where a default is the same, the written one is to be changed.
    for site in sites {
        let Some(name) = &site.name else { continue };
        if site.worker.access_log.is_none() {
            seen.first(format!("{name}.access.log"), site.offset);
        }
    }
    for log in sites.iter().filter_map(|site| site.worker.access_log.as_ref()) {
        if let Some(first) = seen.first(log.value.clone(), log.offset) {
            let place = problems.place(first);
            let message =
                format!("`access_log` {} is another site's as well (at {place})", quote(&log.value));
            let help = "give each site a log of its own";
            problems.report_conflict((log.offset, first), &log.value, message, help);
        }
    }
}

/// SECURITY: whose uid is the same, is kept apart by namespaces alone.
fn users(sites: &[ListedSite], problems: &mut Problems) {
    let mut first_of: HashMap<&str, (&RawSite, &At<String>)> = HashMap::new();
    for (site, user) in sites.iter().filter_map(|site| Some((&**site, site.worker.user.as_ref()?))) {
        let Some((first, at)) = first_of.get(user.value.as_str()) else {
            first_of.insert(&user.value, (site, user));
            continue;
        };
        if !(site.worker.danger_shared_user && first.worker.danger_shared_user) {
            let (name, place) = (quote(&user.value), problems.place(at.offset));
            let message = format!(
                "`user` {name} of {} is that of {} (at {place}), so that no uid keeps them apart",
                site.label, first.label
            );
            let help = "give one of them another `user`, or leave it out; if that is meant, write \
                        `danger_shared_user = true` in both";
            problems.report_conflict((user.offset, at.offset), &user.value, message, help);
        }
    }
}
