//! The log files that are open: which they are, and when each day's are due.
//!
//! Runs in: the launcher, as root. Sees: the clock, the folder of logs. Never: writes to an access log, or loses the
//! files that are open because others cannot be opened.
//!
//! A day is one of UTC, as the times in the lines are: so a file has the lines of its name, there is one for each day
//! and none is longer or shorter than others, and root reads no table of time zones.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::{AccessFormat, Config, Site};

use sys::process::out_of_the_way;

use crate::directories;
use crate::error::{Error, during};
use crate::numbers::is_live;
use crate::own_log::civil;
use crate::setup::made_files::MadeFiles;
use crate::setup::syslog::Syslog;

/// The access log of requests for no site.
const NO_SITE: &str = "no-site.access.log";
/// The error log, if it is not elsewhere.
const ERROR: &str = "error.log";
/// Where programs of the machine reach syslog.
const SYSLOG: &str = "/dev/log";
const DAY: u64 = 86_400;
/// How long the launcher sleeps at most while it waits for a day, so that a clock that was set is noticed; and after how long it
/// tries again what has failed.
const LOOK: Duration = Duration::from_secs(60);

/// The files of all logs.
#[derive(Debug)]
pub struct Logs {
    /// Those of access logs, without a day; the last one is for requests of no site.
    names: Vec<Arc<str>>,
    /// The sites that they are of.
    sites: Vec<Arc<Site>>,
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
    /// The access logs, in the order of the sites; the last one is for requests of no site. Those of sites that start on demand are
    /// open while there is something to write.
    pub access: Vec<Option<Arc<File>>>,
    /// Whether each may be closed.
    may_close: Vec<bool>,
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
        let names = names_of(config, &[], &[]);
        let days = config.log.daily.then(|| Days::new(now));
        let (folder, error_file) = (config.server.log_dir.clone(), config.log.error_file.clone());
        let (may_close, mut made) = (may_close(config), MadeFiles::default());
        made.note(&folder);
        directories::own_directory(&folder, 0o755)?;
        made.note(error_file.as_deref().unwrap_or(&folder.join(ERROR)));
        Ok(Self {
            access: access((&folder, Some(&mut made)), &names, days.as_ref(), &may_close, (&[], &[]))?,
            may_close,
            error: error(&folder, error_file.as_deref())?,
            format: config.log.access_format,
            flush_ms: config.log.flush_ms,
            access_bytes: config.log.access_bytes,
            syslog: config.log.error_syslog.then(|| Syslog::connect(Path::new(SYSLOG))),
            names,
            sites: config.sites.clone(),
            folder,
            error_file,
            days,
            made,
        })
    }

    /// Those of a launcher that this one has taken the place of: the access logs in the order of the sites, as far as they are
    /// open, the one of no site last, and the day that they are of.
    pub fn known(config: &Config, access: Vec<Option<File>>, error: File, day: u64) -> Self {
        Self {
            may_close: may_close(config),
            names: names_of(config, &[], &[]),
            sites: config.sites.clone(),
            folder: config.server.log_dir.clone(),
            error_file: config.log.error_file.clone(),
            format: config.log.access_format,
            flush_ms: config.log.flush_ms,
            access_bytes: config.log.access_bytes,
            days: config.log.daily.then_some(Days { day, not_before: None }),
            access: access.into_iter().map(|file| file.map(Arc::new)).collect(),
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
        let (names, may_close) = (names_of(config, &self.sites, &self.names), may_close(config));
        let (known, mut made) = ((&self.names[..], &self.access[..]), MadeFiles::default());
        Ok(Self {
            access: access((&self.folder, Some(&mut made)), &names, self.days.as_ref(), &may_close, known)?,
            may_close,
            error: self.error.try_clone().map_err(during("duplicate a descriptor"))?,
            format: log.access_format,
            flush_ms: log.flush_ms,
            access_bytes: log.access_bytes,
            syslog: syslog.then(|| Syslog::connect(Path::new(SYSLOG))),
            names,
            sites: config.sites.clone(),
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

    /// Takes over the logs that were opened in `other` of sites that have the same ones here.
    pub fn take_opened(&mut self, other: &Self) {
        let others = other.names.iter().zip(&other.access);
        for ((name, file), (other, opened)) in self.names.iter().zip(&mut self.access).zip(others) {
            if file.is_none() && name == other {
                file.clone_from(opened);
            }
        }
    }

    /// Has sites be there that were tried and given up, as places: what is logged of one goes to the log of no site.
    pub fn take_places(&mut self, config: &Config) {
        let no_site = self.access.last().cloned().flatten();
        let (at, more) = (self.sites(), config.sites.iter().skip(self.sites()));
        let count = more.clone().count();
        self.sites.extend(more.cloned());
        self.names.splice(at..at, std::iter::repeat_n(NO_SITE.into(), count));
        self.access.splice(at..at, std::iter::repeat_n(no_site, count));
        self.may_close.splice(at..at, std::iter::repeat_n(false, count));
    }

    /// The sites of which `new` has another file; `None` if more than that has changed.
    pub fn changed_sites(&self, new: &Self) -> Option<Vec<usize>> {
        let rest = |logs: &Self| {
            let places = (logs.folder.clone(), logs.error_file.clone());
            let (days, syslog) = (logs.days.is_some(), logs.syslog.is_some());
            (logs.format, logs.flush_ms, logs.access_bytes, places, days, syslog)
        };
        let same = |old: &Option<Arc<File>>, new: &Option<Arc<File>>| match (old, new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let stays = self.access.last().zip(new.access.last()).is_some_and(|(old, new)| same(old, new));
        if !stays || rest(self) != rest(new) {
            return None;
        }
        let sites = self.access.len().saturating_sub(1);
        let both = self.access.iter().zip(&self.names).zip(new.access.iter().zip(&new.names));
        let both = both.take(sites).enumerate();
        let differ = both.filter(|(_, ((old, old_name), (new, new_name)))| {
            !same(old, new) || !Arc::ptr_eq(old_name, new_name) && old_name != new_name
        });
        Some(differ.map(|(site, _)| site).collect())
    }

    /// Whether there is a site of this number, whose log is not open.
    pub fn is_closed(&self, site: usize) -> bool {
        site < self.sites.len() && self.access[site].is_none()
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.sites.len()
    }

    /// Opens the log of a site, under the name of the day whose files are open. If that fails, the log of no site stands for it
    /// until the logs are opened anew.
    pub fn open_one(&mut self, site: usize) -> Result<(), Error> {
        let opened = open(&self.folder, &self.names[site], self.days.as_ref());
        let no_site = self.access.last().cloned().flatten();
        self.access[site] = opened.as_ref().ok().cloned().or(no_site);
        opened.map(drop)
    }

    /// The sites whose logs are open, and may be closed.
    pub fn closable(&self) -> impl Iterator<Item = usize> {
        let sites = self.access.iter().zip(&self.may_close).enumerate();
        sites.filter(|(_, (file, may_close))| **may_close && file.is_some()).map(|(site, _)| site)
    }

    /// Closes the log of a site, until it is opened again.
    pub fn close_one(&mut self, site: usize) {
        self.access[site] = None;
    }

    /// Opens those that are open again, under the names of today. Either all are new ones after it, or none.
    pub fn reopen(&mut self, now: SystemTime) -> Result<(), Error> {
        let days = self.days.as_ref().map(|_| Days::new(now));
        let closed: Vec<bool> = self.access.iter().map(Option::is_none).collect();
        let access = access((&self.folder, None), &self.names, days.as_ref(), &closed, (&[], &[]))?;
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

/// The file of each site, and of those of none. Sites that are as they were have the names that they had.
fn names_of(config: &Config, sites: &[Arc<Site>], names: &[Arc<str>]) -> Vec<Arc<str>> {
    let log_of = |site: &'_ Arc<Site>| -> Arc<str> { site.worker.access_log.as_str().into() };
    // What a reload has removed gets no new file; what it has replaced logs where its successor does.
    let live = OnceCell::new();
    let all_live = || {
        let live = config.sites.iter().filter(|site| is_live(site));
        live.map(|site| site.worker.access_log.as_str()).collect::<HashSet<&str>>()
    };
    let no_site: Arc<str> = NO_SITE.into();
    let name = |(number, site): (usize, &Arc<Site>)| {
        let before = sites.get(number).zip(names.get(number));
        match before.filter(|(before, _)| Arc::ptr_eq(before, site)) {
            _ if !is_live(site) && !live.get_or_init(all_live).contains(site.worker.access_log.as_str()) => {
                no_site.clone()
            }
            Some((_, name)) if is_live(site) => name.clone(),
            _ => log_of(site),
        }
    };
    config.sites.iter().enumerate().map(name).chain([no_site.clone()]).collect()
}

/// Whether the log of each site need not be open all the time: of one that starts on demand.
fn may_close(config: &Config) -> Vec<bool> {
    let sites = config.sites.iter();
    sites.map(|site| site.is_on_demand(&config.server) && is_live(site)).chain([false]).collect()
}

/// Opens the files that are not known, by names and the files that these have, but for those that may be closed; notes which of
/// them were not there.
fn access(
    (folder, mut made): (&Path, Option<&mut MadeFiles>),
    names: &[Arc<str>],
    days: Option<&Days>,
    may_close: &[bool],
    (known, files): (&[Arc<str>], &[Option<Arc<File>>]),
) -> Result<Vec<Option<Arc<File>>>, Error> {
    let by_name = OnceCell::new();
    let all = || {
        let mut all: HashMap<&str, Option<&Arc<File>>> = HashMap::new();
        for (name, file) in known.iter().zip(files) {
            let open = all.entry(name).or_default();
            *open = open.or(file.as_ref());
        }
        all
    };
    let mut file = |((number, name), may_close): ((usize, &Arc<str>), &bool)| {
        // Most of thousands are where they were.
        let same = known.get(number).is_some_and(|known| Arc::ptr_eq(known, name));
        let same = files.get(number).filter(|_| same);
        let known = match same {
            Some(file) => Some(file.as_ref()),
            None => by_name.get_or_init(all).get(&**name).copied(),
        };
        match known.flatten() {
            Some(file) => Ok(Some(Arc::clone(file))),
            None if *may_close => Ok(None),
            None => {
                // What a site that is there logs to is not made for another, whether it is open or not.
                if let Some(made) = made.as_mut().filter(|_| known.is_none()) {
                    made.note(&path_of(folder, name, days));
                }
                open(folder, name, days).map(Some)
            }
        }
    };
    names.iter().enumerate().zip(may_close).map(&mut file).collect()
}

/// Opens an access log.
fn open(folder: &Path, name: &str, days: Option<&Days>) -> Result<Arc<File>, Error> {
    let opened = directories::log_file(&path_of(folder, name, days))?;
    // There may be one for each site.
    Ok(Arc::new(out_of_the_way(opened.into()).into()))
}

fn path_of(folder: &Path, name: &str, days: Option<&Days>) -> PathBuf {
    let suffix = days.map(|days| format!(".{}", name_of(days.day))).unwrap_or_default();
    folder.join(format!("{name}{suffix}"))
}

fn error(folder: &Path, elsewhere: Option<&Path>) -> Result<File, Error> {
    match elsewhere {
        Some(path) => directories::log_elsewhere(path),
        None => directories::log_file(&folder.join(ERROR)),
    }
}

/// When files of another day are to be opened.
#[derive(Clone, Debug)]
struct Days {
    /// Whose files are open, counted from 1970-01-01.
    day: u64,
    /// Not to be tried again before, as it has failed.
    not_before: Option<SystemTime>,
}

impl Days {
    fn new(now: SystemTime) -> Self {
        Self { day: day_of(now), not_before: None }
    }

    /// Whether it is another day, and time to try; if that fails, it is due again after a while.
    fn is_due(&mut self, now: SystemTime) -> bool {
        let waits =
            self.not_before.is_some_and(|at| now < at && at.duration_since(now).unwrap_or_default() <= LOOK);
        let due = day_of(now) != self.day && !waits;
        if due {
            self.not_before = Some(now + LOOK);
        }
        due
    }

    fn pause(&self, now: SystemTime) -> Duration {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let midnight = Duration::from_secs((day_of(now) + 1) * DAY);
        midnight.saturating_sub(since).min(LOOK)
    }
}

fn day_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY
}

fn name_of(day: u64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}{month:02}{day:02}")
}

#[cfg(test)]
mod tests;
