//! A configuration is read again beside the one that runs: what it names is examined by a copy of the launcher, and
//! then the launcher reads the files that differ.
//!
//! Runs in: the launcher, as root, and a copy of it. Sees: the configuration file, and those that it includes. Never:
//! looks in the loop at what the configuration names; reads a file that is as it was, unless something is wrong.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use config::{Before, Cache, Config, Diagnostics, Examine, Judged, Judgement, LeftOut, Source};

use crate::components::configuration_examination::{Differing, Purpose};
use crate::launcher::Launcher;
use crate::site_watch::SiteWatch;
use crate::transactions::{Look, Wanted};
use supervisor::error::Error;
use supervisor::examine::{Depth, Examiner, KnownCertificates, Loaded, Recorded, Refused};
use supervisor::spawn::uids::Uids;

impl Launcher {
    /// Has what the configuration names examined beside the loop, where its length is somebody else's; whether it is.
    pub(super) fn examine_configuration(
        &mut self,
        purpose: Purpose,
        first: Option<Recorded>,
    ) -> Result<bool, Error> {
        if self.supervisor.context().empty_root.is_none() {
            return Ok(false);
        }
        let wanted = match &purpose {
            Purpose::Reload { wanted, .. } => wanted.clone(),
            Purpose::Know => Wanted::all(),
        };
        self.site_watch.look(&self.config_path);
        self.look_at_generations();
        let Self {
            supervisor,
            components,
            read_files,
            site_watch,
            config_path,
            identities,
            holders,
            source,
            ..
        } = self;
        let known = match purpose {
            Purpose::Reload { .. } => KnownCertificates::default(),
            Purpose::Know => KnownCertificates::of(components.certificates.files.known()),
        };
        let examiner = Examiner::of_running(Depth::Start, identities.as_ref(), holders).knowing(known);
        let read_files = RefCell::new(read_files);
        let look = || changed_files((config_path, &read_files.borrow(), site_watch), &wanted, None);
        // The copy's own, which ends with it.
        let load = |examine: &dyn Examine, changed: Differing| {
            let from = (&mut **read_files.borrow_mut(), changed.as_ref());
            let left_out = Config::left_out(config_path, examine, from, &judgement(source, &wanted))?;
            Ok(Loaded { left_out: refused_by(&left_out), changed })
        };
        components.configuration_examination.begin(supervisor, purpose, first, &examiner, look, load)?;
        Ok(true)
    }

    /// Reads the configuration again: all files of sites that have changed, or those that the kernel has said so of.
    /// What it names is examined, and what has changed is looked for, unless another process has found both out.
    pub(super) fn read_configuration(
        &mut self,
        wanted: &Wanted,
        found: Option<&Recorded>,
    ) -> Result<Judged, Diagnostics> {
        self.site_watch.look(&self.config_path);
        self.look_at_generations();
        let examiner = Examiner::of_running(Depth::Start, self.identities.as_ref(), &self.holders);
        let examine = found.map_or(&examiner as &dyn Examine, |found| found);
        let mut wanted = wanted.clone();
        found.into_iter().for_each(|found| wanted.leave_out(found.left_out()));
        let path = &*self.config_path;
        let changed = changed_files((path, &self.read_files, &self.site_watch), &wanted, found);
        let from = (&mut self.read_files, changed.as_ref());
        let read = Config::judge(path, examine, from, &judgement(&self.source, &wanted));
        match (&read, &wanted.only) {
            (Ok(judged), None) => self.site_watch.all_is_read(&judged.config, names_of(&judged.left_out)),
            (Ok(judged), Some(only)) if judged.left_out.is_empty() => self.site_watch.is_read(only),
            _ => {}
        }
        read
    }

    /// Reads the generations of names, which the commands write. If the file cannot be read, the examiner says so, and
    /// nothing changes.
    fn look_at_generations(&mut self) {
        let _ = self.identities.as_mut().map(Uids::look_again);
    }

    /// Reads all files of the configuration now, while nobody waits for that: the next `bulkhead site add` reads one
    /// file then, as it does after a start.
    pub(super) fn know_files(&mut self) {
        if self.supervisor.context().config.include.is_some()
            && let Ok(false) = self.examine_configuration(Purpose::Know, None)
        {
            self.know_left_out(None);
        }
    }

    /// Reads all files, and takes notice of those that are wrong: of the launcher before, only what runs is known. A
    /// mistake of the main file is for those to hear who order a reload.
    pub(super) fn know_left_out(&mut self, found: Option<&Recorded>) {
        if let Ok(judged) = self.read_configuration(&Wanted::all(), found) {
            self.take_left_out(judged.left_out, None);
            self.log_left_out("upgrade", None);
        }
    }
}

/// The files of sites that may be others than those that were read last; `None` if it can be any, or if all are looked
/// at anyway.
fn changed_files(
    (path, read_files, site_watch): (&Path, &Cache, &SiteWatch),
    wanted: &Wanted,
    found: Option<&Recorded>,
) -> Differing {
    if wanted.only.is_some() || !wanted.refused.is_empty() {
        return None;
    }
    match (wanted.look, site_watch.changed(), found.and_then(Recorded::changed)) {
        (Look::Seen, Some(seen), _) => Some(seen.clone()),
        // What has happened after the other process has looked, the kernel says.
        (Look::All, Some(seen), Some(found)) => Some(seen | found),
        _ => read_files.differing(path),
    }
}

/// How a configuration is judged beside what runs.
fn judgement<'j>(running: &'j Source, wanted: &'j Wanted) -> Judgement<'j> {
    let Wanted { tolerance, only, refused, .. } = wanted;
    Judgement { before: Before::Running(running), tolerance: *tolerance, only: only.as_deref(), refused }
}

/// What another process has to know of files that were left out.
fn refused_by(left_out: &[LeftOut]) -> Refused {
    let names = names_of(left_out).zip(left_out);
    names.map(|(name, left)| (name, left.reason.clone())).collect()
}

fn names_of(left_out: &[LeftOut]) -> impl Iterator<Item = OsString> {
    left_out.iter().map(|left| left.file.file_name().unwrap_or_default().to_owned())
}
