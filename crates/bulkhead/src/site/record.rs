//! What the operator says of the names of sites: which have ended, and who takes over what is left.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: the state folder, which its owner alone can write.
//! Never: writes to one of another user, where that user could have put a link.

use std::fs::File;
use std::path::{Path, PathBuf};

use supervisor::directories;
use supervisor::good_copies::GoodCopies;
use supervisor::site_names::generations::{Generation, Generations, Standing};
use supervisor::site_names::holders::{Claim, Holder, Holders};
use supervisor::site_names::{KEPT, left};
use supervisor::spawn::uids::Uids;
use sys::absence::{if_there, is_absence};

use super::turn;
use crate::fault::Fault;
use crate::left_out;

/// The names of a server's sites, which no other command changes at the same time.
#[derive(Debug)]
pub struct SiteRecord {
    state: PathBuf,
    generations: Generations,
    /// Locked until it is closed.
    _turn: File,
}

impl SiteRecord {
    /// Opens that of a configuration, and waits for its lock; `None` as long as no server has run with it.
    pub fn open(config: &Path) -> Result<Option<Self>, Fault> {
        let state = config::state_dir(config).map_err(|mistakes| Fault::Usage(mistakes.to_string()))?;
        if state.metadata().is_err_and(|error| is_absence(&error)) {
            return Ok(None);
        }
        let turn = turn::wait(&state)?;
        let generations = Generations::load(&state).map_err(failed)?;
        Ok(Some(Self { state, generations, _turn: turn }))
    }

    /// The generation that a name is in.
    pub fn generation(&self, name: &str) -> Generation {
        self.generations.get(name)
    }

    /// Has a name be in a generation.
    pub fn put(&mut self, name: &str, generation: Generation) -> Result<(), Fault> {
        if self.generations.get(name) == generation {
            return Ok(());
        }
        // SECURITY: whoever else owns the folder could have put a link in the place of the file.
        directories::examine(&self.state).map_err(failed)?;
        self.generations.put(name, generation).map_err(failed)
    }

    /// The folders in which there is something of a name.
    pub fn left(&self, name: &str) -> Vec<PathBuf> {
        left(&self.state, name)
    }

    /// Whether anything is known of a name.
    pub fn knows(&self, name: &str) -> Result<bool, Fault> {
        let held = Holders::load(&self.state).map_err(failed)?.get(name).is_some();
        Ok(held || !self.left(name).is_empty() || self.generation(name).standing == Standing::Removed)
    }

    /// The uids of the processes that a site has had in its generation.
    pub fn uids(&self, name: &str) -> Result<Vec<u32>, Fault> {
        let uids = Uids::load(&self.state, 0..=u32::MAX).map_err(failed)?;
        Ok(uids.of_site(name))
    }

    /// Takes the last good copy of a site's file away: nobody else comes by what it says.
    pub fn forget_copy(&self, name: &str) -> Result<(), Fault> {
        let copies = GoodCopies::of(&self.state);
        let file = format!("{name}{}", config::SITE_FILE_SUFFIX);
        copies.forget(file.as_ref()).map_err(Fault::io(copies.folder().join(&file).display()))
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// All names of which something is left: with whether they were removed, and where it is.
    pub fn remains(&self) -> Result<Vec<(String, Standing, Vec<PathBuf>)>, Fault> {
        let mut names: Vec<String> = self.generations.names().map(|(name, _)| name.to_owned()).collect();
        for kind in KEPT {
            let folder = self.state.join(kind);
            let fault = || Fault::io(folder.display());
            for entry in if_there(std::fs::read_dir(&folder)).map_err(fault())?.into_iter().flatten() {
                names.extend(entry.map_err(fault())?.file_name().into_string().ok());
            }
        }
        names.sort();
        names.dedup();
        let remains = names.into_iter().map(|name| {
            let left = self.left(&name);
            let standing = self.generation(&name).standing;
            (name, standing, left)
        });
        Ok(remains.filter(|(_, _, left)| !left.is_empty()).collect())
    }
}

/// Whose a site of a configuration is, which may have mistakes elsewhere; `None` if it has no such site.
pub fn holder(config: &Path, name: &str) -> Result<Option<Holder>, Fault> {
    let (loaded, left_out) = left_out::read(config, &[name])?;
    // What the file says of the owner is not what is in its place.
    if let Some(left) = left_out.of_site(name) {
        return Err(Fault::Usage(left.text()));
    }
    let site = loaded.sites.iter().find(|site| site.name == name);
    Ok(site.map(|site| Claim::of(site).holder()))
}

fn failed(error: supervisor::error::Error) -> Fault {
    Fault::Failed(error.to_string())
}
