//! The table of uids: one per role and partition, the same at every start, never given to another.
//!
//! Runs in: the launcher, as root, and in the commands `check` and `site`. Sees no untrusted bytes: a file that only
//! root can write. Never: gives a uid that a process may have had out twice, not even after its partition has left the
//! configuration, for files of that uid may be left, unless the operator has given it back
//! ([`uids_back`](super::uids_back)); has a site that comes by the name of one that was removed be the one that was
//! ([`site_names`](crate::site_names)).
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use jail::Identity;
use sys::absence::if_there;

use crate::directories::replace;
use crate::error::{Error, at, range_text};
use crate::site_names::generations::{Generations, Standing, site_of};
use crate::spawn::uid_share::{OutOfRange, Share};

/// Names (such as `site/packages`) and their uids.
#[derive(Debug)]
pub struct Uids {
    path: PathBuf,
    range: RangeInclusive<u32>,
    uid_of: BTreeMap<String, u32>,
    /// Those that were given out.
    used: HashSet<u32>,
    /// The first uid that can be free.
    next: u32,
    foreign: HashSet<u32>,
    /// Which generation of its name a site is in: what has ended keeps its uids, and nobody gets them.
    generations: Generations,
    /// Who was given one since that was asked last, or written down.
    given: Vec<String>,
    /// Lines that the file lacks. Of thousands of sites, one comes.
    added: String,
    /// How long the file is that lacks those lines alone; `None` if it is to be written as a whole: there is none, it
    /// has lines that hold no more, or it may end within one.
    written: Option<usize>,
}

impl Uids {
    /// Reads the table in `state_dir`; there is none at the first start.
    pub fn load(state_dir: &Path, range: RangeInclusive<u32>) -> Result<Self, Error> {
        let path = state_dir.join("uids");
        let text = if_there(fs::read_to_string(&path)).map_err(at("read", &path))?.unwrap_or_default();
        let uid_of = parse(&text).map_err(|problem| Error::identity(&path, problem))?;
        let generations = Generations::load(state_dir)?;
        let written = text.ends_with('\n').then_some(text.len());
        Ok(Self { generations, written, ..Self::new(path, range, uid_of, machine_users()?) })
    }

    /// Looks again which generations the names of sites are in: a site may have been removed.
    pub fn look_again(&mut self) -> Result<(), Error> {
        if let Some(state_dir) = self.path.parent() {
            self.generations = Generations::load(state_dir)?;
        }
        Ok(())
    }

    /// The uids that the processes of a site had or have, in the generation that its name is in.
    pub fn of_site(&self, site: &str) -> Vec<u32> {
        let is_its = |name: &str| site_of(name) == Some(site) && self.generations.is_current(name);
        let own = self.uid_of.iter().filter(|(name, _)| is_its(name));
        own.map(|(_, &uid)| uid).collect()
    }

    fn new(
        path: PathBuf,
        range: RangeInclusive<u32>,
        uid_of: BTreeMap<String, u32>,
        foreign: HashSet<u32>,
    ) -> Self {
        let (used, next) = (uid_of.values().copied().collect(), *range.start());
        let (generations, given, added) = (Generations::default(), Vec::new(), String::new());
        Self { path, range, uid_of, used, next, foreign, generations, given, added, written: None }
    }

    /// The identity of `name`: the one it has always had, or else a fresh one.
    pub fn identity(&mut self, name: &str) -> Result<Identity, Error> {
        let name = &*self.generations.owner(name).into_owned();
        let uid = match self.uid_of.get(name) {
            Some(&uid) => uid,
            None => self.fresh(name)?,
        };
        let problem = |problem: String| Error::identity(&self.path, problem);
        if !self.range.contains(&uid) {
            return Err(problem(format!(
                "{name} has uid {uid}, which is outside of user_range {}; widen user_range, or remove its line \
                 here once no file belongs to {uid} any more",
                range_text(&self.range)
            )));
        }
        Identity::new(uid).ok_or_else(|| problem(format!("uid {uid} cannot be used")))
    }

    /// Whether this is the table in a folder.
    pub fn are_of(&self, state_dir: &Path) -> bool {
        self.path.parent() == Some(state_dir)
    }

    /// The range that uids are given out of.
    pub fn range(&self) -> &RangeInclusive<u32> {
        &self.range
    }

    /// Whether this range has the whole of another.
    pub fn has_whole(&self, other: &RangeInclusive<u32>) -> bool {
        self.range.contains(other.start()) && self.range.contains(other.end())
    }

    /// Why no other range than this one can be had: what was given out of it stays its owner's.
    ///
    /// # Errors
    /// The other range lacks such a uid.
    pub fn may_become(&self, other: &RangeInclusive<u32>) -> Result<(), OutOfRange> {
        if other.contains(self.range.start()) && other.contains(self.range.end()) {
            return Ok(());
        }
        self.lacking(|uid| self.range.contains(&uid), other).map_or(Ok(()), Err)
    }

    /// What was given out, and is outside of the range.
    pub fn outside(&self) -> Option<OutOfRange> {
        self.lacking(|_| true, &self.range)
    }

    fn lacking(&self, counts: impl Fn(u32) -> bool, range: &RangeInclusive<u32>) -> Option<OutOfRange> {
        let given = || self.uid_of.iter().filter(|(_, uid)| counts(**uid));
        let lacking = || given().filter(|(_, uid)| !range.contains(uid));
        let (owner, &uid) = lacking().min_by_key(|(_, uid)| **uid)?;
        let low = given().map(|(_, &uid)| uid).min().unwrap_or(uid);
        let high = given().map(|(_, &uid)| uid).max().unwrap_or(uid);
        Some(OutOfRange { owner: owner.clone(), uid, count: lacking().count(), all: low..=high })
    }

    /// Has uids be given out of another range. Those that were given out stay what they are.
    pub fn set_range(&mut self, range: RangeInclusive<u32>) {
        (self.next, self.range) = (*range.start(), range);
    }

    /// How much of the range cannot be given out any more.
    pub fn share(&self) -> Share {
        let foreign = self.foreign.iter().filter(|uid| !self.used.contains(uid));
        let taken = self.used.iter().chain(foreign).filter(|uid| self.range.contains(uid)).count();
        Share { first: *self.range.start(), last: *self.range.end(), taken: taken as u32, left: 0 }
    }

    /// How many uids of the range were given out, and are none of these.
    pub fn left_beside(&self, had: &[u32]) -> usize {
        let of_range = self.used.iter().filter(|uid| self.range.contains(uid)).count();
        let is_counted = |uid: &&u32| self.range.contains(uid) && self.used.contains(uid);
        of_range - had.iter().filter(is_counted).count()
    }

    /// All names that were given a uid, each with its own.
    pub fn all(&self) -> impl Iterator<Item = (&str, u32)> {
        self.uid_of.iter().map(|(name, &uid)| (name.as_str(), uid))
    }

    /// Whether an owner is of the generation that its site is in, as it is if it belongs to no site.
    pub fn is_current(&self, owner: &str) -> bool {
        let is_removed = |site| matches!(self.generations.get(site).standing, Standing::Removed);
        self.generations.is_current(owner) && !site_of(owner).is_some_and(is_removed)
    }

    /// The identity of `name`, if it has one.
    pub fn known(&self, name: &str) -> Option<Identity> {
        self.uid_of.get(&*self.generations.owner(name)).and_then(|&uid| Identity::new(uid))
    }

    /// The identity of an account of the machine, which `site` is to have.
    pub fn account(&self, user: &str, site: &str) -> Result<Identity, Error> {
        let path = Path::new("/etc/passwd");
        let text = fs::read_to_string(path).map_err(at("read", path))?;
        let problem = |problem: String| Error::identity(path, problem);
        let (uid, gid) = account(&text, user)
            .ok_or_else(|| problem(format!("there is no account {user}, which site {site} is to run as")))?;
        // Whoever has it already would share it without a word of the operator's.
        if let Some((owner, _)) = self.uid_of.iter().find(|(_, given)| **given == uid) {
            return Err(problem(format!("{user} has uid {uid}, which is {owner}'s; choose another account")));
        }
        Identity::account(uid, gid).ok_or_else(|| {
            problem(format!(
                "{user} has uid {uid} and gid {gid}; site {site} cannot run as root; choose another"
            ))
        })
    }

    /// Whose a uid is, by the table; nobody's, if the machine's own tables name it as well.
    pub fn owner(&self, uid: u32) -> Option<&str> {
        let given = self.uid_of.iter().find(|(_, given)| **given == uid);
        given.filter(|_| !self.foreign.contains(&uid)).map(|(name, _)| name.as_str())
    }

    /// All that were given out, but for those that the machine's own tables name as well.
    pub fn given(&self) -> impl Iterator<Item = u32> {
        self.uid_of.values().copied().filter(|uid| !self.foreign.contains(uid))
    }

    /// Somebody who owns nothing, as whoever is given a uid for the first time.
    pub fn stranger(&self) -> Option<Identity> {
        self.free().and_then(Identity::new)
    }

    /// The lowest uid that nobody has had.
    fn free(&self) -> Option<u32> {
        (self.next..=*self.range.end()).find(|uid| !self.used.contains(uid) && !self.foreign.contains(uid))
    }

    fn fresh(&mut self, name: &str) -> Result<u32, Error> {
        let uid = self.free().ok_or_else(|| {
            let range = range_text(&self.range);
            Error::identity(
                &self.path,
                format!("no uid is left in user_range {range} for {name}; widen user_range"),
            )
        })?;
        self.uid_of.insert(name.to_owned(), uid);
        self.used.insert(uid);
        self.given.push(name.to_owned());
        let _ = writeln!(self.added, "{uid} {name}");
        self.next = uid;
        Ok(uid)
    }

    /// The names that were given a uid since this was asked last, or the table was written.
    pub fn take_given(&mut self) -> Vec<String> {
        std::mem::take(&mut self.given)
    }

    /// Takes the uids of these names back, and writes the table.
    ///
    /// SECURITY: no process has had one of these uids, and no program was given to it, so that nothing can be of it.
    pub fn take_back(&mut self, names: &[String]) -> Result<(), Error> {
        let mut is_changed = false;
        for name in names {
            if let Some(uid) = self.uid_of.remove(name) {
                self.used.remove(&uid);
                (self.next, is_changed) = (self.next.min(uid), true);
            }
        }
        self.given.clear();
        if is_changed { self.write_all() } else { self.save() }
    }

    /// Writes down what was added, if anything was; before any process gets a new uid.
    pub fn save(&mut self) -> Result<(), Error> {
        self.given.clear();
        if self.added.is_empty() {
            return Ok(());
        }
        // Until the new lines are whole.
        let Some(written) = self.written.take() else { return self.write_all() };
        if !add_to(&self.path, written, &self.added).map_err(at("write", &self.path))? {
            return self.write_all();
        }
        self.written = Some(written + self.added.len());
        self.added.clear();
        Ok(())
    }

    fn write_all(&mut self) -> Result<(), Error> {
        self.written = None;
        let mut text =
            String::from("# uid and owner; kept by bulkheadd, so that no uid is ever used twice\n");
        for (name, uid) in &self.uid_of {
            let _ = writeln!(text, "{uid} {name}");
        }
        replace(&self.path, &text)?;
        self.written = Some(text.len());
        self.added.clear();
        Ok(())
    }
}

/// Adds lines to a file of this length, and has them on the disk; `false` if the file has another one, as a launcher
/// that was to take this one's place in an upgrade may have written to it.
fn add_to(path: &Path, written: usize, lines: &str) -> io::Result<bool> {
    let Some(mut file) = if_there(File::options().append(true).open(path))? else { return Ok(false) };
    if file.metadata()?.len() != written as u64 {
        return Ok(false);
    }
    let added = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
    if added.is_err() {
        // On a full disk, there may be a part of them.
        let _ = file.set_len(written as u64);
    }
    added.map(|()| true)
}

fn parse(text: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut uid_of = BTreeMap::new();
    let mut seen = HashSet::new();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    for (index, line) in text[..whole].lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let (uid, name) = entry(line).ok_or_else(|| format!("line {}: expected `UID NAME`", index + 1))?;
        if !seen.insert(uid) || uid_of.insert(name.to_owned(), uid).is_some() {
            return Err(format!("line {}: uid {uid} or {name} is there twice", index + 1));
        }
    }
    // An editor may leave out the end of the last line. If it is the beginning of one that was being written as the
    // machine stopped, no process has had its uid.
    let last = &text[whole..];
    match entry(last) {
        Some((uid, name)) if !seen.contains(&uid) => _ = uid_of.entry(name.to_owned()).or_insert(uid),
        None if !last.starts_with('#') && !last.trim_end().bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err("the last line: expected `UID NAME`".to_owned());
        }
        _ => {}
    }
    Ok(uid_of)
}

fn entry(line: &str) -> Option<(u32, &str)> {
    let (uid, name) = line.split_once(' ')?;
    Some((uid.parse().ok()?, name)).filter(|(_, name)| !name.is_empty())
}

/// The uid and the gid of an account, as passwd(5) has it.
fn account(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(user)).then_some(fields))?;
    Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Ids that the machine's own tables name; none of them is given to a partition.
///
/// # Errors
/// A table cannot be read: what it names would be given away.
pub fn machine_users() -> Result<HashSet<u32>, Error> {
    let mut ids = HashSet::new();
    for path in ["/etc/passwd", "/etc/group"].map(Path::new) {
        ids.extend(ids_in(path)?);
    }
    Ok(ids)
}

fn ids_in(path: &Path) -> Result<Vec<u32>, Error> {
    let text = if_there(fs::read_to_string(path)).map_err(at("read", path))?.unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect())
}

#[cfg(test)]
mod tests;
