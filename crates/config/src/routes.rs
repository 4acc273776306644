//! Decoding of `[[site.route]]`, and of what a site and a route have in common: who may ask.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: let a
//! route do two things, or nothing at all.

use std::path::{Path, PathBuf};

use rewrite::{Matcher, Pattern};

use crate::backends;
use crate::decode::{Entry, Table};
use crate::diagnostic::{Problems, quote};
use crate::parse::{names, networks, web};
use crate::place::At;
use crate::raw::parts::{RawRoute, RawTerms};
use crate::rules;
use crate::statics_schema::{Action, Auth, Redirect, Talk, Target, Terms};

/// What a redirect's status may be.
const STATUSES: [u64; 5] = [301, 302, 303, 307, 308];

/// LIMIT: each network is compared with the address of every request.
const NETWORKS_MAX: usize = 256;

/// The keys that say what a route does.
const ACTIONS: [&str; 6] = ["redirect", "rewrite", "try_files", "upstream", "fastcgi", "hook"];

/// The keys that say on what terms, and what is changed of requests and answers.
const TERMS: [&str; 8] =
    ["body_bytes", "headers", "request_headers", "hide_headers", "allow", "deny", "auth", "internal"];

/// LIMIT: each is looked for in the file system.
const TRY_FILES_MAX: usize = 8;

/// The suffix of the scripts of `php`, and the one that answers for what is no file.
const PHP_SUFFIX: &str = ".php";
const FRONT_CONTROLLER: &str = "index.php";

pub(crate) fn routes(site: &Table<'_>, dir: &Path, problems: &mut Problems) -> Vec<RawRoute> {
    let tables = site.get("route").map(|entry| entry.tables(rules::ROUTE.0, problems)).unwrap_or_default();
    tables.into_iter().map(|table| route(table, dir, problems)).collect()
}

fn route(mut table: Table<'_>, dir: &Path, problems: &mut Problems) -> RawRoute {
    table.check_keys(rules::ROUTE, problems);
    let mut flag = |key| {
        let entry = table.get(key)?;
        Some(At::new(entry.boolean(problems)?, entry.offset))
    };
    let (fallback, strip_prefix) = (flag("fallback"), flag("strip_prefix"));
    let matcher = matcher(&table, problems);
    let pattern = matcher.as_ref().and_then(|matcher| matcher.value.pattern.as_ref());
    let action = action(&table, dir, pattern, problems);
    if let Some(strip) = strip_prefix.as_ref().filter(|strip| strip.value) {
        strips_a_prefix(strip, matcher.as_ref(), action.as_ref(), problems);
    }
    RawRoute {
        offset: table.offset,
        matcher,
        action,
        fallback,
        body_bytes: table.get("body_bytes").and_then(|entry| entry.bytes(&rules::BODY_BYTES, problems)),
        strip_prefix,
        alias: table.get("alias").and_then(|entry| entry.path(dir, problems)),
        terms: terms(&table, dir, problems),
        talk: backends::talk(&table, problems),
    }
}

fn matcher(table: &Table<'_>, problems: &mut Problems) -> Option<At<Matcher>> {
    let (path, suffix, pattern) = (table.get("path"), table.get("suffix"), table.get("pattern"));
    if let (Some(pattern), true) = (&pattern, path.is_some() || suffix.is_some()) {
        let message = "a route has a `pattern`, or a `path` and a `suffix`, and this one has more";
        problems.report_help(pattern.offset, message, "say all of it in the `pattern`");
        return None;
    }
    if let Some(pattern) = pattern {
        return pattern.parsed(|text| web::pattern(text).map(Matcher::pattern), problems);
    }
    let offset = path.as_ref().or(suffix.as_ref()).map(|entry| entry.offset);
    let Some(offset) = offset else {
        if ["path", "suffix", "pattern"].iter().all(|key| table.lacks(key)) {
            let message = "a route has no `path`, no `suffix` and no `pattern`";
            problems.report_help(table.offset, message, "add for example `path = \"/old/\"`");
        }
        return None;
    };
    let path = path.map(|entry| entry.string(names::url_path, problems).map(|path| path.value));
    let suffix = suffix.map(|entry| entry.string(web::suffix, problems).map(|suffix| suffix.value));
    if matches!(path, Some(None)) || matches!(suffix, Some(None)) {
        return None;
    }
    Some(At::new(Matcher { path: path.flatten(), suffix: suffix.flatten(), pattern: None }, offset))
}

/// There must be a prefix to take away, and somebody to whom the path goes.
fn strips_a_prefix(
    strip: &At<bool>,
    matcher: Option<&At<Matcher>>,
    action: Option<&Action>,
    problems: &mut Problems,
) {
    if matcher.is_some_and(|matcher| matcher.value.path.is_none()) {
        let message = "`strip_prefix` takes the route's `path` away, and this route has none";
        problems.report_help(strip.offset, message, "add a `path`, or remove it");
    } else if action.is_some_and(|action| !matches!(action, Action::Upstream(_) | Action::Hook(_))) {
        let message = "`strip_prefix` goes with `upstream` or `hook`, which this route does not have";
        problems.report_help(strip.offset, message, "remove it");
    }
}

fn action(
    table: &Table<'_>,
    dir: &Path,
    pattern: Option<&Pattern>,
    problems: &mut Problems,
) -> Option<Action> {
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
        "redirect" => redirect(&entry, pattern, problems).map(Action::Redirect),
        "rewrite" => {
            let to = entry.parsed(|text| web::rewrite(text, pattern), problems);
            to.map(|to| Action::Rewrite(to.value))
        }
        "try_files" => try_files(&entry, pattern, problems).map(Action::TryFiles),
        "upstream" => targets(&entry, dir, problems).map(Action::Upstream),
        "fastcgi" => targets(&entry, dir, problems).map(Action::Fastcgi),
        _ => entry.string(web::hook, problems).map(|name| Action::Hook(name.value)),
    }
}

/// A route may be there for its terms alone.
fn terms_alone(table: &Table<'_>, problems: &mut Problems) -> Option<Action> {
    let has_terms = table.get("alias").is_some() || TERMS.iter().any(|key| table.get(key).is_some());
    if !has_terms && ACTIONS.iter().all(|key| table.lacks(key)) {
        let message = "this route does nothing";
        let help = format!("add one of alias, {}, or terms: {}", ACTIONS.join(", "), TERMS.join(", "));
        problems.report_help(table.offset, message, help);
        return None;
    }
    Some(Action::Terms)
}

/// `"/new/"`, or a table with a status.
pub(crate) fn redirect(
    entry: &Entry<'_>,
    pattern: Option<&Pattern>,
    problems: &mut Problems,
) -> Option<Redirect> {
    let location = |text: &str| web::location(text, pattern);
    if !entry.is_table() {
        let to = entry.parsed(location, problems)?;
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
    let to = table.require("to", "\"/new/\"", problems)?.parsed(location, problems)?;
    Some(Redirect { to: to.value, status: status? as u16 })
}

/// Paths, of which the last may be a status.
fn try_files(entry: &Entry<'_>, pattern: Option<&Pattern>, problems: &mut Problems) -> Option<Vec<String>> {
    let elements = entry.elements(problems)?;
    let is_status = elements.len() == 1 && elements[0].plain().is_some_and(|only| only.starts_with('='));
    if !is_status && !(2..=TRY_FILES_MAX).contains(&elements.len()) {
        let message = format!("`try_files` has {} entries; it has 2 to {TRY_FILES_MAX}", elements.len());
        let help = "write for example `[\"$uri\", \"$uri.html\", \"=404\"]`";
        problems.report_help(entry.offset, message, help);
        return None;
    }
    let last = elements.len() - 1;
    let parsed = elements.iter().enumerate().map(|(number, element)| {
        element.parsed(|text| web::tried_file(text, number == last, pattern), problems)
    });
    // All of them, so that each mistake is told.
    let parsed: Vec<_> = parsed.collect();
    parsed.into_iter().map(|at| at.map(|at| at.value)).collect()
}

/// The meaning of `php`: scripts are run, and one of them answers for what is no file. A route of the file for the
/// same requests takes the place of either.
pub(crate) fn php(
    entry: &Entry<'_>,
    (site, dir): (&str, &Path),
    routes: &[RawRoute],
    problems: &mut Problems,
) -> Vec<RawRoute> {
    let Some(servers) = targets(entry, dir, problems) else {
        return Vec::new();
    };
    let made = |matcher: Matcher, action, fallback: bool| RawRoute {
        offset: entry.offset,
        matcher: Some(At::new(matcher, entry.offset)),
        action: Some(action),
        fallback: Some(At::new(fallback, entry.offset)),
        terms: RawTerms::default(),
        body_bytes: None,
        strip_prefix: None,
        alias: None,
        talk: Talk::default(),
    };
    let is_free = |made: &RawRoute| {
        let matcher = |route: &RawRoute| route.matcher.as_ref().map(|at| at.value.clone());
        !routes.iter().any(|route| matcher(route) == matcher(made))
    };
    [
        made(Matcher::suffix(PHP_SUFFIX), Action::Fastcgi(servers), false),
        made(Matcher::path(site), Action::Rewrite(format!("{site}{FRONT_CONTROLLER}")), true),
    ]
    .into_iter()
    .filter(is_free)
    .collect()
}

/// One target, or several.
fn targets(entry: &Entry<'_>, dir: &Path, problems: &mut Problems) -> Option<Vec<Target>> {
    let one = |entry: &Entry<'_>, problems: &mut Problems| {
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

/// `headers`, `request_headers`, `hide_headers`, `allow`, `deny`, `auth` and, of a route, `internal`.
pub(crate) fn terms(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> RawTerms {
    let headers = table.get("headers").map(|entry| {
        entry.pairs(
            ("a table of strings", "{ X-Name = \"value\" }"),
            web::header_name,
            web::header_value,
            problems,
        )
    });
    let request_headers = table.get("request_headers").map(|entry| {
        let form = ("a table of strings", "{ X-Name = \"value\" }");
        entry.pairs(form, web::request_header_name, web::request_header_value, problems)
    });
    let hide_headers =
        table.get("hide_headers").and_then(|entry| entry.strings(web::hidden_header_name, problems));
    let hide_headers = values(hide_headers.unwrap_or_default());
    let (allow, deny) = (networks_of(table, "allow", problems), networks_of(table, "deny", problems));
    for denied in &deny {
        if let Some(allowed) = allow.iter().find(|allowed| allowed.value == denied.value) {
            let place = problems.place(allowed.offset);
            let message = format!("{} is in both `deny` and `allow` (at {place})", quote(&denied.value));
            problems.report_help(denied.offset, message, "remove one of the two");
        }
    }
    let (auth, users) = table.get("auth").and_then(|entry| auth(&entry, dir, problems)).unzip();
    let internal = table.get("internal").and_then(|entry| entry.boolean(problems)).unwrap_or(false);
    let (allow, deny) = (values(allow), values(deny));
    let (headers, request_headers) = (headers.unwrap_or_default(), request_headers.unwrap_or_default());
    let terms = Terms { headers, request_headers, hide_headers, allow, deny, auth, internal };
    RawTerms { terms, users }
}

fn values(strings: Vec<At<String>>) -> Vec<String> {
    strings.into_iter().map(|string| string.value).collect()
}

fn networks_of(table: &Table<'_>, key: &str, problems: &mut Problems) -> Vec<At<String>> {
    let Some(entry) = table.get(key) else {
        return Vec::new();
    };
    if entry.plain() == Some("all") {
        return networks::ALL.map(|network| At::new(network.to_owned(), entry.offset)).into();
    }
    let elements = entry.elements(problems).unwrap_or_default();
    if elements.len() > NETWORKS_MAX {
        let message = format!("`{key}` has {} networks; it has at most {NETWORKS_MAX}", elements.len());
        problems.report_help(entry.offset, message, "join neighbouring networks");
    }
    elements.iter().filter_map(|element| element.parsed(networks::network, problems)).collect()
}

fn auth(entry: &Entry<'_>, dir: &Path, problems: &mut Problems) -> Option<(Auth, At<PathBuf>)> {
    let mut table = entry.table(rules::AUTH.0, problems)?;
    table.check_keys(rules::AUTH, problems);
    let realm = match table.get("realm") {
        None => Some("restricted".to_owned()),
        Some(entry) => entry.string(web::realm, problems).map(|realm| realm.value),
    };
    let users = table.require("users", "\"users.htpasswd\"", problems)?.path(dir, problems)?;
    Some((Auth { users: users.value.clone(), realm: realm? }, users))
}
