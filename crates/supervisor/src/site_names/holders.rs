//! Who holds the name of a site: the `user` of its worker, and the owner of its `root`, as they were when it ran last.
//!
//! Runs in: the launcher, which alone writes the file; `check` and the commands of `bulkhead site` read it. Sees: a
//! file that the owner of the state folder alone can write, and the owners of folders. Never: opens one of these
//! folders.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use config::Site;
use sys::absence::if_there;

use super::owner::Owner;
use crate::directories::replace;
use crate::error::{Error, at};

/// The file in the state folder.
const FILE: &str = "holders";
/// What stands for no account.
const NONE: &str = "-";
/// What is before the name of an account, which may be `-`.
const USER: char = '=';

/// Whose a site is, as far as a server can tell one from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The account that its worker runs as, if one is named.
    pub user: Option<String>,
    /// Who owns its `root` or `vhosts`; nobody if it has neither, or none that is there.
    pub owner: Owner,
}

/// A site as the configuration has it now.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c> {
    /// The account of its worker.
    pub user: Option<&'c str>,
    /// Its `root`, or its `vhosts`.
    pub root: Option<&'c Path>,
    /// Who owns that.
    pub owner: Owner,
}

impl<'c> Claim<'c> {
    /// That of a site with this account and this folder.
    pub fn new(user: Option<&'c str>, root: Option<&'c Path>) -> Self {
        Self { user, root, owner: root.map_or(Owner::Nobody, Owner::of) }
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

    /// Its `root`, as text; empty if it had none.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// By what somebody is another one than whose name it was. Files that were given to the site's own worker, `own`,
    /// say nothing.
    pub fn difference(&self, claim: &Claim<'_>, own: Option<u32>) -> Option<String> {
        let account =
            |user: Option<&str>| user.map_or("no `user`".to_owned(), |user| format!("`user = \"{user}\"`"));
        if self.holder.user.as_deref() != claim.user {
            return Some(format!(
                "it has {}, and had {}",
                account(claim.user),
                account(self.holder.user.as_deref())
            ));
        }
        self.other_owner(claim, own)
    }

    fn other_owner(&self, claim: &Claim<'_>, own: Option<u32>) -> Option<String> {
        let is_own = own.is_some_and(|own| claim.owner == Owner::Uid(own));
        let before = match self.holder.owner {
            // Where it is says as much as there is to know.
            Owner::Unknown if self.place == claim.place() => return None,
            owner if owner == claim.owner || is_own => return None,
            Owner::Nobody => "there was none".to_owned(),
            Owner::Uid(uid) => format!("it belonged to uid {uid}"),
            Owner::Unknown => format!("it was {}, of which nobody knows the owner", self.place),
        };
        let folder = claim.root.map_or_else(String::new, |root| root.display().to_string());
        let now = match claim.owner {
            Owner::Uid(uid) => format!("its folder {folder} belongs to uid {uid}"),
            Owner::Nobody => "it has no folder that is there".to_owned(),
            Owner::Unknown => format!("its folder {folder} cannot be looked at now"),
        };
        Some(format!("{now}, and {before}"))
    }
}

/// What is written down of all names: the last line of a name holds.
///
/// There may be thousands of sites, of which one comes or goes: its line is added to the file. Such a line that is lost
/// with the machine is one that nobody compares with; the whole is written, and on the disk, when there are more old
/// lines than [`OLD_LINES_MAX`].
#[derive(Clone, Debug, Default)]
pub struct Holders {
    path: PathBuf,
    of: BTreeMap<String, Held>,
    /// What is to be written yet.
    added: String,
    /// Lines of the file that others have taken the place of.
    old_lines: usize,
    /// Whether the file may end within a line.
    is_torn: bool,
}

/// LIMIT: lines that hold no more; as many as sites come and go in some weeks.
const OLD_LINES_MAX: usize = 1000;

impl Holders {
    /// Reads the file of a state folder; a server of an earlier version has none.
    pub fn load(state: &Path) -> Result<Self, Error> {
        let path = state.join(FILE);
        let text = read(&path)?;
        let mut holders =
            Self { path, is_torn: !text.is_empty() && !text.ends_with('\n'), ..Self::default() };
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for (number, line) in lines(whole) {
            let (name, held) = parse(line).ok_or_else(|| {
                Error::identity(
                    &holders.path,
                    format!("line {number}: expected `GENERATION in|out UID USER SITE PATH`"),
                )
            })?;
            holders.old_lines += usize::from(holders.of.insert(name, held).is_some());
        }
        Ok(holders)
    }

    /// Whether these are of a state folder.
    pub fn are_of(&self, state: &Path) -> bool {
        self.path.parent() == Some(state)
    }

    /// What is written down of a name.
    pub fn get(&self, name: &str) -> Option<&Held> {
        self.of.get(name)
    }

    /// These sites run, each in this generation of its name.
    pub fn come<'s>(&mut self, sites: impl Iterator<Item = (&'s Site, u32)>) {
        for (site, generation) in sites {
            self.put_claim(&site.name, &Claim::of(site), generation);
        }
    }

    fn put_claim(&mut self, name: &str, claim: &Claim<'_>, generation: u32) {
        let mut holder = claim.holder();
        // What was known of the same site still is.
        let same = |held: &&Held| held.generation == generation && held.is_at(claim);
        if let (Owner::Unknown, Some(held)) = (holder.owner, self.of.get(name).filter(same)) {
            holder.owner = held.holder.owner;
        }
        self.put(name, Held { generation, is_in: true, holder, place: claim.place() });
    }

    /// These have gone.
    pub fn go<'s>(&mut self, names: impl Iterator<Item = &'s str>) {
        for name in names {
            if let Some(held) = self.of.get(name).cloned() {
                self.put(name, Held { is_in: false, ..held });
            }
        }
    }

    /// All have gone but these.
    pub fn stay(&mut self, names: &HashSet<&str>) {
        let gone = self.of.iter().filter(|(name, held)| held.is_in && !names.contains(name.as_str()));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        self.go(gone.iter().map(String::as_str));
    }

    fn put(&mut self, name: &str, held: Held) {
        if self.of.get(name) != Some(&held) {
            self.added.push_str(&held.line(name));
            self.old_lines += usize::from(self.of.insert(name.to_owned(), held).is_some());
        }
    }

    /// Writes down what has changed.
    pub fn save(&mut self) -> Result<(), Error> {
        if self.added.is_empty() {
            return Ok(());
        }
        let is_new = self.of.len() + self.old_lines == self.added.lines().count();
        if is_new || self.is_torn || self.old_lines > OLD_LINES_MAX {
            let lines: String = self.of.iter().map(|(name, held)| held.line(name)).collect();
            replace(&self.path, &format!("# whose the names of sites are; kept by bulkheadd\n{lines}"))?;
            (self.is_torn, self.old_lines) = (false, 0);
        } else {
            // Until it is whole.
            self.is_torn = true;
            let add = || File::options().append(true).open(&self.path)?.write_all(self.added.as_bytes());
            add().map_err(at("write", &self.path))?;
            self.is_torn = false;
        }
        self.added.clear();
        Ok(())
    }
}

impl Held {
    fn line(&self, name: &str) -> String {
        let Self { generation, is_in, holder, place } = self;
        let is_in = if *is_in { "in" } else { "out" };
        format!("{generation} {is_in} {holder} {name} {place}\n")
    }
}

impl Holder {
    /// Reads one from the beginning of a text, and returns the rest.
    pub(super) fn parse(text: &str) -> Option<(Self, &str)> {
        let (owner, rest) = text.split_once(' ')?;
        let (user, rest) = rest.split_once(' ')?;
        let owner = Owner::parse(owner)?;
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
        write!(f, "{} ", self.owner)?;
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
    if_there(fs::read_to_string(path)).map(Option::unwrap_or_default).map_err(at("read", path))
}

/// The lines that say something, with their numbers.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: u32, place: &str) -> Held {
        let holder = Holder { user: Some("-".into()), owner: Owner::Uid(owner) };
        Held { generation: 2, is_in: true, holder, place: place.into() }
    }

    fn read_again(state: &Path) -> BTreeMap<String, Held> {
        Holders::load(state).unwrap().of
    }

    #[test]
    fn what_was_known_of_an_owner_stays_where_the_folder_cannot_be_looked_at() {
        let state = tempfile::tempdir().unwrap();
        let mut holders = Holders::load(state.path()).unwrap();
        let claim = |root: &'static str, owner| Claim { user: None, root: Some(Path::new(root)), owner };
        let mut owner_after = |root, owner| {
            holders.put_claim("shop", &claim(root, owner), 0);
            holders.save().unwrap();
            Holders::load(state.path()).unwrap().of["shop"].holder.owner
        };
        assert_eq!(owner_after("/srv/shop", Owner::Unknown), Owner::Unknown);
        assert_eq!(owner_after("/srv/shop", Owner::Uid(1001)), Owner::Uid(1001));
        assert_eq!(owner_after("/srv/shop", Owner::Unknown), Owner::Uid(1001));
        assert_eq!(owner_after("/srv/shop", Owner::Nobody), Owner::Nobody);
        assert_eq!(owner_after("/srv/other", Owner::Unknown), Owner::Unknown);
    }

    #[test]
    fn lines_are_added_and_the_last_of_a_name_holds() {
        let state = tempfile::tempdir().unwrap();
        let mut holders = Holders::load(state.path()).unwrap();
        for number in 0..3 {
            holders.put("shop", held(number, "/srv/a b"));
            holders.put("a", held(7, ""));
            holders.save().unwrap();
            assert_eq!(read_again(state.path()), holders.of);
        }
        let text = || fs::read_to_string(state.path().join(FILE)).unwrap();
        assert_eq!(text().lines().count(), 1 + 2 + 2);
        holders.stay(&HashSet::from(["a"]));
        holders.save().unwrap();
        assert!(!read_again(state.path())["shop"].is_in);
        // A line that was cut off says nothing, and is in nobody's way.
        fs::write(state.path().join(FILE), text() + "2 in 9 - sh").unwrap();
        let mut holders = Holders::load(state.path()).unwrap();
        assert!(!holders.of["shop"].is_in);
        holders.put("b", held(1, "/"));
        holders.save().unwrap();
        assert_eq!((read_again(state.path()).len(), text().lines().count()), (3, 1 + 3));
        for number in 0..3000 {
            holders.put("b", held(number, "/"));
            holders.save().unwrap();
        }
        assert!(text().lines().count() < 1010);
        assert_eq!(read_again(state.path())["b"], held(2999, "/"));
        fs::write(state.path().join(FILE), "nonsense\n").unwrap();
        assert!(Holders::load(state.path()).unwrap_err().to_string().contains("line 1"));
    }
}
