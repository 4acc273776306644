//! The files of certificates: opened for the signer, and looked at from time to time.
//!
//! Runs in: the launcher, as root. Sees: sizes and times of files that the operator named; the signer's verdicts, which
//! are enumerations. Never: reads a byte of them.
//!
//! Source: mechanisms.md H1, H11.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::Config;
use wire::Role;
use wire::tls::{LauncherToSigner, Verdict};

use crate::launcher::Launcher;

/// By what a file is known to have changed.
type Stamp = (u64, u64, i64, i64, u64);

#[derive(Debug)]
struct Place {
    site: u16,
    number: u16,
    path: PathBuf,
    /// As it was when it was last given to a signer.
    given: Option<Stamp>,
    /// The signers that have yet to say what became of it.
    owed: Vec<u64>,
}

impl Place {
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
pub(crate) struct Certificates {
    places: Vec<Place>,
    every: Duration,
    next: Option<Instant>,
}

impl Certificates {
    pub(crate) fn of(config: &Config) -> Self {
        let mut places = Vec::new();
        for (site, about) in config.sites.iter().enumerate() {
            let files = about.tls.iter().flat_map(|tls| &tls.certificates);
            places.extend(files.enumerate().map(|(number, path)| Place {
                site: site as u16,
                number: number as u16,
                path: path.clone(),
                given: None,
                owed: Vec::new(),
            }));
        }
        let every = Duration::from_millis(config.tls.reread_ms.into());
        let next = (!places.is_empty()).then(|| Instant::now() + every);
        Self { places, every, next }
    }

    /// When they are looked at next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next
    }
}

impl Launcher {
    /// Gives a new signer every file, the channels being made elsewhere.
    pub(crate) fn introduce_signer(&mut self, signer: u64) {
        for place in 0..self.certificates.places.len() {
            self.give(place, &[signer]);
        }
        self.tell(signer, &LauncherToSigner::Begin {}, None);
    }

    /// Opens a file and hands it over; whatever is wrong with it, the others go on.
    fn give(&mut self, place: usize, signers: &[u64]) {
        let Place { site, number, .. } = self.certificates.places[place];
        let opened = open(&self.certificates.places[place].path).and_then(|file| Ok((stamp(&file)?, file)));
        match opened {
            Ok((stamp, file)) => {
                self.certificates.places[place].given = Some(stamp);
                let file = OwnedFd::from(file);
                for &signer in signers {
                    if let Ok(file) = file.try_clone() {
                        self.certificates.places[place].owed.push(signer);
                        self.tell(signer, &LauncherToSigner::Certificate { site, number }, Some(file));
                    }
                }
            }
            Err(error) => self.complain(place, &error.to_string()),
        }
    }

    fn complain(&mut self, place: usize, what: &str) {
        let Place { site, path, .. } = &self.certificates.places[place];
        let name = &self.ground.config.sites[usize::from(*site)].name;
        let text = format!("`certificates` {} of site {name}: {what}", path.display());
        self.journal.warning(text);
    }

    /// Looks whether files have changed.
    pub(crate) fn certificates_on_time(&mut self, now: Instant) {
        if self.certificates.next.is_none_or(|next| next > now) || self.stopping.is_some() {
            return;
        }
        self.certificates.next = Some(now + self.certificates.every);
        let signers = self.active(Role::Signer, None);
        self.give_names(&self.active(Role::Stapler, None));
        for place in 0..self.certificates.places.len() {
            let Place { path, given, .. } = &self.certificates.places[place];
            match File::options().read(true).custom_flags(O_PATH).open(path).and_then(|file| stamp(&file)) {
                Ok(found) if Some(found) == *given => {}
                Ok(_) => self.give(place, &signers),
                Err(error) => self.complain(place, &error.to_string()),
            }
        }
    }

    /// A signer is gone, and with it what it had to say.
    pub(crate) fn certificates_without(&mut self, serial: u64) {
        self.certificates.places.iter_mut().for_each(|place| place.owed.retain(|&signer| signer != serial));
    }

    /// Takes a signer's word about a file.
    pub(crate) fn on_certificate(&mut self, serial: u64, site: u16, number: u16, verdict: Verdict) {
        let known = |place: &Place| (place.site, place.number) == (site, number);
        let place = self.certificates.places.iter().position(known);
        let place = place.filter(|&place| self.certificates.places[place].is_owed_by(serial));
        match place {
            Some(_) if verdict == Verdict::Good && !self.announced => {}
            Some(place) if verdict == Verdict::Good => {
                let Place { site, path, .. } = &self.certificates.places[place];
                let name = &self.ground.config.sites[usize::from(*site)].name;
                self.journal.info(format!("`certificates` {} of site {name} is in use", path.display()));
            }
            Some(place) => {
                let what =
                    format!("the file {}; the site goes on without it, or with what it had", verdict.words());
                self.complain(place, &what);
            }
            // Nobody asked.
            None => self.nonsense(serial),
        }
    }
}

const O_PATH: i32 = rustix::fs::OFlags::PATH.bits() as i32;

/// Opens a regular file; another kind might keep the launcher waiting.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file")),
    }
}

fn stamp(file: &File) -> io::Result<Stamp> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}
