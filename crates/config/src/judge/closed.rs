//! 503 for the hosts of a file that is not good, where nothing else stands in for it: they fall to nobody else.
//!
//! Runs in: the launcher (root). Input: texts of files that have mistakes, as far as they can be read. Must never: take
//! a host that a good file has; have anything of the file work but the certificates that its hosts need.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::state::{Judge, LeftFile, SearchStage, Tls, readable, text_of};
use crate::known::Content;
use crate::parse::names;
use crate::raw::RawConfig;
use crate::raw::site::RawSite;

/// How a text begins that stands in for a file.
pub(super) const MARK: &str = "# 503 stands in for the file of this name, which is left out.\n";

/// LIMIT: bytes of a file that is looked through for names and hosts which are only said: the launcher does that in its
/// loop. A longer one is said by its own name.
const LOOKED_THROUGH_MAX: usize = 64 << 10;

impl Judge<'_> {
    /// Has the hosts of files that have nothing else answer 503, when all others are settled; whether there is any such
    /// file.
    pub(super) fn close(&mut self, raw: Option<&RawConfig>) -> bool {
        let waiting = self.left.iter().filter(|(_, left)| left.stage == SearchStage::Waiting);
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
                true => (SearchStage::Nothing, None),
                false => (SearchStage::Closed(Tls::Theirs), Some(Content::Text(text.into()))),
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
            if site.hosts.is_empty() {
                continue;
            }
            site.path.get_or_insert_with(|| "/".into());
            let before: Vec<&RawSite> = wanted.iter().filter(|other| same_place(other, &site)).collect();
            site.hosts.retain(|host| !before.iter().any(|other| has(other, &host.value)));
            let mut seen = BTreeSet::new();
            site.hosts.retain(|host| seen.insert(host.value.clone()));
            // There may be many thousands, each of which is compared with those that are kept.
            if !site.hosts.is_empty() {
                wanted.push(site);
            }
        }
        wanted
    }

    /// The text of a file as it is.
    fn now(&self, name: &OsStr) -> Option<Rc<str>> {
        let found = self.found.borrow();
        found.as_ref()?.get(name).map(|file| text_of(&file.content))
    }

    /// What is known of a file that is left out: its sites, its hosts, and whether these are all.
    pub(super) fn said_of(&self, name: &OsStr, left: &LeftFile) -> (Vec<String>, Vec<String>, bool) {
        let folder = self.folder.get().map_or(Path::new("/"), PathBuf::as_path);
        let own = |text: &str| {
            let (sites, is_whole) = match text.len() {
                0..=LOOKED_THROUGH_MAX => readable(folder, name, text),
                _ => (Vec::new(), false),
            };
            let (sites, hosts) = names_of(sites.iter());
            (sites, hosts, is_whole)
        };
        let now = self.now(name).map(|text| own(&text));
        let is_whole = now.as_ref().is_some_and(|(_, _, is_whole)| *is_whole);
        let (sites, hosts, _) = match (left.stage, &left.content) {
            (SearchStage::Before, Some(Content::Known(known))) if !known.text.as_str().starts_with(MARK) => {
                let (sites, hosts) = names_of(known.sites.iter().map(|(raw, _)| &**raw));
                (sites, hosts, is_whole)
            }
            (SearchStage::Before, Some(content)) if !is_closed(content) => own(&text_of(content)),
            (SearchStage::Before | SearchStage::Closed(_), Some(content)) => {
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

/// The names of sites, and their hosts.
fn names_of<'s>(sites: impl Iterator<Item = &'s RawSite> + Clone) -> (Vec<String>, Vec<String>) {
    let hosts = sites.clone().flat_map(|site| &site.hosts).map(|host| host.value.clone()).collect();
    (sites.filter_map(|site| site.name.clone()).collect(), hosts)
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
    for (number, site) in sites.iter().enumerate() {
        let path = site.path.as_deref().unwrap_or("/");
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        let _ = writeln!(text, "[[site]]\nname = {}", quoted(&name(file, number, names)));
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

/// The name of a site that stands in: none that a site of the operator's has, which is whose the files and uids of that
/// name are. The number of the site in its file is where the search begins, as there may be thousands.
fn name(file: &OsStr, number: usize, names: &mut BTreeSet<String>) -> String {
    let stem = Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let is_short = names::name(&format!("closed-{stem}-99999")).is_ok();
    let mut proposed = (number..).map(|number| match (is_short, number) {
        (true, 0) => format!("closed-{stem}"),
        (true, _) => format!("closed-{stem}-{number}"),
        (false, _) => format!("closed-{}", number + 1),
    });
    let name = proposed.find(|name| !names.contains(name)).unwrap_or_else(|| "closed".into());
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
