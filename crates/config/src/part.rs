//! A configuration as far as one site has to do with it: of thousands of files, those are decoded that may say
//! something which it, or what falls with it, is told of.
//!
//! Runs in: the `bulkhead` command. Input: the operator's files. Must never: leave out a site that a look at all files
//! would find to have something to do with this one; take part in what the launcher decides by, as mistakes in other
//! files are not seen.
//!
//! A file of which it is not certain is decoded. What is decoded is then checked like a configuration of its own.

mod kin;
mod reading;
mod strings;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::diagnostic::{Diagnostics, Problems};
use crate::document;
use crate::include::{self, InFolder, ListedFile};
use crate::known::ReadFile;
use crate::paths::Opener;
use crate::place::At;
use crate::raw::{ListedSite, RawConfig};
use crate::schema::Config;
use crate::{check, files, finish_built};

use kin::{Kin, Near};
use reading::Texts;

impl Config {
    /// The configuration as far as the site called `site` has to do with it, with all sites that have a host or an
    /// account in common with it, or a folder that is inside of one of its own or around it; `None` if there is no such
    /// site. `others` is asked with `run_dir`, and names more sites of which the same is wanted, or says by `None` that
    /// no part is wanted.
    ///
    /// # Errors
    ///
    /// Mistakes in what was decoded; or the one reason why a file cannot be read.
    pub fn load_part(
        path: &Path,
        site: &str,
        others: &mut dyn FnMut(&Path) -> Option<BTreeSet<String>>,
    ) -> Result<Option<Config>, Diagnostics> {
        let name = path.display().to_string();
        let (text, dir) = files::read(path, &name)?;
        let mut problems = Problems::new(&name, &text);
        let folder: OnceCell<At<PathBuf>> = OnceCell::new();
        let note: document::ReadFolder<'_> = &|found, _| {
            let _ = folder.set(found.clone());
            Vec::new()
        };
        let raw = document::read(&text, &dir, note, &mut problems);
        let Some(raw) = raw.filter(|_| problems.is_empty()) else { return Err(problems.into_diagnostics()) };
        let names = raw.server.run_dir.as_ref().and_then(|run_dir| others(&run_dir.value));
        let Some(mut names) = names else { return Ok(None) };
        names.insert(site.to_owned());
        let opener = Opener::of(&dir);
        let listed = folder.get().and_then(|folder| include::listed(folder, &opener, &mut problems));
        let (opened, listed) = listed.unzip();
        let cache = Cache::default();
        let of_folder = folder.get().zip(opened.as_ref());
        let of_folder =
            of_folder.map(|(folder, opened)| InFolder::of(folder, opened, (&opener, &cache), &mut problems));
        let texts = opened.as_ref().zip(listed).map(|(opened, listed)| Texts::read(opened, listed));
        let texts = texts.unwrap_or_default();
        let kin = Kin::new(names, folder.get().map(|folder| &*folder.value), &raw.server);
        let mut part =
            PartialConfig { kin, main: vec![Near::Far; raw.sites.len()], texts, decoded: Vec::new() };
        if !problems.is_empty() || part.grow(&raw, of_folder.as_ref(), &mut problems).is_none() {
            return Err(problems.into_diagnostics());
        }
        if !part.has(&raw, site) {
            return Ok(None);
        }
        let raw = part.checked(raw, &dir, &mut problems);
        finish_built(Some(raw), &dir, problems).map(|built| Some(built.config))
    }
}

/// A file that was decoded.
struct DecodedFile {
    file: ReadFile,
    sites: Vec<ListedSite>,
    near: Near,
}

/// The part, as it is being found out.
struct PartialConfig {
    kin: Kin,
    /// How near each site of the main file is.
    main: Vec<Near>,
    /// Files that have not been decoded.
    texts: Texts,
    decoded: Vec<DecodedFile>,
}

impl PartialConfig {
    /// Finds all that has to do with what has been found so far, until there is no more. `None` if a file cannot be
    /// decoded.
    fn grow(
        &mut self,
        raw: &RawConfig,
        folder: Option<&InFolder<'_>>,
        problems: &mut Problems,
    ) -> Option<()> {
        let mut is_first = true;
        loop {
            let mut grows = std::mem::replace(&mut is_first, false);
            for (near, site) in self.main.iter_mut().zip(&raw.sites) {
                grows |= self.kin.take(near, std::slice::from_ref(site));
            }
            for DecodedFile { near, sites, .. } in &mut self.decoded {
                grows |= self.kin.take(near, sites);
            }
            // As much as before would be found.
            if !grows {
                return Some(());
            }
            let kin = &self.kin;
            for ListedFile { name, is_link, .. } in self.texts.take(|text| kin.may_be_in(text)) {
                let file = folder?.file(&name, is_link, problems)?;
                let (mut files, sites) = document::include_sites(vec![file], problems)?;
                self.decoded.push(DecodedFile { file: files.pop()?, sites, near: Near::Far });
            }
        }
    }

    /// Whether there is a site of this name.
    fn has(&self, raw: &RawConfig, name: &str) -> bool {
        let mut sites = raw.sites.iter().chain(self.decoded.iter().flat_map(|decoded| &decoded.sites));
        sites.any(|site| site.name.as_deref() == Some(name))
    }

    /// What was found, with all mistakes of that in `problems`.
    fn checked(self, mut raw: RawConfig, dir: &Path, problems: &mut Problems) -> RawConfig {
        // Where this is all that there is, what is the case of no site is a mistake as well.
        let is_all = raw.include.is_none();
        if is_all {
            check::all(&raw, problems);
        }
        let mut near = self.main.into_iter();
        raw.sites.retain(|_| near.next() != Some(Near::Far));
        let mut decoded = self.decoded;
        decoded.retain(|decoded| decoded.near != Near::Far);
        decoded.sort_by(|one, two| one.file.path.file_name().cmp(&two.file.path.file_name()));
        for DecodedFile { file, sites, .. } in decoded {
            raw.sites.extend(sites);
            raw.include.as_mut().into_iter().for_each(|include| include.files.push(file.clone()));
        }
        if !is_all {
            check::all(&raw, problems);
        }
        files::check(&raw, dir, problems);
        raw
    }
}
