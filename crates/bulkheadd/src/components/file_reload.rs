//! Files that are read again when they have changed: certificates, by the signer; authorities of clients' certificates,
//! lists of revoked ones and users, by workers of their site; what this machine says of names, by the stapler. Opened
//! for them, and looked at from time to time.
//!
//! Runs in: the launcher, as root. Sees: sizes and times of files that the operator named; the signer's verdicts, which
//! are enumerations. Never: reads a byte of them, or wakes anybody for one that is as it was.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::Config;
use wire::stapler::LauncherToStapler;
use wire::tls::{Holding, LauncherToSigner, Objection, Verdict};
use wire::{LauncherToSite, Role, Text};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::restart::Ended;
use supervisor::setup::reloaded_files::{for_workers, open};
use supervisor::setup::stapler::{self, NAMES};

/// By what a file is known to have changed.
type Stamp = (u64, u64, i64, i64, u64);

/// The same for a file, and for that of its key.
type Stamps = (Stamp, Option<Stamp>);

/// What a file is for.
#[derive(Clone, Debug, PartialEq)]
enum Purpose {
    /// It is this certificate of a site, for the signer.
    Certificate { site: u16, number: u16 },
    /// For a site's workers, which are told so.
    Site(u16, LauncherToSite),
    /// For the stapler, which is told so. A machine may be without.
    Names(LauncherToStapler),
}

impl Purpose {
    /// The key by which the operator has named the file, and the site.
    fn named(&self) -> Option<(&'static str, u16)> {
        match self {
            Self::Certificate { site, .. } => Some(("certificates", *site)),
            Self::Site(site, LauncherToSite::ClientAuthorities { .. }) => Some(("client_ca", *site)),
            Self::Site(site, LauncherToSite::ClientRevoked { .. }) => Some(("client_crl", *site)),
            Self::Site(site, _) => Some(("users", *site)),
            Self::Names(_) => None,
        }
    }
}

#[derive(Debug)]
struct ReloadedFile {
    purpose: Purpose,
    path: PathBuf,
    /// The file of the key, of a certificate that has one.
    key: Option<PathBuf>,
    /// As they were when they were last given to those who read them.
    given: Option<Stamps>,
    /// The signers that have yet to say what became of it.
    owed: Vec<u64>,
    /// What the signer has said last, if it is for one.
    said: (Verdict, Holding),
    /// What was said against it, so that each objection is said once.
    objected: Vec<Objection>,
}

impl ReloadedFile {
    fn new(purpose: Purpose, path: PathBuf) -> Self {
        let said = (Verdict::Unreadable, Holding::NOTHING);
        Self { purpose, path, key: None, given: None, owed: Vec::new(), said, objected: Vec::new() }
    }

    /// As the files are now, without opening them.
    fn look(&self) -> io::Result<Stamps> {
        Ok((look(&self.path)?, self.key.as_deref().map(look).transpose()?))
    }

    /// The files, and as they are now.
    fn open(&self) -> io::Result<(File, Option<File>, Stamps)> {
        let (file, key) = (open(&self.path)?, self.key.as_deref().map(open).transpose()?);
        let stamps = (stamp(&file)?, key.as_ref().map(stamp).transpose()?);
        Ok((file, key, stamps))
    }

    /// Whether this signer's word was asked for; it is asked for once.
    ///
    /// SECURITY: each word is a line of the log, which one that was taken over would fill.
    fn is_owed_by(&mut self, signer: u64) -> bool {
        let found = self.owed.iter().position(|&owing| owing == signer);
        found.map(|at| self.owed.swap_remove(at)).is_some()
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct FileReload {
    files: Vec<ReloadedFile>,
    /// Where each certificate is in `files`, by its site and number.
    certificates: BTreeMap<(u16, u16), usize>,
    every: Duration,
    next: Option<Instant>,
}

impl FileReload {
    pub(crate) fn of(config: &Config) -> Self {
        let mut none =
            Self { files: Vec::new(), certificates: BTreeMap::new(), every: Duration::ZERO, next: None };
        none.adopt(config);
        none
    }

    /// Looks at the files of this configuration from here on. Those that it shares with the one before are as they were.
    pub(crate) fn adopt(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.files);
        let names = if stapler::is_wanted(config) { &NAMES[..] } else { &[] };
        let names =
            names.iter().cloned().map(|(path, told)| ReloadedFile::new(Purpose::Names(told), path.into()));
        let mut files: Vec<ReloadedFile> = names.collect();
        for (site, about) in (0u16..).zip(&config.sites) {
            let certificates = (0u16..).zip(about.tls.iter().flat_map(|tls| &tls.certificates));
            files.extend(certificates.map(|(number, files)| {
                let purpose = Purpose::Certificate { site, number };
                let file = ReloadedFile::new(purpose, files.certificate.clone());
                ReloadedFile { key: files.key.clone(), ..file }
            }));
            // A site's worker has opened its own by the first look, or will.
            files.extend(for_workers(about).into_iter().map(|(told, path)| {
                let file = ReloadedFile::new(Purpose::Site(site, told), path);
                let given = file.look().ok();
                ReloadedFile { given, ..file }
            }));
        }
        for file in &mut files {
            let same = |old: &ReloadedFile| {
                old.purpose == file.purpose && (&old.path, &old.key) == (&file.path, &file.key)
            };
            if let Some(at) = before.iter().position(same) {
                *file = before.swap_remove(at);
            }
        }
        self.every = Duration::from_millis(config.tls.reread_ms.into());
        let next = Instant::now() + self.every;
        // Not later than it was to be: whoever reloads all the time does not put it off.
        self.next = (!files.is_empty()).then(|| self.next.map_or(next, |before| before.min(next)));
        let certificates = files.iter().enumerate().filter_map(|(at, place)| match place.purpose {
            Purpose::Certificate { site, number } => Some(((site, number), at)),
            _ => None,
        });
        self.certificates = certificates.collect();
        self.files = files;
    }

    /// Each certificate: its site and number, its file, and what the signer has said of it.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = ((u16, u16), &Path, Verdict, Holding)> {
        self.certificates.iter().map(|(&id, &at)| {
            let ReloadedFile { path, said: (verdict, holding), .. } = &self.files[at];
            (id, &**path, *verdict, *holding)
        })
    }

    /// Whether a site has a certificate of this number.
    pub(crate) fn has_certificate(&self, id: (u16, u16)) -> bool {
        self.certificates.contains_key(&id)
    }
}

impl Component for FileReload {
    fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks whether files have changed.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if self.next.is_none_or(|next| next > now) || supervisor.is_stopping() {
            return;
        }
        self.next = Some(now + self.every);
        for place in 0..self.files.len() {
            let file = &self.files[place];
            match file.look() {
                Ok(found) if Some(found) == file.given => {}
                Ok(_) => self.give(supervisor, place, &self.readers(supervisor, place)),
                Err(error) => self.complain(supervisor, place, &error.to_string()),
            }
            self.object(supervisor, place);
        }
    }

    fn on_exit(&mut self, _supervisor: &mut Supervisor, ended: &mut Ended) {
        self.files.iter_mut().for_each(|place| place.owed.retain(|&signer| signer != ended.serial));
    }
}

impl FileReload {
    /// Gives a new signer every certificate, the channels being made elsewhere.
    pub(crate) fn configure_signer(&mut self, supervisor: &mut Supervisor, signer: u64) {
        let sites = (0u16..).zip(&supervisor.context().config.sites).filter(|(_, site)| site.tls.is_some());
        let hosts = sites.clone().flat_map(|(site, about)| {
            about.hosts.iter().map(move |host| LauncherToSigner::Host { site, host: Text::new(host) })
        });
        let named = sites
            .clone()
            .map(|(site, about)| LauncherToSigner::Name { site, name: Text::new(about.name.as_str()) });
        for message in named.chain(hosts).collect::<Vec<_>>() {
            supervisor.send(signer, &message, None);
        }
        self.give_all(supervisor, signer, |purpose| matches!(purpose, Purpose::Certificate { .. }));
        supervisor.send(signer, &LauncherToSigner::Begin {}, None);
    }

    /// Gives a new stapler what is known of names.
    pub(crate) fn give_names(&mut self, supervisor: &mut Supervisor, stapler: u64) {
        self.give_all(supervisor, stapler, |purpose| matches!(purpose, Purpose::Names(_)));
    }

    fn give_all(&mut self, supervisor: &mut Supervisor, reader: u64, fits: impl Fn(&Purpose) -> bool) {
        for place in 0..self.files.len() {
            if fits(&self.files[place].purpose) {
                self.give(supervisor, place, &[reader]);
            }
        }
    }

    /// Those who read a file.
    fn readers(&self, supervisor: &Supervisor, place: usize) -> Vec<u64> {
        match &self.files[place].purpose {
            Purpose::Certificate { .. } => supervisor.active(Role::Signer, None),
            Purpose::Names(_) => supervisor.active(Role::Stapler, None),
            Purpose::Site(site, _) => {
                let workers = supervisor.active(Role::Site, None).into_iter();
                workers.filter(|worker| supervisor.spec_of(*worker).site == *site).collect()
            }
        }
    }

    /// Opens a file and hands it over; whatever is wrong with it, the others go on.
    fn give(&mut self, supervisor: &mut Supervisor, place: usize, readers: &[u64]) {
        let purpose = self.files[place].purpose.clone();
        match self.files[place].open() {
            Ok((file, key, stamps)) => {
                self.files[place].given = Some(stamps);
                for &reader in readers {
                    let Ok(file) = file.try_clone() else { continue };
                    let Ok(key) = key.as_ref().map(File::try_clone).transpose() else { continue };
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
                        Purpose::Names(message) => supervisor.send(reader, message, file),
                    }
                }
            }
            Err(error) => self.complain(supervisor, place, &error.to_string()),
        }
    }

    /// Says what is wrong with a file, if it is one that the operator has named.
    fn complain(&mut self, supervisor: &mut Supervisor, place: usize, what: &str) {
        if let Some(about) = self.about(supervisor, place) {
            supervisor.warn(format!("{about}: {what}"));
        }
    }

    fn about(&self, supervisor: &Supervisor, place: usize) -> Option<String> {
        let ReloadedFile { purpose, path, key: private, .. } = &self.files[place];
        let (key, site) = purpose.named()?;
        let name = &supervisor.context().config.sites[usize::from(site)].name;
        let key = if private.is_some() { "certificate" } else { key };
        let private = private.iter().map(|private| format!(" with the key {}", private.display()));
        Some(format!("`{key}` {}{} of site {name}", path.display(), private.collect::<String>()))
    }

    /// Says what is new of what clients have against a certificate: at the start, when it is read again, and in its
    /// last days.
    fn object(&mut self, supervisor: &mut Supervisor, place: usize) {
        let ReloadedFile { said: (_, holding), objected, .. } = &mut self.files[place];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let found: Vec<Objection> = holding.objections(now).collect();
        let before = std::mem::replace(objected, found.clone());
        for objection in found.into_iter().filter(|one| !before.contains(one)) {
            self.complain(supervisor, place, &format!("it {}; {}", objection.words(), objection.remedy()));
        }
    }

    /// Takes a signer's word about a file.
    pub(crate) fn on_certificate(
        &mut self,
        supervisor: &mut Supervisor,
        serial: u64,
        id: (u16, u16),
        verdict: Verdict,
        holding: Holding,
    ) {
        let place = self.certificates.get(&id).copied();
        let place = place.filter(|&place| self.files[place].is_owed_by(serial));
        if let Some(place) = place {
            self.files[place].said = (verdict, holding);
        }
        match place {
            Some(place) if verdict == Verdict::Good => {
                if let Some(about) = self.about(supervisor, place).filter(|_| supervisor.is_announced()) {
                    supervisor.info(format!("{about} is in use"));
                }
                self.files[place].objected.clear();
                self.object(supervisor, place);
            }
            Some(place) => {
                let what =
                    format!("the file {}; the site goes on without it, or with what it had", verdict.words());
                self.complain(supervisor, place, &what);
            }
            // Nobody asked.
            None => supervisor.protocol_violation(serial),
        }
    }
}

const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;

/// As a file is now, without opening it.
fn look(path: &Path) -> io::Result<Stamp> {
    stamp(&File::options().read(true).custom_flags(O_PATH).open(path)?)
}

fn stamp(file: &File) -> io::Result<Stamp> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}
