//! The log files that are open: which they are, and those of the next configuration.
//!
//! Runs in: the launcher, as root. Sees: the clock, the folder of logs. Never: writes to an access log, or loses the
//! files that are open because others cannot be opened.

mod access;
mod days;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use config::{AccessFormat, Config};

pub use self::access::AccessLogs;
pub(crate) use self::access::NO_SITE;
use self::access::Where;
use self::days::Days;
use crate::directories;
use crate::error::{Error, during};
use crate::setup::made_files::MadeFiles;
use crate::setup::syslog::Syslog;

/// The error log, if it is not elsewhere.
const ERROR: &str = "error.log";
/// Where programs of the machine reach syslog.
const SYSLOG: &str = "/dev/log";

/// The files of all logs.
#[derive(Debug)]
pub struct Logs {
    /// The folder of all but an error log that is elsewhere.
    folder: PathBuf,
    error_file: Option<PathBuf>,
    /// The shape of a line of an access log.
    pub format: AccessFormat,
    /// How long a line may wait.
    pub flush_ms: u32,
    /// How long an access log may become.
    pub access_bytes: u64,
    days: Option<Days>,
    /// The access logs.
    pub access: AccessLogs,
    /// The error log.
    pub error: File,
    /// Syslog, if it is wanted.
    pub syslog: Option<Syslog>,
    /// What was made for a configuration that does not hold yet.
    made: MadeFiles,
}

impl Logs {
    /// Opens those of a configuration.
    pub fn open(config: &Config, now: SystemTime) -> Result<Self, Error> {
        let days = config.log.daily.then(|| Days::new(now));
        let (folder, error_file) = (config.server.log_dir.clone(), config.log.error_file.clone());
        let mut made = MadeFiles::default();
        made.note(&folder);
        directories::own_directory(&folder, 0o755)?;
        made.note(error_file.as_deref().unwrap_or(&folder.join(ERROR)));
        Ok(Self {
            access: AccessLogs::open(config, Where { folder: &folder, days: days.as_ref() }, &mut made)?,
            error: error(&folder, error_file.as_deref())?,
            format: config.log.access_format,
            flush_ms: config.log.flush_ms,
            access_bytes: config.log.access_bytes,
            syslog: config.log.error_syslog.then(|| Syslog::connect(Path::new(SYSLOG))),
            folder,
            error_file,
            days,
            made,
        })
    }

    /// Those of a launcher that this one has taken the place of: the access logs in the order of the sites, as far as
    /// they are open, the one of no site last, and the day that they are of.
    pub fn known(config: &Config, access: Vec<Option<File>>, error: File, day: u64) -> Self {
        Self {
            folder: config.server.log_dir.clone(),
            error_file: config.log.error_file.clone(),
            format: config.log.access_format,
            flush_ms: config.log.flush_ms,
            access_bytes: config.log.access_bytes,
            days: config.log.daily.then(|| Days::of(day)),
            access: AccessLogs::known(config, access),
            error,
            syslog: config.log.error_syslog.then(|| Syslog::connect(Path::new(SYSLOG))),
            made: MadeFiles::default(),
        }
    }

    /// The day whose files are open, counted from 1970-01-01; 0, if there is one file for all days.
    pub fn day(&self) -> u64 {
        self.days.as_ref().map_or(0, |days| days.day)
    }

    /// Opens those of a configuration that takes the place of another. What both have stays open as it is.
    pub fn open_next(&self, config: &Config, now: SystemTime) -> Result<Self, Error> {
        let (log, syslog) = (&config.log, config.log.error_syslog);
        let same_folder = (&self.folder, &self.error_file) == (&config.server.log_dir, &log.error_file);
        if !same_folder || (self.days.is_some(), self.syslog.is_some()) != (log.daily, syslog) {
            return Self::open(config, now);
        }
        let mut made = MadeFiles::default();
        Ok(Self {
            access: self.access.open_next(config, self.at(), &mut made)?,
            error: self.error.try_clone().map_err(during("duplicate a descriptor"))?,
            format: log.access_format,
            flush_ms: log.flush_ms,
            access_bytes: log.access_bytes,
            syslog: syslog.then(|| Syslog::connect(Path::new(SYSLOG))),
            folder: self.folder.clone(),
            error_file: self.error_file.clone(),
            days: self.days.clone(),
            made,
        })
    }

    /// The configuration holds: what was made for it stays.
    pub fn keep(&mut self) {
        self.made.keep();
    }

    fn at(&self) -> Where<'_> {
        Where { folder: &self.folder, days: self.days.as_ref() }
    }

    /// Takes over the logs that were opened in `other` of sites that have the same ones here.
    pub fn take_opened(&mut self, other: &Self) {
        self.access.take_opened(&other.access);
    }

    /// Has sites be there that were tried and given up, as places: what is logged of one goes to the log of no site.
    pub fn take_places(&mut self, config: &Config) {
        self.access.take_places(config);
    }

    /// The sites of which `new` has another file; `None` if more than that has changed.
    pub fn changed_sites(&self, new: &Self) -> Option<Vec<usize>> {
        let rest = |logs: &Self| {
            let places = (logs.folder.clone(), logs.error_file.clone());
            let (days, syslog) = (logs.days.is_some(), logs.syslog.is_some());
            (logs.format, logs.flush_ms, logs.access_bytes, places, days, syslog)
        };
        if rest(self) != rest(new) {
            return None;
        }
        self.access.changed_sites(&new.access)
    }

    /// Whether there is a site of this number, whose log is not open.
    pub fn is_closed(&self, site: usize) -> bool {
        site < self.access.sites() && self.access.file(site).is_none()
    }

    /// Opens the log of a site, under the name of the day whose files are open. If that fails, the log of no site
    /// stands for it until the logs are opened anew.
    pub fn open_one(&mut self, site: usize) -> Result<(), Error> {
        let at = Where { folder: &self.folder, days: self.days.as_ref() };
        self.access.open_one(site, at)
    }

    /// Opens those that are open again, under the names of today. Either all are new ones after it, or none.
    pub fn reopen(&mut self, now: SystemTime) -> Result<(), Error> {
        let days = self.days.as_ref().map(|_| Days::new(now));
        let access = self.access.opened_again(Where { folder: &self.folder, days: days.as_ref() })?;
        self.error = error(&self.folder, self.error_file.as_deref())?;
        self.access = access;
        if let Some(syslog) = &mut self.syslog {
            *syslog = Syslog::connect(Path::new(SYSLOG));
        }
        self.days = days;
        Ok(())
    }

    /// Whether another day has begun.
    pub fn are_due(&mut self, now: SystemTime) -> bool {
        self.days.as_mut().is_some_and(|days| days.is_due(now))
    }

    /// How long nothing is to be done here.
    pub fn pause(&self, now: SystemTime) -> Option<Duration> {
        let days = self.days.as_ref().map(|days| days.pause(now));
        let syslog = self.syslog.as_ref().map(|syslog| syslog.pause(Instant::now()));
        days.into_iter().chain(syslog).min()
    }

    /// The error log and syslog once more, for the launcher's own lines.
    pub fn for_own_log(&self) -> Result<(File, Option<UnixDatagram>), Error> {
        let both = || -> io::Result<_> { Ok((self.error.try_clone()?, self.syslog_socket()?)) };
        both().map_err(during("duplicate a descriptor"))
    }

    /// The socket of syslog, once more.
    pub fn syslog_socket(&self) -> io::Result<Option<UnixDatagram>> {
        let socket = self.syslog.as_ref().and_then(|syslog| syslog.socket.as_ref());
        socket.map(UnixDatagram::try_clone).transpose()
    }
}

fn error(folder: &Path, elsewhere: Option<&Path>) -> Result<File, Error> {
    match elsewhere {
        Some(path) => directories::log_elsewhere(path),
        None => directories::log_file(&folder.join(ERROR)),
    }
}

#[cfg(test)]
mod tests;
