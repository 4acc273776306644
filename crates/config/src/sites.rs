//! Decoding of `[[site]]` and `[[site.service]]`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must
//! never: let a program be searched for in PATH, or guess a host.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::decode::{Entry, Table, exactly, narrow};
use crate::diagnostic::Problems;
use crate::parse::{hosts, names};
use crate::place::At;
use crate::raw::site::{HasRoot, RawService, RawSite, RawTemplates};
use crate::readers::TableSource;
use crate::schema::SiteLimits;
use crate::{data, programs, routes, rules, sections, statics, tls, worker};

/// How many sites a file has at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Least {
    None,
    One,
}

pub(crate) fn sites(root: &Table<'_>, least: Least, dir: &Path, problems: &mut Problems) -> Vec<RawSite> {
    let header = rules::SITE.0;
    let tables = match least {
        Least::One => root.require_tables("site", header, problems),
        Least::None => root.get("site").map(|entry| entry.tables(header, problems)).unwrap_or_default(),
    };
    tables.into_iter().map(|table| site(table, dir, problems)).collect()
}

fn site(mut table: Table<'_>, dir: &Path, problems: &mut Problems) -> RawSite {
    table.label_by_name("site");
    table.check_keys(rules::SITE, problems);
    let name = table.require("name", "\"blog\"", problems);
    let services = table.get("service").map(|entry| entry.tables(rules::SERVICE.0, problems));
    let path = match table.get("path") {
        Some(entry) => entry.string(names::site_path, problems).map(|path| path.value),
        None => Some("/".to_owned()),
    };
    let root = table.get("root").map(|entry| entry.path(dir, problems).map_or(HasRoot::Bad, HasRoot::Yes));
    let mut routes = routes::routes(&table, dir, problems);
    if let (Some(entry), Some(path)) = (table.get("php"), &path) {
        let made = routes::php(&entry, (path, dir), &routes, problems);
        routes.extend(made);
    }
    RawSite {
        offset: table.offset,
        resolved: OnceCell::new(),
        name: name.and_then(|entry| entry.string(names::name, problems)).map(|name| name.value),
        hosts: site_hosts(&table, problems),
        listen: table.get("listen").map(|entry| listen(&entry, &table, problems)),
        path,
        has_root: root.unwrap_or(HasRoot::No),
        index: index(&table, problems),
        php: table.get("php").map(|entry| entry.offset),
        worker: worker::worker(&table, dir, problems),
        tls: tls::site(&table, dir, problems),
        services: services.into_iter().flatten().map(|table| service(table, dir, problems)).collect(),
        data: data::sources(&table, dir, problems),
        templates: templates(&table, dir, problems),
        vhosts: table.get("vhosts").and_then(|entry| entry.path(dir, problems)),
        follow_links: table
            .get("follow_links")
            .map_or_else(Vec::new, |entry| follow_links(&entry, dir, problems)),
        redirect: table.get("redirect").and_then(|entry| routes::redirect(&entry, None, problems)),
        statics: statics::statics(&table, problems),
        limits: limits(&table, problems),
        recycle: programs::recycle(&table, problems),
        workers: programs::workers(&table, problems),
        start: sections::start(&table, problems),
        idle_stop_ms: table
            .get("idle_stop")
            .and_then(|entry| entry.duration_ms(&rules::IDLE_STOP_MS, problems).map(|ms| narrow(Some(ms)))),
        terms: routes::terms(&table, dir, problems),
        routes,
        has_purpose: ["root", "vhosts", "php", "redirect", "service", "route"]
            .iter()
            .any(|key| !table.lacks(key)),
        label: table.label,
    }
}

/// Limits that take the place of those of `[limits]`.
fn limits(table: &Table<'_>, problems: &mut Problems) -> SiteLimits {
    let duration = |entry: Entry<'_>, problems: &mut Problems| {
        entry.duration_ms(&rules::IDLE_TIMEOUT_MS, problems).map(|ms| narrow(Some(ms)))
    };
    SiteLimits {
        body_bytes: table.get("body_bytes").and_then(|entry| entry.bytes(&rules::BODY_BYTES, problems)),
        idle_timeout_ms: table.get("idle_timeout").and_then(|entry| duration(entry, problems)),
        connections: table.optional_count("connections", &rules::CONNECTIONS, problems),
        spool_bytes: table.get("spool_bytes").and_then(|entry| entry.bytes(&rules::SPOOL_BYTES, problems)),
    }
}

fn site_hosts(table: &Table<'_>, problems: &mut Problems) -> Vec<At<String>> {
    // A folder for each host answers to whatever host has a folder.
    if let (true, Some(vhosts)) = (table.lacks("host"), table.get("vhosts")) {
        return vec![At::default("*".to_owned(), vhosts.offset)];
    }
    let entry = table.require("host", "[\"example.org\"]", problems);
    let Some((entry, elements)) = entry.and_then(|entry| Some((entry.offset, entry.elements(problems)?)))
    else {
        return Vec::new();
    };
    if elements.is_empty() {
        let message = format!("`host` is empty in {}; a site answers to at least one host", table.label);
        problems.report_help(entry, message, "write `[\"*\"]` for every host");
    }
    exactly(elements.iter().filter_map(|element| element.parsed(hosts::host, problems)))
}

fn listen(entry: &Entry<'_>, table: &Table<'_>, problems: &mut Problems) -> Vec<At<SocketAddr>> {
    if entry.is_empty_array() {
        let message =
            format!("`listen` is empty in {}; a site answers on at least one listener", table.label);
        problems.report_help(entry.offset, message, "leave it out for all listeners");
    }
    let elements = entry.elements(problems).unwrap_or_default();
    exactly(elements.iter().filter_map(|element| element.parsed(hosts::address, problems)))
}

fn index(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    match table.get("index") {
        Some(entry) => values(entry.strings(names::file_name, problems)),
        None if table.get("php").is_some() => vec!["index.php".to_owned(), "index.html".to_owned()],
        None => vec!["index.html".to_owned()],
    }
}

fn follow_links(entry: &Entry<'_>, dir: &Path, problems: &mut Problems) -> Vec<At<PathBuf>> {
    let elements = entry.elements(problems).unwrap_or_default();
    if elements.len() > rules::FOLLOW_LINKS_MAX {
        let (count, max) = (elements.len(), rules::FOLLOW_LINKS_MAX);
        let message = format!("`follow_links` has {count} folders; it has at most {max}");
        problems.report_help(entry.offset, message, "name a folder that has several of them");
    }
    elements.iter().filter_map(|element| element.path(dir, problems)).collect()
}

fn values(strings: Option<Vec<At<String>>>) -> Vec<String> {
    exactly(strings.into_iter().flatten().map(|string| string.value))
}

fn templates(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Option<RawTemplates> {
    let mut table = table.get("templates")?.table(rules::TEMPLATES.0, problems)?;
    table.check_keys(rules::TEMPLATES, problems);
    let folder = table.require("folder", "\"templates\"", problems);
    let values = table.get("values").map(|entry| entry.public_values(problems));
    Some(RawTemplates {
        offset: table.offset,
        folder: folder.and_then(|entry| entry.path(dir, problems)),
        values: values.unwrap_or_default(),
    })
}

fn service(mut table: Table<'_>, dir: &Path, problems: &mut Problems) -> RawService {
    table.label_by_name("service");
    table.check_keys(rules::SERVICE, problems);
    RawService::read(TableSource { table: &table, dir }, problems)
}
