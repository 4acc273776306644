//! 503 for the hosts of a file that is not good, where nothing else stands in for it: they fall to nobody else.
//!
//! Runs in: the launcher (root). Input: texts of files that have mistakes, as far as they can be read. Must never: take a host that
//! a good file has; have anything of the file work but the certificates that its hosts need.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Content, Judge, Left, Stage, readable, text_of};
use crate::parse::names;
use crate::raw::{RawConfig, RawSite};

/// How a text begins that stands in for a file.
pub(super) const MARK: &str = "# 503 stands in for the file of this name, which is left out.\n";

/// Which certificates hosts have that are answered 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Those that the file names.
    Theirs,
    /// None: something is wrong with them.
    None,
}

impl Judge<'_> {
    /// Has the hosts of files that have nothing else answer 503, when all others are settled; whether there is any such file.
    pub(super) fn close(&mut self, raw: Option<&RawConfig>) -> bool {
        let waiting = self.left.iter().filter(|(_, left)| left.stage == Stage::Waiting);
        let waiting: Vec<OsString> = waiting.map(|(name, _)| name.clone()).collect();
        let mut names: BTreeSet<String> =
            raw.iter().flat_map(|raw| &raw.sites).filter_map(|site| site.name.clone()).collect();
        let mut taken: Vec<RawSite> = Vec::new();
        for name in &waiting {
            let mut sites = self.wanted(name);
            for site in &mut sites {
                let listeners = || raw.iter().flat_map(|raw| &raw.listeners);
                let is_there = |address: &SocketAddr| listeners().any(|one| one.address.value == *address);
                site.listen.iter_mut().for_each(|listen| listen.retain(|at| is_there(&at.value)));
                site.listen.take_if(|listen| listen.is_empty());
                let others = raw.iter().flat_map(|raw| &raw.sites).map(|site| &**site).chain(&taken);
                let others: Vec<&RawSite> = others.filter(|other| same_place(other, site)).collect();
                site.hosts.retain(|host| !others.iter().any(|other| has(other, &host.value)));
                taken.push(site.clone());
            }
            sites.retain(|site| !site.hosts.is_empty());
            let text = text(name, &sites, Tls::Theirs, &mut names);
            let (stage, content) = match sites.is_empty() {
                true => (Stage::Nothing, None),
                false => (Stage::Closed(Tls::Theirs), Some(Content::Text(text.into()))),
            };
            if let Some(left) = self.left.get_mut(name) {
                (left.stage, left.content) = (stage, content);
            }
        }
        !waiting.is_empty()
    }

    /// The same text without certificates.
    pub(super) fn closed_again(&self, name: &OsStr) -> Option<Content> {
        let content = self.left.get(name)?.content.as_ref()?;
        let lines = text_of(content);
        let lines = lines.lines().filter(|line| !line.starts_with("certificates = "));
        Some(Content::Text(lines.map(|line| format!("{line}\n")).collect::<String>().into()))
    }

    /// What a file, or the copy of it that was good last, says of its hosts.
    fn wanted(&self, name: &OsStr) -> Vec<RawSite> {
        let folder = self.folder.get().map_or(Path::new("/"), PathBuf::as_path);
        let texts = [self.now(name), self.kept(name)];
        let mut wanted: Vec<RawSite> = Vec::new();
        for mut site in texts.into_iter().flatten().flat_map(|text| readable(folder, name, &text).0) {
            site.path.get_or_insert_with(|| "/".into());
            let before: Vec<&RawSite> = wanted.iter().filter(|other| same_place(other, &site)).collect();
            site.hosts.retain(|host| !before.iter().any(|other| has(other, &host.value)));
            let mut seen = BTreeSet::new();
            site.hosts.retain(|host| seen.insert(host.value.clone()));
            wanted.push(site);
        }
        wanted.retain(|site| !site.hosts.is_empty());
        wanted
    }

    /// The text of a file as it is.
    fn now(&self, name: &OsStr) -> Option<Rc<str>> {
        let found = self.found.borrow();
        found.as_ref()?.get(name).map(|file| text_of(&file.content))
    }

    /// What is known of a file that is left out: its sites, its hosts, and whether these are all.
    pub(super) fn said_of(&self, name: &OsStr, left: &Left) -> (Vec<String>, Vec<String>, bool) {
        let folder = self.folder.get().map_or(Path::new("/"), PathBuf::as_path);
        let own = |text: &str| {
            let (sites, is_whole) = readable(folder, name, text);
            let hosts = sites.iter().flat_map(|site| &site.hosts).map(|host| host.value.clone()).collect();
            (sites.into_iter().filter_map(|site| site.name).collect::<Vec<_>>(), hosts, is_whole)
        };
        let now = self.now(name).map(|text| own(&text));
        let is_whole = now.as_ref().is_some_and(|(_, _, is_whole)| *is_whole);
        let (sites, hosts, _) = match (left.stage, &left.content) {
            (Stage::Before, Some(content)) if !is_closed(content) => own(&text_of(content)),
            (Stage::Before | Stage::Closed(_), Some(content)) => {
                let (_, hosts, _) = own(&text_of(content));
                let sites = now.map(|(sites, ..)| sites).unwrap_or_default();
                let before = || self.kept(name).map(|text| own(&text).0).unwrap_or_default();
                (if sites.is_empty() { before() } else { sites }, hosts, is_whole)
            }
            _ => now.unwrap_or_default(),
        };
        (sites, hosts, is_whole)
    }
}

/// Whether this is a text that stands in for a file.
pub(super) fn is_closed(content: &Content) -> bool {
    text_of(content).starts_with(MARK)
}

/// Whether a request can reach both sites by the same host.
fn same_place(other: &RawSite, site: &RawSite) -> bool {
    other.path == site.path && other.shares_listener(site)
}

fn has(site: &RawSite, host: &str) -> bool {
    site.hosts.iter().any(|one| one.value == host)
}

/// A file of sites that answer 503 to every request.
fn text(file: &OsStr, sites: &[RawSite], tls: Tls, names: &mut BTreeSet<String>) -> String {
    let mut text = String::from(MARK);
    for site in sites {
        let path = site.path.as_deref().unwrap_or("/");
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        let _ = writeln!(text, "[[site]]\nname = {}", quoted(&name(file, names)));
        let _ =
            writeln!(text, "host = {}", list(site.hosts.iter().map(|host| quoted(&host.value)).collect()));
        let _ = writeln!(text, "path = {}", quoted(path));
        if let Some(listen) = site.listen.as_ref().filter(|listen| !listen.is_empty()) {
            let addresses = listen.iter().map(|address| quoted(&address.value.to_string()));
            let _ = writeln!(text, "listen = {}", list(addresses.collect()));
        }
        let certificates = site.tls.iter().flat_map(|tls| &tls.certificates);
        let certificates = certificates.map(|one| match &one.key {
            None => quoted(&one.certificate.value.to_string_lossy()),
            Some(key) => {
                let [certificate, key] =
                    [&one.certificate, key].map(|at| quoted(&at.value.to_string_lossy()));
                format!("{{ certificate = {certificate}, key = {key} }}")
            }
        });
        let certificates: Vec<String> = certificates.filter(|_| tls == Tls::Theirs).collect();
        if !certificates.is_empty() {
            let _ = writeln!(text, "certificates = {}", list(certificates));
        }
        let _ = writeln!(text, "start = \"on-demand\"");
        let _ = writeln!(text, "[[site.route]]\npath = {}\ntry_files = [\"=503\"]", quoted(path));
    }
    text
}

/// The name of a site that stands in: none that a site of the operator's has, which is whose the files and uids of that name are.
fn name(file: &OsStr, names: &mut BTreeSet<String>) -> String {
    let stem = Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let plain = std::iter::once(format!("closed-{stem}"));
    let numbered = (1..).map(|number| format!("closed-{stem}-{number}"));
    let short = (1..).map(|number| format!("closed-{number}"));
    let first = names::name(&format!("closed-{stem}-99999"));
    let mut proposed = plain.chain(numbered).filter(|_| first.is_ok());
    let mut short = short.filter(|name| !names.contains(name));
    let name = match first {
        Ok(()) => proposed.find(|name| !names.contains(name)),
        Err(_) => short.next(),
    };
    let name = name.unwrap_or_else(|| "closed".into());
    names.insert(name.clone());
    name
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
