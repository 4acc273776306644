//! Generations of the names of sites: `bulkhead site remove` ends one, and the next site of the name is of the one
//! after.
//!
//! Runs in: the commands of `bulkhead site`, which alone write the file, one at a time; the launcher and `check` read
//! it. Sees: a file that the owner of the state folder alone can write. Never: goes back to a generation that has
//! ended.
//!
//! A name that is not in the file is in generation 0, as everything is that an earlier version has left. The uids of
//! generation 0 are in the table of uids by the names of their owners; those of a later one have its number behind the
//! name of the site.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::holders::{Holder, lines, read};
use crate::directories::replace;
use crate::error::Error;

/// The file in the state folder.
const FILE: &str = "generations";
/// What is before the number of a generation in the table of uids; no name has it.
const OF_GENERATION: char = '@';
/// Owners of uids that belong to a site: what their names in the table begin with.
const OF_SITES: [&str; 5] = ["site", "service", "connector", "data", "publisher"];

/// The generation that a name is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub number: u32,
    /// What the operator has said of it.
    pub standing: Standing,
}

/// What the operator has said of a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It is whose it is.
    #[default]
    Current,
    /// It has ended, and what is left of it is there.
    Removed,
    /// This one takes it over, whoever had it.
    Adopted(Holder),
}

impl Generation {
    /// The one after it, of which there is nothing yet.
    pub fn next(&self) -> Self {
        Self { number: self.number + 1, standing: Standing::Current }
    }

    /// The same, of which the operator says something else.
    pub fn with(&self, standing: Standing) -> Self {
        Self { number: self.number, standing }
    }
}

/// The generations of all names that are not in their first.
#[derive(Debug, Default)]
pub struct Generations {
    path: PathBuf,
    of: BTreeMap<String, Generation>,
}

impl Generations {
    /// Reads the file of a state folder; there is none before the first site is removed.
    pub fn load(state: &Path) -> Result<Self, Error> {
        let path = state.join(FILE);
        let mut of = BTreeMap::new();
        for (number, line) in lines(&read(&path)?) {
            let (name, generation) = parse(line).ok_or_else(|| {
                Error::identity(&path, format!("line {number}: expected `GENERATION STANDING SITE`"))
            })?;
            of.insert(name, generation);
        }
        Ok(Self { path, of })
    }

    /// The generation that a name is in.
    pub fn get(&self, name: &str) -> Generation {
        self.of.get(name).cloned().unwrap_or_default()
    }

    /// All names of which something is written down.
    pub fn names(&self) -> impl Iterator<Item = (&str, &Generation)> {
        self.of.iter().map(|(name, generation)| (name.as_str(), generation))
    }

    /// Has a name be in a generation, on the disk as well.
    pub fn put(&mut self, name: &str, generation: Generation) -> Result<(), Error> {
        match generation == Generation::default() {
            true => self.of.remove(name),
            false => self.of.insert(name.to_owned(), generation),
        };
        let mut text = String::from(
            "# generation and site; kept by `bulkhead site`, so that nobody gets what another has left\n",
        );
        for (name, Generation { number, standing }) in &self.of {
            let _ = match standing {
                Standing::Current => writeln!(text, "{number} current {name}"),
                Standing::Removed => writeln!(text, "{number} removed {name}"),
                Standing::Adopted(holder) => writeln!(text, "{number} adopted {holder} {name}"),
            };
        }
        replace(&self.path, &text)
    }

    /// The name in the table of uids of an owner such as `service/shop/app`: `service/shop@1/app`, if the site is in
    /// its second generation.
    pub fn owner<'o>(&self, owner: &'o str) -> Cow<'o, str> {
        match site_of(owner).map(|site| (site, self.get(site).number)) {
            None | Some((_, 0)) => Cow::Borrowed(owner),
            Some((site, number)) => {
                let after = owner.find('/').map_or(owner.len(), |slash| slash + 1 + site.len());
                Cow::Owned(format!("{}{OF_GENERATION}{number}{}", &owner[..after], &owner[after..]))
            }
        }
    }

    /// Whether an owner, as the table of uids names it, is of the generation that its site is in.
    pub fn is_current(&self, owner: &str) -> bool {
        let without = owner.find(OF_GENERATION).map(|at| {
            let rest = &owner[at + 1..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            format!("{}{}", &owner[..at], &rest[end..])
        });
        self.owner(without.as_deref().unwrap_or(owner)) == owner
    }
}

/// The site of an owner as the table of uids names it, without a generation.
pub fn site_of(owner: &str) -> Option<&str> {
    let (kind, name) = owner.split_once('/')?;
    let end = name.find(['/', ':', OF_GENERATION]).unwrap_or(name.len());
    OF_SITES.contains(&kind).then_some(&name[..end])
}

fn parse(line: &str) -> Option<(String, Generation)> {
    let (number, rest) = line.split_once(' ')?;
    let (standing, rest) = rest.split_once(' ')?;
    let (standing, name) = match standing {
        "current" => (Standing::Current, rest),
        "removed" => (Standing::Removed, rest),
        "adopted" => {
            let (holder, name) = Holder::parse(rest)?;
            (Standing::Adopted(holder), name)
        }
        _ => return None,
    };
    Some((name.to_owned(), Generation { number: number.parse().ok()?, standing }))
}

#[cfg(test)]
mod tests {
    use super::super::owner::Owner;
    use super::*;

    #[test]
    fn owners_have_the_generation_of_their_site() {
        let state = tempfile::tempdir().unwrap();
        let mut generations = Generations::load(state.path()).unwrap();
        generations.put("shop", Generation::default().next()).unwrap();
        generations.put("a", Generation::default().next().next().with(Standing::Removed)).unwrap();
        let again = Generations::load(state.path()).unwrap();
        for (owner, named) in [
            ("site/shop", "site/shop@1"),
            ("service/shop/app", "service/shop@1/app"),
            ("connector/shop/db:data", "connector/shop@1/db:data"),
            ("publisher/a", "publisher/a@2"),
            ("data/other/db", "data/other/db"),
            ("site/shop2", "site/shop2"),
            ("role/shop", "role/shop"),
            ("filter/0", "filter/0"),
        ] {
            assert_eq!(again.owner(owner), named);
        }
        let current =
            ["site/shop@1", "service/shop@1/app", "site/other"].map(|owner| again.is_current(owner));
        let ended = ["site/shop", "site/shop@2", "publisher/a@1"].map(|owner| again.is_current(owner));
        assert_eq!((current, ended), ([true; 3], [false; 3]));
        assert_eq!((site_of("service/shop@1/app"), site_of("connector/a:data")), (Some("shop"), Some("a")));
        assert_eq!(again.get("other"), Generation::default());
    }

    #[test]
    fn what_was_said_is_read_again() {
        let state = tempfile::tempdir().unwrap();
        let mut generations = Generations::load(state.path()).unwrap();
        let holder = Holder { user: Some("www".into()), owner: Owner::Nobody };
        let all = [Standing::Current, Standing::Removed, Standing::Adopted(holder)];
        for standing in all {
            let generation = Generation { number: 3, standing };
            generations.put("a.b", generation.clone()).unwrap();
            assert_eq!(Generations::load(state.path()).unwrap().get("a.b"), generation);
        }
        generations.put("a.b", Generation::default()).unwrap();
        assert_eq!(Generations::load(state.path()).unwrap().names().count(), 0);
        std::fs::write(state.path().join(FILE), "0 ended shop\n").unwrap();
        assert!(Generations::load(state.path()).unwrap_err().to_string().contains("line 1"));
    }
}
