//! A configuration whose values remember their places, on the way from decoding to the last check.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values, each right by itself.
//! Must never: leave this crate.

pub(crate) mod parts;
pub(crate) mod site;

use std::net::SocketAddr;
use std::ops::{Deref, RangeInclusive};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use self::site::RawSite;
use crate::known::{ReadFile, in_main};
use crate::place::At;
use crate::schema::{
    Conditioning, Config, Filter, Include, Isolation, Limits, Listener, Log, Restart, Server, Site, SiteFile,
    Start, Tls,
};

/// The whole file. What could not be decoded is `None` or left out, and was reported.
pub(crate) struct RawConfig {
    pub(crate) server: RawServer,
    pub(crate) listeners: Vec<RawListener>,
    /// Whether those are all that the file means; if not, one that is missing may be one of the others.
    pub(crate) listeners_known: bool,
    pub(crate) tls: Tls,
    pub(crate) log: Log,
    /// Also in `log`, with its place.
    pub(crate) error_file: Option<At<PathBuf>>,
    pub(crate) restart: Restart,
    pub(crate) limits: Limits,
    pub(crate) conditioning: RawConditioning,
    pub(crate) include: Option<RawInclude>,
    /// Those of the file itself first, then those of each file that it includes.
    pub(crate) sites: Vec<ListedSite>,
}

/// `include`: a folder, and its files.
pub(crate) struct RawInclude {
    pub(crate) folder: At<PathBuf>,
    pub(crate) files: Vec<ReadFile>,
}

/// A site, perhaps one that is in a file which has not changed since all in it was found right.
pub(crate) struct ListedSite {
    raw: Rc<RawSite>,
    known: Option<Arc<Site>>,
}

impl ListedSite {
    pub(crate) fn new(raw: Rc<RawSite>, known: Option<Arc<Site>>) -> Self {
        Self { raw, known }
    }

    /// Whether it must be looked at by itself; if not, only beside others that have changed.
    pub(crate) fn is_new(&self) -> bool {
        self.known.is_none()
    }

    fn finish(&self) -> Option<Arc<Site>> {
        self.known.clone().or_else(|| self.raw.finished())
    }
}

impl Deref for ListedSite {
    type Target = RawSite;

    fn deref(&self) -> &RawSite {
        &self.raw
    }
}

/// `[server]`.
pub(crate) struct RawServer {
    pub(crate) user_range: Option<At<RangeInclusive<u32>>>,
    pub(crate) user_range_given: bool,
    pub(crate) state_dir: Option<At<PathBuf>>,
    pub(crate) run_dir: Option<At<PathBuf>>,
    pub(crate) log_dir: Option<At<PathBuf>>,
    pub(crate) gates: Option<u32>,
    pub(crate) isolation: Isolation,
    pub(crate) danger_without: Vec<String>,
    pub(crate) start: Start,
    pub(crate) idle_stop_ms: u32,
}

/// `[[listen]]`.
pub(crate) struct RawListener {
    pub(crate) address: At<SocketAddr>,
    pub(crate) shared_connections: bool,
    pub(crate) tls: bool,
    pub(crate) redirect_to_https: bool,
    pub(crate) h2c: bool,
    pub(crate) proxies: Vec<String>,
    pub(crate) unfiltered: bool,
}

/// `[conditioning]`.
pub(crate) struct RawConditioning {
    /// Everything but the filters.
    pub(crate) policies: Conditioning,
    pub(crate) filters: Vec<RawFilter>,
}

/// A program of `filters`.
pub(crate) struct RawFilter {
    pub(crate) command: Vec<String>,
    pub(crate) program: At<PathBuf>,
    pub(crate) read: Vec<At<PathBuf>>,
    pub(crate) jit: bool,
}

impl RawConfig {
    /// Drops the places; also returns the files of sites. `None` only if a mistake was reported.
    pub(crate) fn finish(self, dir: &Path) -> Option<(Config, Vec<ReadFile>)> {
        let sites = self.sites.iter().map(ListedSite::finish).collect::<Option<Vec<_>>>()?;
        let (include, files) = self.include.map(|include| include.finish(&sites)).unzip();
        let config = Config {
            include: include.map(Arc::new),
            dir: dir.to_owned(),
            server: self.server.finish()?,
            listeners: self.listeners.into_iter().map(RawListener::finish).collect(),
            tls: self.tls,
            log: self.log,
            restart: self.restart,
            limits: self.limits,
            conditioning: self.conditioning.finish(),
            sites: sites.into_iter().collect(),
            warnings: Vec::new(),
        };
        Some((config, files.unwrap_or_default()))
    }
}

impl RawInclude {
    /// `sites` are all, of which the last are in these files.
    fn finish(self, sites: &[Arc<Site>]) -> (Include, Vec<ReadFile>) {
        let mut included = sites.iter().skip(in_main(&self.files, sites.len()));
        let files = self.files.iter().map(|file| {
            let sites = included.by_ref().take(file.sites.len());
            match &file.known {
                Some(known) => {
                    sites.for_each(drop);
                    known.listed.clone()
                }
                None => {
                    let sites = sites.map(|site| site.name.clone()).collect();
                    Arc::new(SiteFile { path: file.path.to_path_buf(), sites })
                }
            }
        });
        (Include { folder: self.folder.value, files: files.collect() }, self.files)
    }
}

impl RawListener {
    fn finish(self) -> Listener {
        Listener {
            address: self.address.value,
            shared_connections: self.shared_connections,
            tls: self.tls,
            redirect_to_https: self.redirect_to_https,
            h2c: self.h2c,
            proxies: self.proxies,
            unfiltered: self.unfiltered,
        }
    }
}

impl RawConditioning {
    fn finish(self) -> Conditioning {
        let filters = self.filters.into_iter().map(RawFilter::finish).collect();
        Conditioning { filters, ..self.policies }
    }
}

impl RawFilter {
    fn finish(self) -> Filter {
        let read = self.read.into_iter().map(|folder| folder.value).collect();
        Filter { command: self.command, program: self.program.value, read, jit: self.jit }
    }
}

impl RawServer {
    /// The three folders this server writes to, by their keys.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>)> {
        let folders =
            [("state_dir", &self.state_dir), ("run_dir", &self.run_dir), ("log_dir", &self.log_dir)];
        folders.into_iter().filter_map(|(key, folder)| Some((key, folder.as_ref()?)))
    }

    fn finish(self) -> Option<Server> {
        Some(Server {
            user_range: self.user_range?.value,
            user_range_given: self.user_range_given,
            state_dir: self.state_dir?.value,
            run_dir: self.run_dir?.value,
            log_dir: self.log_dir?.value,
            gates: self.gates,
            isolation: self.isolation,
            danger_without: self.danger_without,
            start: self.start,
            idle_stop_ms: self.idle_stop_ms,
        })
    }
}
