//! A configuration of which a few files have changed: these are read, and looked at beside what all others have.
//!
//! Runs in: the launcher (root). Input: the operator's files, and the names of those that may have changed. Must never:
//! accept what a look at all files would refuse, or report a mistake: whoever gets nothing from here looks at all
//! files, and says what is wrong.
//!
//! All checks are made of a small configuration: the main file, with the files that have changed. What remains is what
//! these must not have in common with files that have not: `Taken` says whether there is anything of that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;

use sys::file_version::FileVersion;

use crate::cache::{Cache, folder_stamp};
use crate::diagnostic::Problems;
use crate::examine::{self, Examine};
use crate::include::{InFolder, is_read};
use crate::known::{KnownFile, ReadFile, SiteFile, in_main};
use crate::paths::{Class, Opener};
use crate::place::At;
use crate::raw::RawConfig;
use crate::raw::site::RawSite;
use crate::rules::SITE_FILES_MAX;
use crate::schema::Config;
use crate::source::Source;
use crate::taken::TakenNames;
use crate::{check, document, files};

/// What becomes of files whose changes nobody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// They are looked at as well.
    Looked,
    /// They are what they were.
    Known,
}

/// What has changed, and was found right beside all else.
pub(crate) struct ChangedFiles {
    main: String,
    gone: Vec<OsString>,
    /// The main file with the files that have changed.
    small: Config,
    read: Vec<ReadFile>,
    taken: TakenNames,
    problems: Problems,
}

/// The configuration, if nothing is wrong with it. `changed` are names of files that may have changed since `cache` was
/// filled.
pub(crate) fn load(
    path: &Path,
    examine: &dyn Examine,
    cache: &mut Cache,
    changed: (&BTreeSet<OsString>, Unseen),
) -> Option<(Config, Source)> {
    check(path, examine, cache, changed).map(|changed| changed.take_in(path, cache))
}

/// What has changed, if nothing is wrong with it. As long as it is not taken in, `cache` has the files that it had.
pub(crate) fn check(
    path: &Path,
    examine: &dyn Examine,
    cache: &mut Cache,
    (changed, unseen): (&BTreeSet<OsString>, Unseen),
) -> Option<ChangedFiles> {
    let name = path.display().to_string();
    let (main, dir) = files::read(path, &name).ok()?;
    if !cache.is_whole(&main) {
        return None;
    }
    let mut problems = Problems::new(&name, &main);
    cache.next().into_iter().for_each(|next| problems.go_on_at(next));
    let unseen = cache.unseen().filter(|_| unseen == Unseen::Looked);
    let names: BTreeSet<&OsString> = changed.iter().filter(|name| is_read(name)).chain(unseen).collect();
    let LookedAtFiles { gone, new } = look(cache, &Opener::of(&dir), &names, &mut problems)?;
    let count = cache.files().len() - gone.len() + new.iter().filter(|file| is_unknown(cache, file)).count();
    if count > SITE_FILES_MAX || !problems.is_empty() {
        return None;
    }
    let new_names: Vec<OsString> =
        new.iter().filter_map(|file| file.path.file_name()).map(OsStr::to_owned).collect();
    let new = std::cell::RefCell::new(new);
    let raw = document::read(&main, &dir, &|_, _| new.take(), &mut problems)?;
    check::all(&raw, &mut problems);
    files::check(&raw, &dir, &mut problems);
    let before: Vec<Rc<KnownFile>> =
        gone.iter().chain(&new_names).filter_map(|name| cache.file(name)).cloned().collect();
    let taken = stand_beside(cache, &raw, &before, &mut problems).filter(|_| problems.is_empty())?;
    examine::all(&raw, &dir, examine, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    let (small, read) = raw.finish(&dir)?;
    Some(ChangedFiles { main, gone, small, read, taken, problems })
}

impl ChangedFiles {
    /// The configuration with what has changed, which `cache` knows from here on.
    pub(crate) fn take_in(self, path: &Path, cache: &mut Cache) -> (Config, Source) {
        let Self { main, gone, small, read, taken, problems } = self;
        cache.change(&gone, read.clone(), problems.next(), &small);
        cache.give_back(taken);
        let config = whole(small, &read, cache, problems);
        (config, Source::of(path, &main, cache.texts()))
    }
}

/// Files of these names, as they are now.
struct LookedAtFiles {
    gone: Vec<OsString>,
    new: Vec<SiteFile>,
}

fn look(
    cache: &Cache,
    opener: &Opener,
    names: &BTreeSet<&OsString>,
    problems: &mut Problems,
) -> Option<LookedAtFiles> {
    let (folder, before) = cache.folder()?;
    let opened = File::from(opener.folder(Class::Own, folder).ok()?);
    let found = opened.metadata().ok()?;
    // Whoever owns the main file's folder may be somebody else by now.
    if folder_stamp(&found) != *before || !opener.trusts(found.uid()) {
        return None;
    }
    let folder = At::new(folder.clone(), 0);
    let owner = Some(found.uid());
    let of_folder = InFolder { folder: &folder, opened: &opened, opener, owner, cache };
    let mut looked = LookedAtFiles { gone: Vec::new(), new: Vec::new() };
    for &name in names {
        let path = folder.value.join(name);
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                looked.gone.extend(cache.file(name).map(|_| name.clone()));
            }
            Err(_) => return None,
            Ok(found) if is_as_it_was(cache, name, &path, &found) => {}
            Ok(found) => looked.new.push(of_folder.file(name, found.is_symlink(), problems)?),
        }
    }
    Some(looked)
}

fn is_as_it_was(cache: &Cache, name: &OsStr, path: &Path, found: &Metadata) -> bool {
    let Some(known) = cache.file(name) else { return false };
    let found = if found.is_symlink() { path.metadata().ok() } else { Some(found.clone()) };
    found.is_some_and(|found| known.is_as(&FileVersion::of(&found)))
}

fn is_unknown(cache: &Cache, file: &SiteFile) -> bool {
    file.path.file_name().is_some_and(|name| cache.file(name).is_none())
}

/// What all sites have, if those that have changed can stand beside the others.
fn stand_beside(
    cache: &mut Cache,
    raw: &RawConfig,
    before: &[Rc<KnownFile>],
    problems: &mut Problems,
) -> Option<TakenNames> {
    let listeners = &raw.listeners;
    let mut taken = match cache.take_taken() {
        Some(taken) => taken,
        None => {
            let (mut taken, mut sites) = (TakenNames::default(), cache.files().flat_map(|file| &file.sites));
            sites.try_for_each(|(site, _)| taken.add(site, listeners))?;
            taken
        }
    };
    let gone = || before.iter().flat_map(|file| &file.sites);
    if gone().any(|(site, _)| taken.leans_on(site)) {
        return None;
    }
    gone().try_for_each(|(site, _)| taken.remove(site, listeners))?;
    // The main file, and what it has beside files that are as they were, is as it was.
    let new = || raw.include.iter().flat_map(|include| &include.files).flat_map(|file| &file.sites);
    if new().any(|site| taken.meets(site, listeners)) {
        return None;
    }
    new().try_for_each(|site| taken.add(site, listeners))?;
    let mut needs = taken.needs();
    main_sites(raw).for_each(|site| needs.add(site));
    check::user_range(raw, needs, problems);
    Some(taken)
}

/// The sites of the main file.
fn main_sites(raw: &RawConfig) -> impl Iterator<Item = &RawSite> {
    let in_files: usize =
        raw.include.iter().flat_map(|include| &include.files).map(|file| file.sites.len()).sum();
    raw.sites.iter().take(raw.sites.len() - in_files).map(|site| &**site)
}

/// The small configuration with the sites of all files.
fn whole(small: Config, read: &[ReadFile], cache: &mut Cache, problems: Problems) -> Config {
    let sites = cache.all_sites(&small.sites, in_main(read, small.sites.len()));
    let include = cache.include();
    Config { sites, include, warnings: problems.into_warnings(), ..small }
}

#[cfg(test)]
mod tests;
