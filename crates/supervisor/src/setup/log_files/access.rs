//! The access logs of all sites, and that of requests for no site: which file each is, and whether it is open.
//!
//! Runs in: the launcher, as root. Sees: the folder of logs. Never: looks at the log of a site that is as it was, when
//! another one has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Config, SharedList, Site, Start};
use sys::process::out_of_the_way;

use super::days::{Days, name_of};
use crate::directories;
use crate::error::Error;
use crate::numbers::is_live;
use crate::setup::made_files::MadeFiles;

/// The access log of requests for no site.
pub(crate) const NO_SITE: &str = "no-site.access.log";

/// One of them.
#[derive(Clone, Debug)]
struct AccessLog {
    /// Its file, without a day.
    name: Arc<str>,
    /// The file, as far as it is open. That of a site that starts on demand is, while there is something to write.
    file: Option<Arc<File>>,
    /// Whether it need not be open all the time: that of a site that starts on demand.
    may_close: bool,
}

impl AccessLog {
    fn has_file_of(&self, other: &Self) -> bool {
        match (&self.file, &other.file) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    fn is_called_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.name, &other.name) || self.name == other.name
    }
}

/// Where logs are, and of which day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where<'d> {
    pub(super) folder: &'d Path,
    pub(super) days: Option<&'d Days>,
}

impl Where<'_> {
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        let suffix = self.days.map(|days| format!(".{}", name_of(days.day))).unwrap_or_default();
        self.folder.join(format!("{name}{suffix}"))
    }

    fn open(&self, name: &str) -> Result<Arc<File>, Error> {
        let opened = directories::log_file(&self.path_of(name))?;
        // There may be one for each site.
        Ok(Arc::new(out_of_the_way(opened.into()).into()))
    }
}

/// All of them.
#[derive(Debug)]
pub struct AccessLogs {
    /// The sites that they are of, by number.
    sites: SharedList<Arc<Site>>,
    /// The log of each; the last one is for requests of no site.
    logs: SharedList<AccessLog>,
    /// Sites that have gone, and log where one does that serves.
    gone: BTreeSet<usize>,
    /// How those start that do not say so.
    start: Start,
}

impl AccessLogs {
    /// Those of a configuration, of which none is open.
    fn closed(config: &Config) -> Self {
        let no_site = AccessLog { name: NO_SITE.into(), file: None, may_close: false };
        let none = Self {
            sites: SharedList::default(),
            logs: [no_site].into_iter().collect(),
            gone: BTreeSet::new(),
            start: config.server.start,
        };
        none.with_sites(config).0
    }

    /// Opens those of a configuration that need be open, and notes which of them were not there.
    pub(super) fn open(config: &Config, at: Where<'_>, made: &mut MadeFiles) -> Result<Self, Error> {
        let mut logs = Self::closed(config);
        for number in 0..logs.logs.len() {
            let AccessLog { name, may_close, .. } = &logs.logs[number];
            if !may_close {
                made.note(&at.path_of(name));
                let file = at.open(name)?;
                logs.set(number, Some(file));
            }
        }
        Ok(logs)
    }

    /// Those of a launcher that this one has taken the place of, as far as they are open.
    pub(super) fn known(config: &Config, files: Vec<Option<File>>) -> Self {
        let mut logs = Self::closed(config);
        files.into_iter().enumerate().for_each(|(number, file)| logs.set(number, file.map(Arc::new)));
        logs
    }

    /// Opens those of a configuration that takes the place of another. What both have stays open as it is.
    pub(super) fn open_next(
        &self,
        config: &Config,
        at: Where<'_>,
        made: &mut MadeFiles,
    ) -> Result<Self, Error> {
        let (mut next, changed) = self.with_sites(config);
        let same =
            |number: usize| self.logs.get(number).filter(|known| known.is_called_as(&next.logs[number]));
        let others = changed.iter().filter(|&&number| same(number).is_none());
        let by_name = self.files_of(others.map(|&number| &*next.logs[number].name).collect());
        let mut opened = Vec::new();
        for number in changed {
            let log = &next.logs[number];
            // What a site that is there logs to is not made for another, whether it is open or not.
            let known = same(number).map(|known| known.file.as_ref());
            let known = known.or_else(|| by_name.get(&*log.name).copied());
            let file = match known.flatten() {
                Some(file) => Some(file.clone()),
                None if log.may_close => None,
                None => {
                    if known.is_none() {
                        made.note(&at.path_of(&log.name));
                    }
                    Some(at.open(&log.name)?)
                }
            };
            opened.push((number, file));
        }
        opened.into_iter().for_each(|(number, file)| next.set(number, file));
        Ok(next)
    }

    /// Those of other sites; the numbers of the sites that are others, whose files are as they were or none.
    fn with_sites(&self, config: &Config) -> (Self, BTreeSet<usize>) {
        let changed: BTreeSet<usize> = match self.start == config.server.start {
            true => {
                self.sites.differing(&config.sites, Arc::ptr_eq).chain(self.gone.iter().copied()).collect()
            }
            false => (0..config.sites.len()).collect(),
        };
        let (mut logs, mut gone, no_site) = (self.logs.clone(), BTreeSet::new(), self.no_site());
        logs.truncate(self.sites.len().min(config.sites.len()));
        // What a reload has removed gets no new file; what it has replaced logs where its successor does.
        let sites = || changed.iter().filter_map(|&number| Some((number, config.sites.get(number)?)));
        let of_gone = sites().filter(|(_, site)| !is_live(site)).map(|(_, site)| &*site.worker.access_log);
        let live = live_names(config, of_gone.collect());
        for (number, site) in sites() {
            let (name, is_live) = (&*site.worker.access_log, is_live(site));
            if !is_live && !live.contains(name) {
                logs.put(number, AccessLog { may_close: false, ..no_site.clone() });
                continue;
            }
            let known = logs.get(number).filter(|log| *log.name == *name);
            let may_close = is_live && site.is_on_demand(&config.server);
            let log = match known {
                Some(known) => AccessLog { may_close, ..known.clone() },
                None => AccessLog { name: name.into(), file: None, may_close },
            };
            logs.put(number, log);
            gone.extend((!is_live).then_some(number));
        }
        logs.push(no_site);
        let changed = changed.into_iter().filter(|&number| number < config.sites.len()).collect();
        (Self { sites: config.sites.clone(), logs, gone, start: config.server.start }, changed)
    }

    /// The file of each of these names that is there, if it is open. A table of all names would take longer than to
    /// look at each once.
    fn files_of<'l>(&'l self, names: BTreeSet<&str>) -> BTreeMap<&'l str, Option<&'l Arc<File>>> {
        let mut found: BTreeMap<&str, Option<&Arc<File>>> = BTreeMap::new();
        if names.is_empty() {
            return found;
        }
        for AccessLog { name, file, .. } in self.logs.iter().filter(|log| names.contains(&*log.name)) {
            let open = found.entry(name).or_default();
            *open = open.or(file.as_ref());
        }
        found
    }

    fn no_site(&self) -> AccessLog {
        self.logs[self.sites.len()].clone()
    }

    fn set(&mut self, number: usize, file: Option<Arc<File>>) {
        if let Some(log) = self.logs.get_mut(number) {
            log.file = file;
        }
    }

    /// Opens all that are open again; those of before are as they were.
    pub(super) fn opened_again(&self, at: Where<'_>) -> Result<Self, Error> {
        let again = |log: &AccessLog| {
            let file = log.file.as_ref().map(|_| at.open(&log.name)).transpose()?;
            Ok(AccessLog { file, ..log.clone() })
        };
        let logs = self.logs.iter().map(again).collect::<Result<_, Error>>()?;
        Ok(Self { sites: self.sites.clone(), logs, gone: self.gone.clone(), start: self.start })
    }

    /// Takes over the logs that were opened in `other` of sites that have the same ones here.
    pub(super) fn take_opened(&mut self, other: &Self) {
        let opened = self.logs.differing(&other.logs, AccessLog::has_file_of);
        for number in opened.collect::<Vec<_>>() {
            let both = self.logs.get(number).zip(other.logs.get(number));
            let is_opened = both.is_some_and(|(here, there)| here.file.is_none() && here.is_called_as(there));
            if is_opened {
                self.set(number, other.logs[number].file.clone());
            }
        }
    }

    /// Has sites be there that were tried and given up, as places: what is logged of one goes to the log of no site.
    pub(super) fn take_places(&mut self, config: &Config) {
        let (known, no_site) = (self.sites.len(), self.no_site());
        self.logs.truncate(known);
        for site in config.sites.iter().skip(known) {
            self.sites.push(site.clone());
            self.logs.push(no_site.clone());
        }
        self.logs.push(no_site);
    }

    /// The sites of which `new` has another file; `None` if requests for no site have another one.
    pub(super) fn changed_sites(&self, new: &Self) -> Option<Vec<usize>> {
        if !self.no_site().has_file_of(&new.no_site()) {
            return None;
        }
        let both = self.sites.len().min(new.sites.len());
        let is_same = |old: &AccessLog, new: &AccessLog| old.has_file_of(new) && old.is_called_as(new);
        Some(self.logs.differing(&new.logs, is_same).filter(|&number| number < both).collect())
    }

    /// Opens the log of a site. If that fails, the log of no site stands for it until the logs are opened anew.
    pub(super) fn open_one(&mut self, number: usize, at: Where<'_>) -> Result<(), Error> {
        let opened = at.open(&self.logs[number].name);
        let file = opened.as_ref().ok().cloned().or(self.no_site().file);
        self.set(number, file);
        opened.map(drop)
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.sites.len()
    }

    /// The file of a site, if it is open; behind the last site, that of requests for no site.
    pub fn file(&self, number: usize) -> Option<&Arc<File>> {
        self.logs.get(number)?.file.as_ref()
    }

    /// That of each site, and then that of requests for no site.
    pub fn files(&self) -> impl Iterator<Item = Option<&Arc<File>>> {
        self.logs.iter().map(|log| log.file.as_ref())
    }

    /// The sites whose logs are open, and may be closed.
    pub fn closable(&self) -> impl Iterator<Item = usize> {
        let sites = self.logs.iter().enumerate();
        sites.filter(|(_, log)| log.may_close && log.file.is_some()).map(|(number, _)| number)
    }

    /// Closes the log of a site, until it is opened again.
    pub fn close_one(&mut self, number: usize) {
        self.set(number, None);
    }

    /// The names, without a day.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<&str> {
        self.logs.iter().map(|log| &*log.name).collect()
    }
}

/// Those of these names that sites have which serve.
fn live_names<'s>(config: &'s Config, names: BTreeSet<&str>) -> BTreeSet<&'s str> {
    if names.is_empty() {
        return BTreeSet::new();
    }
    let of_live =
        config.sites.iter().filter(|site| is_live(site)).map(|site| site.worker.access_log.as_str());
    of_live.filter(|name| names.contains(name)).collect()
}
