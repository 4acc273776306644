//! Decoding of `[[site.route]]`, and of what a site and a route have in common: who may ask.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! route do two things, or nothing at all.

use std::path::{Path, PathBuf};

use crate::backends::{self, Talk};
use crate::decode::{Entry, Table};
use crate::diagnostic::{Problems, quote};
use crate::parse::{names, networks, web};
use crate::place::At;
use crate::rules;
use crate::statics_schema::{Action, Auth, Matcher, Redirect, Route, Target, Terms};

/// What a redirect's status may be.
const STATUSES: [u64; 5] = [301, 302, 303, 307, 308];

/// LIMIT: each network is compared with the address of every request.
const NETWORKS_MAX: usize = 256;

/// The keys that say what a route does.
const ACTIONS: [&str; 5] = ["redirect", "rewrite", "upstream", "fastcgi", "hook"];

/// A route, with its places.
pub(crate) struct RawRoute {
    /// Where its header stands.
    pub(crate) offset: usize,
    pub(crate) matcher: Option<At<Matcher>>,
    pub(crate) action: Option<Action>,
    /// Whether only after a miss, and where that is said.
    pub(crate) fallback: Option<At<bool>>,
    pub(crate) terms: RawTerms,
    pub(crate) talk: Talk,
}

/// Who may ask, with the place of the file of users.
#[derive(Default)]
pub(crate) struct RawTerms {
    pub(crate) terms: Terms,
    pub(crate) users: Option<At<PathBuf>>,
}

impl RawRoute {
    /// Whether other servers answer, to which the site needs a connector.
    pub(crate) fn has_servers(&self) -> bool {
        matches!(self.action, Some(Action::Upstream(_) | Action::Fastcgi(_)))
    }

    pub(crate) fn finish(self) -> Option<Route> {
        Some(Route {
            matcher: self.matcher?.value,
            action: self.action?,
            fallback: self.fallback.is_some_and(|fallback| fallback.value),
            terms: self.terms.terms,
            talk: self.talk,
        })
    }
}

pub(crate) fn routes(site: &Table<'_>, dir: &Path, problems: &mut Problems<'_>) -> Vec<RawRoute> {
    let tables = site.get("route").map(|entry| entry.tables(rules::ROUTE.0, problems)).unwrap_or_default();
    tables.into_iter().map(|table| route(table, dir, problems)).collect()
}

fn route(mut table: Table<'_>, dir: &Path, problems: &mut Problems<'_>) -> RawRoute {
    table.check_keys(rules::ROUTE, problems);
    let fallback = table.get("fallback");
    let fallback = fallback.and_then(|entry| Some(At::new(entry.boolean(problems)?, entry.offset)));
    RawRoute {
        offset: table.offset,
        matcher: matcher(&table, problems),
        action: action(&table, dir, problems),
        fallback,
        terms: terms(&table, dir, problems),
        talk: backends::talk(&table, problems),
    }
}

fn matcher(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<At<Matcher>> {
    let (path, suffix) = (table.get("path"), table.get("suffix"));
    match (path, suffix) {
        (Some(path), None) => {
            path.string(names::url_path, problems).map(|path| At::new(Matcher::Path(path.value), path.offset))
        }
        (None, Some(suffix)) => {
            let suffix = suffix.string(web::suffix, problems)?;
            Some(At::new(Matcher::Suffix(suffix.value), suffix.offset))
        }
        (Some(_), Some(suffix)) => {
            let message = "a route has a `path` or a `suffix`, and this one has both";
            problems.report_help(suffix.offset, message, "remove one of the two");
            None
        }
        (None, None) => {
            if table.lacks("path") && table.lacks("suffix") {
                let message = "a route has neither a `path` nor a `suffix`";
                problems.report_help(table.offset, message, "add for example `path = \"/old/\"`");
            }
            None
        }
    }
}

fn action(table: &Table<'_>, dir: &Path, problems: &mut Problems<'_>) -> Option<Action> {
    let mut given = ACTIONS.iter().filter_map(|key| Some((*key, table.get(key)?)));
    let Some((first, entry)) = given.next() else {
        return terms_alone(table, problems);
    };
    if let Some((second, other)) = given.next() {
        let message = format!("a route does one thing, and this one has both `{first}` and `{second}`");
        problems.report_help(other.offset, message, "make two routes of it, or remove one");
        return None;
    }
    match first {
        "redirect" => redirect(&entry, problems).map(Action::Redirect),
        "rewrite" => entry.string(names::url_path, problems).map(|to| Action::Rewrite(to.value)),
        "upstream" => targets(&entry, dir, problems).map(Action::Upstream),
        "fastcgi" => targets(&entry, dir, problems).map(Action::Fastcgi),
        _ => entry.string(web::hook, problems).map(|name| Action::Hook(name.value)),
    }
}

/// A route may be there for its terms alone.
fn terms_alone(table: &Table<'_>, problems: &mut Problems<'_>) -> Option<Action> {
    let has_terms =
        ["headers", "allow", "deny", "auth", "internal"].iter().any(|key| table.get(key).is_some());
    if !has_terms && ACTIONS.iter().all(|key| table.lacks(key)) {
        let message = "this route does nothing";
        let help =
            format!("add one of {}, or terms: headers, allow, deny, auth, internal", ACTIONS.join(", "));
        problems.report_help(table.offset, message, help);
        return None;
    }
    Some(Action::Terms)
}

/// `"/new/"`, or a table with a status.
pub(crate) fn redirect(entry: &Entry<'_>, problems: &mut Problems<'_>) -> Option<Redirect> {
    if !entry.is_table() {
        let to = entry.string(web::location, problems)?;
        return Some(Redirect { to: to.value, status: 302 });
    }
    let mut table = entry.table(rules::REDIRECT.0, problems)?;
    table.check_keys(rules::REDIRECT, problems);
    let status = match table.get("status") {
        None => Some(302),
        Some(entry) => {
            let status = entry.count(&rules::REDIRECT_STATUS, problems);
            if let Some(status) = status.filter(|status| !STATUSES.contains(status)) {
                let message = format!("`status` is {status}, with which no client goes elsewhere");
                problems.report_help(entry.offset, message, "write 301, 302, 303, 307 or 308");
            }
            status.filter(|status| STATUSES.contains(status))
        }
    };
    let to = table.require("to", "\"/new/\"", problems)?.string(web::location, problems)?;
    Some(Redirect { to: to.value, status: status? as u16 })
}

/// One target, or several.
fn targets(entry: &Entry<'_>, dir: &Path, problems: &mut Problems<'_>) -> Option<Vec<Target>> {
    let one = |entry: &Entry<'_>, problems: &mut Problems<'_>| {
        entry.parsed(|text| web::target(text, dir), problems).map(|target| target.value)
    };
    if !entry.is_array() {
        return one(entry, problems).map(|target| vec![target]);
    }
    if entry.is_empty_array() {
        let message = format!("`{}` is empty; it has at least one address", entry.key());
        problems.report_help(entry.offset, message, "write for example `\"unix:app.sock\"`");
        return None;
    }
    let elements = entry.elements(problems)?;
    let targets: Vec<_> = elements.iter().map(|element| one(element, problems)).collect();
    targets.into_iter().collect()
}

/// `headers`, `allow`, `deny`, `auth` and, of a route, `internal`.
pub(crate) fn terms(table: &Table<'_>, dir: &Path, problems: &mut Problems<'_>) -> RawTerms {
    let headers = table.get("headers").map(|entry| {
        entry.pairs(
            ("a table of strings", "{ X-Name = \"value\" }"),
            web::header_name,
            web::header_value,
            problems,
        )
    });
    let (allow, deny) = (networks_of(table, "allow", problems), networks_of(table, "deny", problems));
    for denied in &deny {
        if let Some(allowed) = allow.iter().find(|allowed| allowed.value == denied.value) {
            let place = problems.place(allowed.offset);
            let message = format!("{} is in both `deny` and `allow` (at {place})", quote(&denied.value));
            problems.report_help(denied.offset, message, "remove one of the two");
        }
    }
    let values = |networks: Vec<At<String>>| networks.into_iter().map(|network| network.value).collect();
    let (auth, users) = table.get("auth").and_then(|entry| auth(&entry, dir, problems)).unzip();
    let internal = table.get("internal").and_then(|entry| entry.boolean(problems)).unwrap_or(false);
    let (allow, deny) = (values(allow), values(deny));
    let terms = Terms { headers: headers.unwrap_or_default(), allow, deny, auth, internal };
    RawTerms { terms, users }
}

fn networks_of(table: &Table<'_>, key: &str, problems: &mut Problems<'_>) -> Vec<At<String>> {
    let Some(entry) = table.get(key) else {
        return Vec::new();
    };
    let elements = entry.elements(problems).unwrap_or_default();
    if elements.len() > NETWORKS_MAX {
        let message = format!("`{key}` has {} networks; it has at most {NETWORKS_MAX}", elements.len());
        problems.report_help(entry.offset, message, "join neighbouring networks");
    }
    elements.iter().filter_map(|element| element.parsed(networks::network, problems)).collect()
}

fn auth(entry: &Entry<'_>, dir: &Path, problems: &mut Problems<'_>) -> Option<(Auth, At<PathBuf>)> {
    let mut table = entry.table(rules::AUTH.0, problems)?;
    table.check_keys(rules::AUTH, problems);
    let realm = match table.get("realm") {
        None => Some("restricted".to_owned()),
        Some(entry) => entry.string(web::realm, problems).map(|realm| realm.value),
    };
    let users = table.require("users", "\"users.htpasswd\"", problems)?.path(dir, problems)?;
    Some((Auth { users: users.value.clone(), realm: realm? }, users))
}
