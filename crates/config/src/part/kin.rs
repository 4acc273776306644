//! What a site has by which another one has to do with it: its name, hosts, account and folders.
//!
//! Runs in: the `bulkhead` command. Input: decoded sites, and texts of files. Must never: take a text for one that has
//! nothing to do with a site because something is written in another way.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

use crate::parse::hosts;
use crate::part::strings;
use crate::raw::site::RawSite;
use crate::raw::{ListedSite, RawServer};
use crate::schema::{FILES, files_folder};

/// How near a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Near {
    /// It has nothing to do with those that are meant.
    Far,
    /// It shares a host with one that is near, or a folder with one that is meant.
    Beside,
    /// It is one of those that are meant, or falls with one.
    Meant,
}

/// A folder of a site that is meant.
struct SiteFolder {
    path: PathBuf,
    /// The same as files of sites write it that name it from where they are; empty if they are in it, `None` if they
    /// write nothing that is near it.
    below: Option<PathBuf>,
}

/// See the file's head.
pub(super) struct Kin {
    names: BTreeSet<String>,
    users: HashSet<String>,
    hosts: HashSet<String>,
    folders: Vec<SiteFolder>,
    /// All names, accounts and hosts in lower case: whether a text has one is asked of these together.
    words: HashSet<String>,
    /// The folder of the files of sites.
    dir: PathBuf,
    state_dir: PathBuf,
    /// Whether a folder is near those in which services have files of their own, of which no text has the path.
    is_near_files: bool,
}

impl Kin {
    pub(super) fn new(names: BTreeSet<String>, folder: Option<&Path>, server: &RawServer) -> Self {
        let state_dir = server.state_dir.as_ref().map_or_else(PathBuf::new, |at| at.value.clone());
        // As a file in it finds its folder.
        let dir = folder.map(|folder| folder.join("-")).and_then(|file| file.parent().map(Path::to_owned));
        Self {
            words: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            names,
            users: HashSet::new(),
            hosts: HashSet::new(),
            folders: Vec::new(),
            dir: dir.unwrap_or_default(),
            state_dir,
            is_near_files: false,
        }
    }

    /// Takes what sites have that stand together, if they are nearer than was known; whether they are.
    pub(super) fn take(&mut self, known: &mut Near, sites: &[ListedSite]) -> bool {
        let near = sites.iter().map(|site| self.near(site)).max().unwrap_or(Near::Far);
        if near <= *known {
            return false;
        }
        *known = near;
        sites.iter().for_each(|site| self.add(site, near));
        true
    }

    fn near(&self, site: &RawSite) -> Near {
        let has_name = site.name.as_ref().is_some_and(|name| self.names.contains(name));
        let has_user = site.worker.user.as_ref().is_some_and(|user| self.users.contains(&user.value));
        if has_name || has_user {
            return Near::Meant;
        }
        let has_host = || site.hosts.iter().any(|host| self.hosts.contains(&host.value));
        let has_folder = || folders(site, &self.state_dir).iter().any(|folder| self.is_near(folder));
        if has_host() || has_folder() { Near::Beside } else { Near::Far }
    }

    /// Whether a folder is inside of one, or around it. One that is written in the same way is the same, of which all
    /// is known.
    fn is_near(&self, folder: &Path) -> bool {
        let is_near =
            |own: &SiteFolder| meet(&own.path, folder) && own.path.as_os_str() != folder.as_os_str();
        self.folders.iter().any(is_near)
    }

    fn add(&mut self, site: &RawSite, near: Near) {
        let hosts = site.hosts.iter().map(|host| host.value.clone());
        let mut words: Vec<String> = hosts.clone().collect();
        self.hosts.extend(hosts);
        if near == Near::Meant {
            let users = site.worker.user.iter().map(|user| user.value.clone());
            words.extend(users.clone().chain(site.name.clone()));
            self.users.extend(users);
            self.names.extend(site.name.clone());
            for path in folders(site, &self.state_dir) {
                self.add_folder(path, site);
            }
        }
        self.words.extend(words.into_iter().map(|word| word.to_ascii_lowercase()));
    }

    fn add_folder(&mut self, path: PathBuf, site: &RawSite) {
        let files = self.state_dir.join(FILES);
        let of_site = site.name.as_ref().map(|name| files.join(name));
        let is_own = of_site.is_some_and(|own| path.starts_with(own) && path.parent() != Some(&files));
        self.is_near_files |= meet(&path, &files) && !is_own;
        let below = match path.strip_prefix(&self.dir) {
            Ok(below) => Some(below.to_owned()),
            Err(_) => self.dir.starts_with(&path).then(PathBuf::new),
        };
        self.folders.push(SiteFolder { path, below });
    }

    /// Whether there may be a site in a text that has to do with these.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        // A site of `vhosts` has all hosts without naming them.
        let has_all = self.hosts.contains("*") && text.contains("vhosts");
        let has_files = self.is_near_files && text.contains("files");
        has_all || has_files || strings::may_have(text, |string| self.is_word(string) || self.is_path(string))
    }

    fn is_word(&self, string: &str) -> bool {
        if string.contains(':') {
            // An address of IPv6 is written in several ways.
            return hosts::host(string).is_ok_and(|host| self.words.contains(&host));
        }
        let lower = match string.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(string.to_ascii_lowercase()),
            false => Cow::Borrowed(string),
        };
        self.words.contains(&*lower)
    }

    /// Whether a string of a file of sites, if it is a path, is one near a folder.
    fn is_path(&self, string: &str) -> bool {
        let path = Path::new(string);
        let is_near = |own: &SiteFolder| match path.is_absolute() {
            true => meet(&own.path, path),
            false => own.below.as_ref().is_some_and(|below| meet(below, path)),
        };
        let mut near = self.folders.iter().filter(|own| is_near(own));
        near.any(|own| self.dir.join(path).as_os_str() != own.path.as_os_str())
    }
}

/// The folders and files of a site, as far as it is said of processes that these fall with them.
fn folders(site: &RawSite, state_dir: &Path) -> Vec<PathBuf> {
    let named = site.opened().map(|(_, at)| at).chain(site.users());
    let read = site.services.iter().flat_map(|service| &service.read);
    let files =
        site.services.iter().filter(|service| service.files).filter_map(|service| {
            Some(files_folder(state_dir, site.name.as_deref()?, service.name.as_deref()?))
        });
    named.chain(read).map(|at| at.value.clone()).chain(files).collect()
}

/// Whether one of two paths is the other, or inside of it, by their names alone.
fn meet(one: &Path, two: &Path) -> bool {
    let [one, two] =
        [one, two].map(|path| path.components().filter(|component| *component != Component::CurDir));
    one.zip(two).all(|(one, two)| one == two)
}
