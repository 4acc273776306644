//! Files of sites that are left out: which one an order means, what is said of them, and what is tried without them.
//!
//! Runs in: the launcher, as root. Sees: the numbers that stand for names in orders, and names in the folder of
//! `include`. Never: has one site's file keep another site's change from being carried out, unless that was ordered.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use config::{LeftOut, SITE_FILE_SUFFIX, StandIn, Tolerance};
use supervisor::examine::Refused;
use wire::{Extent, NO_PARTITION, Role, number_of_name};

use crate::components::admin_commands::left_out_line;
use crate::launcher::Launcher;
use crate::transactions::{Asker, Look, Mode, Wanted};

/// LIMIT: how often one reload is tried, each time without the files of which a process has not come up.
const PASSES_MAX: u32 = 4;
/// LIMIT: files that were left out of which the log says more than their number.
const LOGGED_MAX: usize = 20;

impl Launcher {
    /// The reload that an order of the admin role means.
    pub(super) fn wanted(
        &mut self,
        dry_run: bool,
        all_or_nothing: bool,
        (extent, site): (Extent, u64),
    ) -> Result<Wanted, String> {
        // Of the file of a new site, the kernel may say that it has been written.
        self.site_watch.look(&self.config_path);
        let mode = if dry_run { Mode::DryRun } else { Mode::CarryOut };
        let look = if extent == Extent::Seen { Look::Seen } else { Look::All };
        let tolerance = if all_or_nothing { Tolerance::AllOrNothing } else { Tolerance::EachFile };
        let mut wanted = Wanted { tolerance, ..Wanted::new(mode, look) };
        match extent {
            Extent::One => wanted.only = Some(self.file_of_site(site)?),
            // Whoever has written one file waits for that, and not for what others have written. A file that nobody
            // knows is not there any more, and nothing of it runs.
            Extent::Seen if site != 0 => {
                wanted.only = self.file_of_site(site).ok();
                wanted.must.clone_from(&wanted.only);
            }
            Extent::Seen | Extent::All => {}
        }
        Ok(wanted)
    }

    /// The name of the file of a site, which may be one that no site runs of.
    fn file_of_site(&self, number: u64) -> Result<OsString, String> {
        let config = &self.supervisor.context().config;
        let is_it = |name: &str| number_of_name(name) == number;
        let Some(include) = &config.include else {
            return Err("the configuration is one file, which is reloaded as a whole".into());
        };
        let has_it = |file: &&std::sync::Arc<config::SiteFile>| file.sites.iter().any(|site| is_it(site));
        if let Some(file) = include.files.iter().find(has_it) {
            return Ok(file.path.file_name().unwrap_or_default().to_owned());
        }
        let left = &self.components.admin_commands.left_out;
        // The name is that of a file which `bulkhead site` has made, or somebody by hand.
        let stem = |name: &OsStr| {
            name.to_str().and_then(|name| name.strip_suffix(SITE_FILE_SUFFIX)).is_some_and(is_it)
        };
        let has_it = |left: &&LeftOut| {
            left.sites.iter().any(|site| is_it(site)) || left.file.file_name().is_some_and(stem)
        };
        if let Some(left) = left.iter().find(has_it) {
            return Ok(left.file.file_name().unwrap_or_default().to_owned());
        }
        // The folder is root's, and may have thousands of names.
        let is_there = |name: &&OsString| include.folder.join(name).symlink_metadata().is_ok();
        let mut written = self.site_watch.changed().into_iter().flatten().filter(|name| stem(name));
        if let Some(name) = written.find(is_there) {
            return Ok(name.clone());
        }
        let found = std::fs::read_dir(&include.folder).into_iter().flatten().flatten();
        let found = found.map(|entry| entry.file_name()).find(|name| stem(name));
        if let Some(name) = found {
            return Ok(name);
        }
        match config.sites.iter().any(|site| is_it(&site.name)) {
            true => Err("the site is in the main file, which is reloaded as a whole".into()),
            false => Err(format!("{} has no file of this site", include.folder.display())),
        }
    }

    /// The name of the file that has a site, by the site's number; `None` for what is nobody's alone, and for sites of
    /// the main file.
    pub(super) fn file_of_number(&self, site: u16) -> Option<OsString> {
        if site == NO_PARTITION {
            return None;
        }
        let config = &self.supervisor.context().config;
        let name = &config.sites.get(usize::from(site))?.name;
        let mut files = config.include.iter().flat_map(|include| &include.files);
        let file = files.find(|file| file.sites.iter().any(|site| site == name))?;
        file.path.file_name().map(OsStr::to_owned)
    }

    /// Tries a reload again without the files of which a process has not come up; or says that it has failed.
    pub(super) fn try_without(&mut self, asker: Asker, mut wanted: Wanted, refused: Refused, reason: &str) {
        let is_new = refused.keys().any(|file| !wanted.refused.contains_key(file));
        let is_needed = wanted.must.as_ref().is_some_and(|file| refused.contains_key(file));
        let may = wanted.tolerance == Tolerance::EachFile && wanted.passes < PASSES_MAX;
        if !is_new || !may || is_needed || self.supervisor.is_stopping() {
            return self.refuse_reload(asker, reason);
        }
        wanted.refused.extend(refused);
        wanted.passes += 1;
        self.begin_examination(asker, wanted, 1, None);
    }

    /// Takes notice of the files that were left out of what runs from now on. Where one file alone was taken in,
    /// nothing is known of others.
    pub(super) fn take_left_out(&mut self, mut left_out: Vec<LeftOut>, only: Option<&OsStr>) {
        let known = &mut self.components.admin_commands.left_out;
        if let Some(only) = only {
            known.retain(|left| left.file.file_name() != Some(only));
            left_out.append(known);
            left_out.sort_by(|one, other| one.file.cmp(&other.file));
        }
        *known = left_out;
        self.keep_good_copies();
    }

    /// Has copies made of all that is good.
    pub(super) fn keep_good_copies(&mut self) {
        let left_out = self.names_left_out();
        if self.supervisor.context().config.include.is_some() {
            self.components.good_copies.follow(&self.source, left_out);
        }
    }

    /// The names of the files that were left out.
    pub(super) fn names_left_out(&self) -> BTreeSet<OsString> {
        let left_out = self.components.admin_commands.left_out.iter();
        left_out.filter_map(|left| left.file.file_name()).map(OsStr::to_owned).collect()
    }

    /// Has the log say which files are left out; or whether one is that was taken in alone: of others there is nothing
    /// new.
    pub(super) fn log_left_out(&mut self, when: &str, only: Option<&OsStr>) {
        let mut left_out = self.components.admin_commands.left_out.clone();
        left_out.retain(|left| only.is_none_or(|only| left.file.file_name() == Some(only)));
        for left in left_out.iter().take(LOGGED_MAX) {
            let reason: Vec<&str> =
                left.reason.lines().map(|line| line.trim_start_matches([' ', '='])).collect();
            let reason = reason.join("; ");
            self.supervisor.warn(format!(
                "{when}: {} is left out, {}: {reason}",
                left.file.display(),
                instead(left)
            ));
        }
        if left_out.len() > LOGGED_MAX {
            let more = left_out.len() - LOGGED_MAX;
            self.supervisor
                .warn(format!("{when}: {more} more files are left out; `bulkhead status` lists them"));
        }
    }

    /// Says which certificates the signer that comes does not have, if one of these is a signer.
    pub(super) fn say_left_out(&mut self, asker: Asker, successors: &[(usize, u64)]) {
        for &(slot, serial) in successors {
            if self.supervisor.spec(slot).role == Role::Signer {
                let left_out = self.components.certificates.files.left_out_of(&self.supervisor, serial);
                self.send_left_out(asker, &left_out);
            }
        }
    }

    /// Says which files a reload leaves out, or would.
    pub(super) fn send_left_out(&mut self, asker: Asker, left_out: &[LeftOut]) {
        let Asker::Admin { admin, ticket } = asker else { return };
        for left in left_out {
            self.supervisor.send(admin, &left_out_line(ticket, left), None);
        }
    }
}

/// What there is in the place of a file.
fn instead(left: &LeftOut) -> String {
    let hosts = left.hosts.join(", ");
    match (left.stand_in, left.is_whole) {
        (StandIn::Running, _) => "and its sites go on as they run".into(),
        (StandIn::LastGood, _) => "and its sites are those of the last good copy".into(),
        (StandIn::Unavailable, true) => format!("and its hosts get 503 ({hosts})"),
        (StandIn::Unavailable, false) => {
            format!("and the hosts that could be read get 503 ({hosts}); whether it has others is not known")
        }
        (StandIn::Nothing, true) => "and its sites are not there".into(),
        (StandIn::Nothing, false) => "and which hosts it has is not known".into(),
        (StandIn::NoCertificate, _) => "and handshakes with its site fail".into(),
    }
}
