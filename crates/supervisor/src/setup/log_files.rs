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
use crate::setup::syslog::Syslog;

/// The access log of requests for no site.
const NO_SITE: &str = "no-site.access.log";
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
}

impl Logs {
    /// Opens those of a configuration.
    pub fn open(config: &Config, now: SystemTime) -> Result<Self, Error> {
        let names = names_of(config, &[], &[]);
        let days = config.log.daily.then(|| Days::new(now));
        let (folder, error_file) = (config.server.log_dir.clone(), config.log.error_file.clone());
        directories::own_directory(&folder, 0o755)?;
        let may_close = may_close(config);
        Ok(Self {
            access: access(&folder, &names, days.as_ref(), &may_close, (&[], &[]))?,
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
        let known = (&self.names[..], &self.access[..]);
        Ok(Self {
            access: access(&self.folder, &names, self.days.as_ref(), &may_close, known)?,
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
        })
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
        let access = access(&self.folder, &self.names, days.as_ref(), &closed, (&[], &[]))?;
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

/// Opens the files that are not known, by names and the files that these have, but for those that may be closed.
fn access(
    folder: &Path,
    names: &[Arc<str>],
    days: Option<&Days>,
    may_close: &[bool],
    (known, files): (&[Arc<str>], &[Option<Arc<File>>]),
) -> Result<Vec<Option<Arc<File>>>, Error> {
    let by_name = OnceCell::new();
    let all = || {
        let open = known.iter().zip(files).filter_map(|(name, file)| Some((&**name, file.as_ref()?)));
        open.collect::<HashMap<&str, &Arc<File>>>()
    };
    let file = |((number, name), may_close): ((usize, &Arc<str>), &bool)| {
        // Most of thousands are where they were.
        let same = known.get(number).is_some_and(|known| Arc::ptr_eq(known, name));
        let same = files.get(number).filter(|_| same);
        let known = match same {
            Some(file) => file.as_ref(),
            None => by_name.get_or_init(all).get(&**name).copied(),
        };
        match known {
            Some(file) => Ok(Some(Arc::clone(file))),
            None if *may_close => Ok(None),
            None => open(folder, name, days).map(Some),
        }
    };
    names.iter().enumerate().zip(may_close).map(file).collect()
}

/// Opens an access log.
fn open(folder: &Path, name: &str, days: Option<&Days>) -> Result<Arc<File>, Error> {
    let suffix = days.map(|days| format!(".{}", name_of(days.day))).unwrap_or_default();
    let opened = directories::log_file(&folder.join(format!("{name}{suffix}")))?;
    // There may be one for each site.
    Ok(Arc::new(out_of_the_way(opened.into()).into()))
}

fn error(folder: &Path, elsewhere: Option<&Path>) -> Result<File, Error> {
    match elsewhere {
        Some(path) => directories::log_elsewhere(path),
        None => directories::log_file(&folder.join("error.log")),
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
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// 2026-11-21 00:00:00.
    const MIDNIGHT: u64 = 20_778 * DAY;

    #[test]
    fn days_have_names_that_sort() {
        assert_eq!(name_of(0), "19700101");
        assert_eq!(name_of(day_of(at(MIDNIGHT - 1))), "20261120");
        assert_eq!(name_of(day_of(at(MIDNIGHT))), "20261121");
        assert_eq!(name_of(11_016), "20000229");
    }

    #[test]
    fn files_are_due_at_midnight_and_not_before() {
        let mut days = Days::new(at(MIDNIGHT - 90));
        assert_eq!(days.pause(at(MIDNIGHT - 90)), LOOK);
        assert_eq!(days.pause(at(MIDNIGHT - 30)), Duration::from_secs(30));
        assert!(!days.is_due(at(MIDNIGHT - 1)));
        assert!(days.is_due(at(MIDNIGHT)));
        days = Days::new(at(MIDNIGHT));
        assert!(!days.is_due(at(MIDNIGHT)));
        assert!(!days.is_due(at(MIDNIGHT + DAY - 1)));
        assert!(days.is_due(at(MIDNIGHT + DAY)));
    }

    #[test]
    fn what_has_failed_is_tried_again_after_a_minute() {
        let mut days = Days::new(at(MIDNIGHT - 1));
        assert!(days.is_due(at(MIDNIGHT)));
        assert!(!days.is_due(at(MIDNIGHT + 59)));
        assert!(days.is_due(at(MIDNIGHT + 60)));
    }

    #[test]
    fn a_clock_that_is_set_is_followed_both_ways() {
        let mut days = Days::new(at(MIDNIGHT));
        assert!(days.is_due(at(MIDNIGHT - 5)));
        days = Days::new(at(MIDNIGHT - 5));
        assert!(days.is_due(at(MIDNIGHT + 400 * DAY)));
        // It failed, and the clock was set back far: that is no reason to wait for a year.
        assert!(days.is_due(at(MIDNIGHT + 3 * DAY)));
    }

    /// A folder that goes away with the test, and the logs of two sites in it.
    struct Bench {
        folder: tempfile::TempDir,
        logs: Logs,
    }

    impl Bench {
        fn new(log: &str, now: SystemTime) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let text = format!(
                "{log}\n[[listen]]\naddress = '127.0.0.1:1'\n\
                 [[site]]\nname = 'a'\nhost = ['a']\nroot = 'a'\naccess_log = 'access.log'\n\
                 [[site]]\nname = 'b'\nhost = ['b']\nroot = 'b'\n"
            );
            let config = Config::parse(&text, "f", folder.path()).unwrap();
            let logs = Logs::open(&config, now).unwrap();
            Self { folder, logs }
        }

        /// The files, with what is in each.
        fn files(&self) -> Vec<(String, String)> {
            let entries = std::fs::read_dir(self.folder.path().join("log")).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = entries
                .map(|entry| {
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    (entry.file_name().into_string().unwrap(), text)
                })
                .collect();
            files.sort();
            files
        }

        fn names(&self) -> Vec<String> {
            self.files().into_iter().map(|(name, _)| name).collect()
        }

        fn write(&mut self, text: &str) {
            use std::io::Write as _;
            self.logs.access[0].as_deref().unwrap().write_all(text.as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_day_has_its_files_and_the_next_one_others() {
        let mut bench = Bench::new("[log]\ndaily = true", at(MIDNIGHT - 1));
        let first =
            ["access.log.20261120", "b.access.log.20261120", "error.log", "no-site.access.log.20261120"];
        assert_eq!(bench.names(), first);
        bench.write("before\n");
        assert!(!bench.logs.are_due(at(MIDNIGHT - 1)) && bench.logs.are_due(at(MIDNIGHT)));
        bench.logs.reopen(at(MIDNIGHT)).unwrap();
        bench.write("after\n");
        let files = bench.files();
        assert_eq!(files.len(), 7);
        assert_eq!(files[0], ("access.log.20261120".into(), "before\n".into()));
        assert_eq!(files[1], ("access.log.20261121".into(), "after\n".into()));
        // An order on the same day adds to the file that is there.
        bench.logs.reopen(at(MIDNIGHT + 5)).unwrap();
        bench.write("later\n");
        assert_eq!(bench.files()[1].1, "after\nlater\n");
    }

    #[test]
    fn without_days_there_is_one_file_whenever_it_is_opened() {
        let mut bench = Bench::new("", at(MIDNIGHT - 1));
        assert_eq!(bench.names(), ["access.log", "b.access.log", "error.log", "no-site.access.log"]);
        assert!(!bench.logs.are_due(at(MIDNIGHT)));
        assert_eq!(bench.logs.pause(at(MIDNIGHT)), None);
    }

    #[test]
    fn logs_of_sites_that_stay_are_those_that_there_were() {
        let folder = tempfile::tempdir().unwrap();
        let config = |sites: &[(&str, &str)]| {
            let site = |(name, more): &(&str, &str)| {
                format!("[[site]]\nname = '{name}'\nhost = ['{name}']\nroot = 'a'\n{more}\n")
            };
            let text: String = sites.iter().map(site).collect();
            Config::parse(&format!("[[listen]]\naddress = '127.0.0.1:1'\n{text}"), "f", folder.path())
                .unwrap()
        };
        let first = config(&[("a", ""), ("b", ""), ("c", "access_log = 'x.log'")]);
        let logs = Logs::open(&first, at(MIDNIGHT)).unwrap();
        let (mut second, new) = (first.clone(), config(&[("b", "index = ['i']"), ("d", "")]));
        second.sites.extend(new.sites);
        let next = logs.open_next(&second, at(MIDNIGHT)).unwrap();
        assert_eq!(next.names, names_of(&second, &[], &[]));
        let file = |logs: &Logs, number: usize| logs.access[number].clone().unwrap();
        let same = |one, other| Arc::ptr_eq(&file(&logs, one), &file(&next, other));
        assert!((0..3).all(|number| same(number, number)) && same(1, 3) && same(3, 5));
        // The old `b` goes, and with it nothing, as there is a new one; `c` goes, and with it its log.
        let mut third = second.clone();
        [1, 2].into_iter().for_each(|gone| crate::numbers::leave_place(&mut third.sites[gone]));
        let last = next.open_next(&third, at(MIDNIGHT)).unwrap();
        assert_eq!(last.names, names_of(&third, &[], &[]));
        let names: Vec<&str> = last.names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["a.access.log", "b.access.log", NO_SITE, "b.access.log", "d.access.log", NO_SITE]);
        let same = |one, other| Arc::ptr_eq(&file(&logs, one), &file(&last, other));
        assert!(same(3, 2) && same(1, 1));
        assert_eq!(logs.changed_sites(&last), Some(vec![2]));
    }

    #[test]
    fn logs_of_sites_that_start_on_demand_are_opened_when_they_are_needed() {
        let log = "[server]\nstart = 'on-demand'\n[log]\ndaily = true";
        let mut bench = Bench::new(log, at(MIDNIGHT - 1));
        assert_eq!(bench.names(), ["error.log", "no-site.access.log.20261120"]);
        assert!(bench.logs.is_closed(0) && bench.logs.is_closed(1) && !bench.logs.is_closed(2));
        bench.logs.open_one(0).unwrap();
        bench.write("first\n");
        assert_eq!(bench.logs.closable().collect::<Vec<_>>(), [0]);
        bench.logs.reopen(at(MIDNIGHT)).unwrap();
        bench.write("second\n");
        assert_eq!(bench.names()[..2], ["access.log.20261120", "access.log.20261121"]);
        bench.logs.close_one(0);
        assert_eq!((bench.logs.is_closed(0), bench.logs.closable().count()), (true, 0));
        bench.logs.open_one(0).unwrap();
        bench.write("third\n");
        assert_eq!(bench.files()[1].1, "second\nthird\n");
        // The lines of one that cannot be opened are where those of no site are.
        std::fs::create_dir(bench.folder.path().join("log/b.access.log.20261121")).unwrap();
        assert!(bench.logs.open_one(1).is_err() && !bench.logs.is_closed(1));
        let file = |number: usize| bench.logs.access[number].clone().unwrap();
        assert!(Arc::ptr_eq(&file(1), &file(2)));
    }

    #[test]
    fn files_that_cannot_be_opened_replace_none() {
        let mut bench = Bench::new("[log]\ndaily = true", at(MIDNIGHT - 1));
        let (log, away) = (bench.folder.path().join("log"), bench.folder.path().join("away"));
        std::fs::rename(&log, &away).unwrap();
        assert!(bench.logs.reopen(at(MIDNIGHT)).is_err());
        bench.write("kept\n");
        std::fs::rename(&away, &log).unwrap();
        assert_eq!(bench.files()[0], ("access.log.20261120".into(), "kept\n".into()));
        // It is still due, a while later.
        assert!(bench.logs.are_due(at(MIDNIGHT + 61)));
        bench.logs.reopen(at(MIDNIGHT + 61)).unwrap();
        assert_eq!(bench.names().len(), 7);
    }
}
