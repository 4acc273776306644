//! Who holds the name of a site: the `user` of its worker, and the owner of its `root`, as they were when it ran last.
//!
//! Runs in: the launcher, which alone writes the file; `check` and the commands of `bulkhead site` read it. Sees: a file that the
//! owner of the state folder alone can write, and the owners of folders. Never: opens one of these folders.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::Site;

use crate::directories::replace;
use crate::error::{Error, at};

/// The file in the state folder.
const FILE: &str = "holders";
/// What stands for nobody.
const NONE: &str = "-";
/// What is before the name of an account, which may be `-`.
const USER: char = '=';

/// Whose a site is, as far as a server can tell one from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The account that its worker runs as, if one is named.
    pub user: Option<String>,
    /// Who owns its `root` or `vhosts`; `None` if it has neither, or none that is there.
    pub owner: Option<u32>,
}

/// A site as the configuration has it now.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c> {
    /// The account of its worker.
    pub user: Option<&'c str>,
    /// Its `root`, or its `vhosts`.
    pub root: Option<&'c Path>,
    /// Who owns that.
    pub owner: Option<u32>,
}

impl<'c> Claim<'c> {
    /// That of a site with this account and this folder.
    pub fn new(user: Option<&'c str>, root: Option<&'c Path>) -> Self {
        // A link is its maker's: where it leads is no matter of whose the site is.
        let owner = root.and_then(|root| root.symlink_metadata().ok()).map(|found| found.uid());
        Self { user, root, owner }
    }

    /// That of a site.
    pub fn of(site: &'c Site) -> Self {
        let root = site.root.as_deref().or(site.vhosts.as_deref());
        Self::new(site.worker.user.as_deref(), root)
    }

    /// Whose it is.
    pub fn holder(&self) -> Holder {
        Holder { user: self.user.map(str::to_owned), owner: self.owner }
    }

    fn place(&self) -> String {
        let root = self.root.map_or_else(String::new, |root| root.to_string_lossy().into_owned());
        root.replace(char::is_control, "?")
    }
}

/// What is written down of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Of which generation of the name.
    pub generation: u32,
    /// Whether the site was in the configuration that ran last.
    pub is_in: bool,
    holder: Holder,
    /// Its `root`, as text.
    place: String,
}

impl Held {
    /// Whether the site is where it was, as the same account.
    pub fn is_at(&self, claim: &Claim<'_>) -> bool {
        self.place == claim.place() && self.holder.user.as_deref() == claim.user
    }

    /// By what somebody is another one than whose name it was. Files that were given to the site's own worker, `own`, say nothing.
    pub fn difference(&self, claim: &Claim<'_>, own: Option<u32>) -> Option<String> {
        let account =
            |user: Option<&str>| user.map_or("no `user`".to_owned(), |user| format!("`user = \"{user}\"`"));
        let owner = |uid: Option<u32>| {
            uid.map_or("there was none".to_owned(), |uid| format!("it belonged to uid {uid}"))
        };
        if self.holder.user.as_deref() != claim.user {
            return Some(format!(
                "it has {}, and had {}",
                account(claim.user),
                account(self.holder.user.as_deref())
            ));
        }
        let is_own = own.is_some() && claim.owner == own;
        (claim.owner != self.holder.owner && !is_own).then(|| {
            let now = match (claim.owner, claim.root) {
                (Some(uid), Some(root)) => format!("its folder {} belongs to uid {uid}", root.display()),
                _ => "it has no folder that is there".to_owned(),
            };
            format!("{now}, and {}", owner(self.holder.owner))
        })
    }
}

/// What is written down of all names.
#[derive(Debug, Default)]
pub struct Holders {
    path: PathBuf,
    of: BTreeMap<String, Held>,
    is_changed: bool,
}

impl Holders {
    /// Reads the file of a state folder; a server of an earlier version has none.
    pub fn load(state: &Path) -> Result<Self, Error> {
        let path = state.join(FILE);
        let mut of = BTreeMap::new();
        for (number, line) in lines(&read(&path)?) {
            let (name, held) = parse(line).ok_or_else(|| {
                Error::identity(
                    &path,
                    format!("line {number}: expected `GENERATION in|out UID USER SITE PATH`"),
                )
            })?;
            of.insert(name, held);
        }
        Ok(Self { path, of, is_changed: false })
    }

    /// What is written down of a name.
    pub fn get(&self, name: &str) -> Option<&Held> {
        self.of.get(name)
    }

    /// These sites run, each in this generation of its name.
    pub fn come<'s>(&mut self, sites: impl Iterator<Item = (&'s Site, u32)>) {
        for (site, generation) in sites {
            let claim = Claim::of(site);
            let held = Held { generation, is_in: true, holder: claim.holder(), place: claim.place() };
            if self.of.get(&site.name) != Some(&held) {
                self.of.insert(site.name.clone(), held);
                self.is_changed = true;
            }
        }
    }

    /// These have gone.
    pub fn go<'s>(&mut self, names: impl Iterator<Item = &'s str>) {
        for name in names {
            if let Some(held) = self.of.get_mut(name).filter(|held| held.is_in) {
                held.is_in = false;
                self.is_changed = true;
            }
        }
    }

    /// All have gone but these.
    pub fn stay(&mut self, names: &HashSet<&str>) {
        for (_, held) in self.of.iter_mut().filter(|(name, held)| held.is_in && !names.contains(&***name)) {
            held.is_in = false;
            self.is_changed = true;
        }
    }

    /// Writes down what has changed.
    pub fn save(&mut self) -> Result<(), Error> {
        if !self.is_changed {
            return Ok(());
        }
        let mut text = String::from("# whose the names of sites are; kept by bulkheadd\n");
        for (name, Held { generation, is_in, holder, place }) in &self.of {
            let is_in = if *is_in { "in" } else { "out" };
            text.push_str(&format!("{generation} {is_in} {holder} {name} {place}\n"));
        }
        replace(&self.path, &text)?;
        self.is_changed = false;
        Ok(())
    }
}

impl Holder {
    /// Reads one from the beginning of a text, and returns the rest.
    pub(super) fn parse(text: &str) -> Option<(Self, &str)> {
        let (owner, rest) = text.split_once(' ')?;
        let (user, rest) = rest.split_once(' ')?;
        let owner = if owner == NONE { None } else { Some(owner.parse().ok()?) };
        let user = match user.strip_prefix(USER) {
            Some(user) => Some(user.to_owned()),
            None if user == NONE => None,
            None => return None,
        };
        Some((Self { user, owner }, rest))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(uid) => write!(f, "{uid} "),
            None => write!(f, "{NONE} "),
        }?;
        match &self.user {
            Some(user) => write!(f, "{USER}{user}"),
            None => f.write_str(NONE),
        }
    }
}

fn parse(line: &str) -> Option<(String, Held)> {
    let (generation, rest) = line.split_once(' ')?;
    let (is_in, rest) = rest.split_once(' ')?;
    let (holder, rest) = Holder::parse(rest)?;
    let (name, place) = rest.split_once(' ')?;
    let is_in = match is_in {
        "in" => true,
        "out" => false,
        _ => return None,
    };
    Some((
        name.to_owned(),
        Held { generation: generation.parse().ok()?, is_in, holder, place: place.to_owned() },
    ))
}

/// The text of a file that may not be there.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        result => result.map_err(at("read", path)),
    }
}

/// The lines that say something, with their numbers.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'))
}
