//! Files that are read again when they have changed: certificates, by the signer; authorities of clients' certificates,
//! lists of revoked ones and users, by workers of their site; statements and what logs in at servers, by data proxies;
//! what this machine says of names, by those who look names up. Opened for them, and looked at from time to time.
//!
//! Runs in: the launcher, as root. Sees: sizes and times of files that the operator named; the signer's verdicts, which
//! are enumerations. Never: reads a byte of them, or wakes anybody for one that is as it was.

mod file;
mod giving;
pub(crate) mod handover;
mod lacking;
mod round;
mod signers;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use config::{Config, Neighbours, Opener};
use wire::Role;
use wire::tls::{Holding, LauncherToSigner, Verdict};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::change::plan::plan_files;
use supervisor::change::{Change, FileId};
use supervisor::opened_files::FileKey;
use supervisor::restart::Ended;

use self::file::{Purpose, ReloadedFile, is_settled};
use self::giving::Giving;
pub(crate) use self::lacking::{Culprit, Lacking, Unusable};
use self::round::Round;
use self::table::{FilePlace, FileTable, NAMES};

/// LIMIT: how often the files about names are looked at, at least: who corrects an address there waits for it.
const NAMES_EVERY: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Debug)]
pub(crate) struct FileReload {
    files: FileTable,
    every: Duration,
    next: Option<Instant>,
    /// When the files about names are looked at.
    next_names: Option<Instant>,
    round: Round,
    /// The signers that are given certificates one after the other, by their serial numbers.
    giving: BTreeMap<u64, Giving>,
    /// Files that were written since they were read, until the launcher takes notice.
    written: Vec<Change>,
}

impl FileReload {
    pub(crate) fn of(config: &Config) -> Self {
        let (files, every, next, next_names) = (FileTable::default(), Duration::ZERO, None, None);
        let (round, giving, written) = (Round::default(), BTreeMap::new(), Vec::new());
        let mut none = Self { files, every, next, next_names, round, giving, written };
        none.adopt(config);
        // Of those that a server starts with, or has had before an upgrade, nothing is said.
        none.files.iter_mut().for_each(|file| file.is_new = false);
        none
    }

    /// Looks at the files of this configuration from here on. Those that it shares with the one before are as they
    /// were.
    pub(crate) fn adopt(&mut self, config: &Config) {
        self.files.adopt(config, &Opener::of(&config.dir));
        self.every = Duration::from_millis(config.tls.reread_ms.into());
        let next = Instant::now() + self.every;
        // Not later than it was to be: whoever reloads all the time does not put it off.
        let rows = self.files.rows();
        self.next = (rows > 0).then(|| self.next.map_or(next, |before| before.min(next)));
        let next = Instant::now() + NAMES_EVERY.min(self.every);
        let has_names = self.files.len_of(NAMES) > 0;
        self.next_names = has_names.then(|| self.next_names.map_or(next, |before| before.min(next)));
        self.round.adopt(rows);
    }

    /// Has the files looked at at once: who has a configuration read again has changed something.
    pub(crate) fn look_soon(&mut self) {
        self.next = self.next.map(|_| Instant::now());
    }

    /// A change of the configuration begins: files that are looked at wait for it.
    pub(crate) fn put_off(&mut self) {
        self.round.put_off(Instant::now());
    }

    /// Each certificate: its site and number, its file, and what the signer has said of it.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = ((u16, u16), &Path, Verdict, Holding)> {
        self.files.certificates().map(|(id, file)| (id, &*file.path, file.said.0, file.said.1))
    }

    /// Whether a site has a certificate of this number.
    pub(crate) fn has_certificate(&self, id: (u16, u16)) -> bool {
        self.files.certificate(id).is_some()
    }
}

impl Component for FileReload {
    fn deadline(&self) -> Option<Instant> {
        self.next.into_iter().chain(self.next_names).chain(self.round.deadline()).min()
    }

    /// Looks whether files have changed.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if supervisor.is_stopping() {
            (self.next, self.next_names) = (None, None);
            return self.round.stop();
        }
        let is_due = |next: Option<Instant>| next.is_some_and(|next| next <= now);
        let (is_time, names_due) = (is_due(self.next), is_due(self.next_names));
        // What others have opened is looked at when it has come; that is asked for again when it is time.
        if supervisor.take_opened() || is_time {
            self.round.begin(self.files.rows(), is_time, now);
        }
        if is_time {
            self.next = Some(now + self.every);
        }
        if names_due {
            self.next_names = Some(now + NAMES_EVERY.min(self.every));
            self.look_at(supervisor, NAMES..NAMES + 1);
        }
        if is_due(self.round.deadline()) {
            let portion = self.round.next(self.files.rows(), |row| self.files.len_of(row));
            let begun = Instant::now();
            let looked = self.look_at(supervisor, portion);
            self.round.rest(begun.elapsed(), Instant::now());
            self.round.looked.extend(looked);
            let looked = self.round.take_looked();
            looked.into_iter().for_each(|looked| supervisor.open_again(looked, now));
        }
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        // There may be thousands of files.
        if supervisor.spec(ended.process.slot).role == Role::Signer {
            self.giving.remove(&ended.serial);
            self.files.iter_mut().for_each(|file| file.forget_signer(ended.serial));
        }
    }
}

impl FileReload {
    /// Looks whether the files of some rows have changed. Returns what of them others have opened, or are to open.
    fn look_at(&mut self, supervisor: &mut Supervisor, rows: Range<usize>) -> BTreeSet<FileKey> {
        let opener = supervisor.context().opener();
        supervisor.context().opened.take_looked();
        let (mut read, mut there, mut versions) = (BTreeMap::new(), BTreeMap::new(), opener.versions());
        for place in rows.flat_map(|row| self.files.places(row)).collect::<Vec<_>>() {
            let file = &self.files[place];
            match file.look(&mut versions) {
                // Most of thousands are as they were.
                Ok(found) if file.known(&found) == found => {}
                Ok(found) => {
                    let id = file.purpose.id(&file.path);
                    read.insert(id.clone(), file.known(&found));
                    there.insert(id, found);
                }
                Err(fault) if fault.is_remote() => {}
                Err(fault) => self.complain(supervisor, place, &fault.to_string()),
            }
            self.object(supervisor, place);
        }
        self.written.extend(plan_files(&read, &there));
        supervisor.context().opened.take_looked()
    }

    /// The files that were written since they were read, once.
    pub(crate) fn take_written(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.written)
    }

    /// Has those who use a file read it again.
    pub(crate) fn reread(&mut self, supervisor: &mut Supervisor, file: &FileId) {
        if let Some(place) = self.files.place_of(file) {
            let opener = supervisor.context().opener();
            let readers = self.readers(supervisor, place);
            if let Err(why) = self.give(supervisor, &opener.neighbours(), place, &readers) {
                self.complain(supervisor, place, &why);
            }
        }
    }

    /// Those who read a file.
    fn readers(&self, supervisor: &Supervisor, place: FilePlace) -> Vec<u64> {
        match &self.files[place].purpose {
            Purpose::Certificate { .. } => supervisor.active(Role::Signer, None),
            Purpose::Names(_) => supervisor.users_of_names(),
            Purpose::Data { site, number, .. } => {
                let proxies = supervisor.active(Role::DataProxy, None).into_iter();
                let is_its = |proxy: &u64| {
                    let spec = supervisor.spec_of(*proxy);
                    (spec.site, spec.index) == (*site, usize::from(*number))
                };
                proxies.filter(is_its).collect()
            }
            Purpose::Site(site, _) => {
                let workers = supervisor.active(Role::Site, None).into_iter();
                workers.filter(|worker| supervisor.spec_of(*worker).site == *site).collect()
            }
        }
    }

    /// Opens a file and hands it over; whatever is wrong with it, the others go on.
    fn give(
        &mut self,
        supervisor: &mut Supervisor,
        neighbours: &Neighbours<'_>,
        place: FilePlace,
        readers: &[u64],
    ) -> Result<(), String> {
        let purpose = self.files[place].purpose.clone();
        match self.files[place].open(neighbours) {
            Ok(first) => {
                let file = &mut self.files[place];
                file.is_as_accepted = file.is_accepted() && file.known(&first.2) == first.2;
                file.is_settled = is_settled(&first.2);
                file.given = Some(first.2);
                let mut first = Some(first);
                for &reader in readers {
                    // Each reads from the beginning: copies of a descriptor have one place in the file.
                    let opened = first.take().or_else(|| self.files[place].open(neighbours).ok());
                    let Some((file, key, _)) = opened else { continue };
                    let file = Some(OwnedFd::from(file));
                    match &purpose {
                        &Purpose::Certificate { site, number } => {
                            self.files[place].owed.push(reader);
                            if let Some(key) = key {
                                let message = LauncherToSigner::Key { site, number };
                                supervisor.send(reader, &message, Some(key.into()));
                            }
                            supervisor.send(reader, &LauncherToSigner::Certificate { site, number }, file);
                        }
                        Purpose::Site(_, message) => supervisor.send(reader, message, file),
                        Purpose::Data { told, .. } => supervisor.send(reader, told, file),
                        Purpose::Names(which) => {
                            file.into_iter().for_each(|file| supervisor.hand_names(reader, *which, file));
                        }
                    }
                }
                Ok(())
            }
            // It is given when it has been opened, which is begun with the next look.
            Err(fault) if fault.is_remote() => {
                self.look_soon();
                Ok(())
            }
            Err(error) => {
                // When it is there again, it may be as it was, and nobody may have it.
                self.files[place].given = None;
                Err(error.to_string())
            }
        }
    }

    /// Says what is wrong with a file, if it is one that the operator has named.
    fn complain(&mut self, supervisor: &mut Supervisor, place: FilePlace, what: &str) {
        if let Some(about) = self.about(supervisor, place) {
            supervisor.warn(format!("{about}: {what}"));
        }
    }

    fn about(&self, supervisor: &Supervisor, place: FilePlace) -> Option<String> {
        let ReloadedFile { purpose, path, key: private, .. } = &self.files[place];
        let (key, site) = purpose.named()?;
        let name = &supervisor.context().config.sites[usize::from(site)].name;
        let key = if private.is_some() { "certificate" } else { key };
        let private = private.iter().map(|private| format!(" with the key {}", private.display()));
        Some(format!("`{key}` {}{} of site {name}", path.display(), private.collect::<String>()))
    }
}
