//! What the name of a site stands for: whose uids, files and data it has. Everything that asks comes here.
//!
//! Runs in: the launcher, as root, and the commands `check`, `run` and `site`. Sees: three things of the state folder,
//! which its owner alone can write: [`generations`], which the operator's commands write; [`holders`], which the
//! launcher writes; and the folders `files/SITE` and `data/SITE`. Never: has what one site has left go to another by
//! the name alone.
//!
//! A service, a data source or a connector has what it has by the name of its site, and no generation of its own: the
//! site is whoever writes its table.

pub mod generations;
pub mod holders;
pub mod owner;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use config::Config;
use sys::absence::if_there;

use self::generations::{Generation, Generations, Standing};
use self::holders::{Claim, Holders};
use crate::error::Error;

/// The folders of the state folder in which each site has one by its name.
pub const KEPT: [&str; 2] = ["files", "data"];

/// What the names of sites stand for, as the state folder says now.
#[derive(Debug, Default)]
pub struct Names<'h> {
    state: PathBuf,
    generations: Generations,
    holders: Cow<'h, Holders>,
}

/// Why a site cannot have its name as things stand.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is the matter.
    pub problem: String,
    /// What can be done.
    pub remedy: String,
}

impl<'h> Names<'h> {
    /// Reads what is written down; `running` is what the server that runs has read, or written, already.
    pub fn load(state: &Path, running: Option<&'h Holders>) -> Result<Self, Error> {
        let running = running.filter(|holders| holders.are_of(state)).map(Cow::Borrowed);
        let holders = running.map_or_else(|| Holders::load(state).map(Cow::Owned), Ok)?;
        Ok(Self { state: state.to_owned(), generations: Generations::load(state)?, holders })
    }

    /// Why the site `name` cannot run as `claim` says; `None` if it can. `own` is the uid of its worker, if it has one
    /// of its own.
    pub fn refusal(&self, name: &str, claim: &Claim<'_>, own: Option<u32>) -> Option<Refusal> {
        let generation = self.generations.get(name);
        match &generation.standing {
            Standing::Removed => Some(self.of_removed(name)),
            // The operator has said that whoever this is takes all of it over.
            Standing::Adopted(holder) if *holder == claim.holder() => None,
            Standing::Current | Standing::Adopted(_) => self.of_other_holder(name, &generation, claim, own),
        }
    }

    fn of_removed(&self, name: &str) -> Refusal {
        let left = shown(&left(&self.state, name));
        let left = if left.is_empty() { String::new() } else { format!(", and has left {left}") };
        Refusal {
            problem: format!("was removed{left}; nobody gets that by the name alone"),
            remedy: format!(
                "take its table out, run `bulkhead site remove --purge {name}`, which deletes what is left, and put the table \
                 back; or run `bulkhead site adopt {name}` if this site is to take it over"
            ),
        }
    }

    fn of_other_holder(
        &self,
        name: &str,
        generation: &Generation,
        claim: &Claim<'_>,
        own: Option<u32>,
    ) -> Option<Refusal> {
        let held = self.holders.get(name).filter(|held| held.generation == generation.number)?;
        let difference = held.difference(claim, own)?;
        // One that has been there all the time and is where it was: the operator has changed the owner of its files.
        if held.is_in && (held.is_at(claim) || left(&self.state, name).is_empty()) {
            return None;
        }
        Some(Refusal {
            problem: format!(
                "is not the one that had this name: {difference}; the uids, files and data of the name would go to somebody else"
            ),
            remedy: format!(
                "run `bulkhead site adopt {name}` if it is the same site; if not, take its table out, run `bulkhead site remove \
                 --purge {name}`, and put the table back"
            ),
        })
    }
}

/// What is written down of the names of a configuration that is about to run.
pub fn at_start(state: &Path, config: &Config) -> Result<Holders, Error> {
    let (mut holders, generations) = (Holders::load(state)?, Generations::load(state)?);
    holders.stay(&config.sites.iter().map(|site| &*site.name).collect());
    holders.come(config.sites.iter().map(|site| (&**site, generations.get(&site.name).number)));
    holders.save()?;
    Ok(holders)
}

/// What there is below the state folder of a site of this name.
pub fn left(state: &Path, name: &str) -> Vec<PathBuf> {
    let folders = KEPT.iter().map(|kind| state.join(kind).join(name));
    // One that cannot be read has what nobody gets by the name alone.
    let has_any = |folder: &PathBuf| match if_there(fs::read_dir(folder)) {
        Ok(names) => names.is_some_and(|mut names| names.next().is_some()),
        Err(_) => true,
    };
    folders.filter(has_any).collect()
}

/// Paths, for a person.
pub fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::owner::Owner;
    use super::*;

    fn claim<'c>(user: Option<&'c str>, owner: Option<u32>, root: &'c str) -> Claim<'c> {
        let owner = owner.map_or(Owner::Nobody, Owner::from);
        Claim { user, root: Some(Path::new(root)), owner }
    }

    fn held(state: &Path, line: &str) -> Names<'static> {
        fs::write(state.join("holders"), format!("{line}\n")).unwrap();
        Names::load(state, None).unwrap()
    }

    #[test]
    fn a_name_that_comes_back_is_the_same_by_user_and_owner() {
        let state = tempfile::tempdir().unwrap();
        let names = held(state.path(), "0 out 1001 - shop /srv/shop");
        let is_refused = |claim| names.refusal("shop", &claim, Some(51003)).is_some();
        assert!(!is_refused(claim(None, Some(1001), "/elsewhere")));
        assert!(is_refused(claim(None, Some(1002), "/srv/shop")));
        assert!(is_refused(claim(Some("bob"), Some(1001), "/srv/shop")));
        assert!(is_refused(claim(None, None, "/srv/shop")));
        assert!(
            !is_refused(claim(None, Some(51003), "/srv/shop")),
            "the files were given to the site itself"
        );
        assert!(names.refusal("other", &claim(None, Some(7), "/"), None).is_none());
    }

    #[test]
    fn of_an_owner_that_is_not_known_the_place_says_who_it_is() {
        let state = tempfile::tempdir().unwrap();
        let names = held(state.path(), &format!("0 out {} - shop /srv/shop", u32::MAX));
        let problem =
            |names: &Names<'_>, claim| names.refusal("shop", &claim, None).map(|refusal| refusal.problem);
        assert_eq!(problem(&names, claim(None, Some(1001), "/srv/shop")), None);
        assert_eq!(problem(&names, claim(None, Some(u32::MAX), "/srv/shop")), None);
        assert!(
            problem(&names, claim(None, Some(1001), "/srv/b"))
                .unwrap()
                .contains("of which nobody knows the owner")
        );
        let names = held(state.path(), "0 out 1001 - shop /srv/shop");
        let unknown = claim(None, Some(u32::MAX), "/srv/shop");
        assert!(problem(&names, unknown).unwrap().contains("its folder /srv/shop cannot be looked at now"));
    }

    #[test]
    fn a_folder_that_cannot_be_read_has_something_in_it() {
        let state = tempfile::tempdir().unwrap();
        assert!(left(state.path(), "shop").is_empty());
        KEPT.iter().for_each(|kind| fs::create_dir_all(state.path().join(kind).join("shop")).unwrap());
        assert!(left(state.path(), "shop").is_empty());
        // A name that no file system has.
        assert_eq!(left(state.path(), &"x".repeat(300)).len(), KEPT.len());
    }

    #[test]
    fn one_that_has_stayed_may_have_its_files_given_away() {
        let state = tempfile::tempdir().unwrap();
        let names = held(state.path(), "0 in 1001 - shop /srv/shop");
        let other = claim(None, Some(1002), "/srv/other");
        assert!(names.refusal("shop", &other, None).is_none(), "there is nothing to lose");
        fs::create_dir_all(state.path().join("files/shop/app")).unwrap();
        assert!(names.refusal("shop", &other, None).is_some());
        assert!(names.refusal("shop", &claim(None, Some(1002), "/srv/shop"), None).is_none());
    }

    #[test]
    fn what_was_removed_is_nobodys_until_it_is_adopted_or_gone() {
        let state = tempfile::tempdir().unwrap();
        let names = |line: &str| {
            fs::write(state.path().join("generations"), format!("{line}\n")).unwrap();
            held(state.path(), "0 in 1001 - shop /srv/shop")
        };
        fs::create_dir_all(state.path().join("data/shop/db")).unwrap();
        let (same, other) = (claim(None, Some(1001), "/srv/shop"), claim(None, Some(1002), "/srv/b"));
        let problem = |line, claim| names(line).refusal("shop", claim, None).map(|refusal| refusal.problem);
        assert!(problem("0 removed shop", &same).unwrap().contains("data/shop; nobody gets that"));
        assert!(problem("0 adopted 1002 - shop", &other).is_none());
        assert!(problem("0 adopted 1003 - shop", &other).is_some());
        assert!(problem("1 current shop", &other).is_none(), "the holder was that of the generation before");
    }
}
