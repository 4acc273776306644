//! A site whose values remember their places, on the way from decoding to the last check.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values, each right by itself. Must never:
//! leave this crate.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::parts::{RawCertificate, RawData, RawRoute, RawSiteTls, RawTerms};
use crate::keys::{raw_form, service_keys};
use crate::place::At;
use crate::readers::{
    Count, DoorPlace, Flag, FolderList, GrantList, KeyReader, NameList, OptionalCount, OptionalDuration,
    OptionalNumber, OptionalText, PlacedFlag, ServiceCommand, ServiceName, ServicePath, Size, Variables,
    WorkerCount,
};
use crate::schema::{PublicValue, Recycle, Site, SiteLimits, Start, Templates, Worker, Workers};
use crate::statics_schema::{Redirect, Statics};

/// The program of a door, which is the server's own.
pub const DOOR: &str = "datadoor";

/// The paths of a site as the file system has them, in the order in which the site names them.
#[derive(Clone)]
pub(crate) struct SitePaths {
    /// Of what it opens.
    pub(crate) opened: Vec<PathBuf>,
    /// Of its files that nobody else reads.
    pub(crate) private: Vec<PathBuf>,
    /// Of its files with private keys.
    pub(crate) keys: Vec<PathBuf>,
}

/// `[[site]]`.
#[derive(Clone)]
pub(crate) struct RawSite {
    /// Where the header stands.
    pub(crate) offset: usize,
    /// `site "blog"`, or the header of a site without a name.
    pub(crate) label: String,
    pub(crate) name: Option<String>,
    pub(crate) hosts: Vec<At<String>>,
    /// Without the key, on every listener. What is wrong in it was reported and is left out.
    pub(crate) listen: Option<Vec<At<SocketAddr>>>,
    pub(crate) path: Option<String>,
    pub(crate) has_root: HasRoot,
    pub(crate) index: Vec<String>,
    /// Where `php` stands, if it is there.
    pub(crate) php: Option<usize>,
    pub(crate) tls: Option<RawSiteTls>,
    pub(crate) services: Vec<RawService>,
    pub(crate) data: Vec<RawData>,
    pub(crate) templates: Option<RawTemplates>,
    pub(crate) vhosts: Option<At<PathBuf>>,
    pub(crate) follow_links: Vec<At<PathBuf>>,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) statics: Statics,
    pub(crate) terms: RawTerms,
    pub(crate) routes: Vec<RawRoute>,
    /// Whether it has any of the keys that give it something to answer with, right or wrong.
    pub(crate) has_purpose: bool,
    pub(crate) limits: SiteLimits,
    pub(crate) worker: RawWorker,
    pub(crate) start: Option<Start>,
    pub(crate) idle_stop_ms: Option<u32>,
    pub(crate) recycle: Recycle,
    pub(crate) workers: Workers,
    /// Its paths, once they have been followed.
    pub(crate) resolved: OnceCell<SitePaths>,
}

/// The keys of `[[site]]` that are about its worker.
#[derive(Clone)]
pub(crate) struct RawWorker {
    pub(crate) access_log: Option<At<String>>,
    pub(crate) user: Option<At<String>>,
    pub(crate) danger_shared_user: bool,
    /// Whether `worker` is there, right or wrong.
    pub(crate) is_given: bool,
    pub(crate) program: Option<(Vec<String>, At<PathBuf>)>,
}

/// Whether the file gives a site a `root`, which may have been unreadable.
#[derive(Clone)]
pub(crate) enum HasRoot {
    No,
    Bad,
    Yes(At<PathBuf>),
}

/// `[site.templates]`.
#[derive(Clone)]
pub(crate) struct RawTemplates {
    /// Where the header stands.
    pub(crate) offset: usize,
    pub(crate) folder: Option<At<PathBuf>>,
    pub(crate) values: Vec<(String, PublicValue)>,
}

service_keys!(raw_form);

impl RawSite {
    /// The folder of files, if there is a good one.
    pub(crate) fn root(&self) -> Option<&At<PathBuf>> {
        match &self.has_root {
            HasRoot::Yes(root) => Some(root),
            HasRoot::No | HasRoot::Bad => None,
        }
    }

    /// The folders that it publishes, by their keys.
    pub(crate) fn published(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>)> {
        let root = self.root().map(|root| ("root", root));
        let aliases = self.routes.iter().filter_map(|route| Some(("alias", route.alias.as_ref()?)));
        root.into_iter().chain(self.vhosts.as_ref().map(|vhosts| ("vhosts", vhosts))).chain(aliases)
    }

    /// These, and the folders that links may lead into.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>)> {
        self.published().chain(self.follow_links.iter().map(|folder| ("follow_links", folder)))
    }

    /// The files that have private keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &At<PathBuf>> {
        let certificates = self.tls.iter().flat_map(|tls| &tls.certificates);
        let files = certificates.flat_map(RawCertificate::files);
        files.filter(|(_, _, has_key)| *has_key).map(|(_, file, _)| file)
    }

    /// Its paths in the form in which they are compared, which `resolve` gives them; made once.
    pub(crate) fn resolved(&self, resolve: &dyn Fn(&Path) -> PathBuf) -> &SitePaths {
        self.resolved.get_or_init(|| SitePaths {
            opened: self.opened().map(|(_, at)| resolve(&at.value)).collect(),
            private: self.private().map(|(_, at)| resolve(&at.value)).collect(),
            keys: self.keys().map(|at| resolve(&at.value)).collect(),
        })
    }

    /// The files that are read for it and never sent, by their keys.
    pub(crate) fn private(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>)> {
        let statements = self.data.iter().filter_map(|data| Some(("statements", data.statements.as_ref()?)));
        let schemas = self.data.iter().filter_map(|data| Some(("schema", data.schema.as_ref()?)));
        let passwords = self.data.iter().filter_map(|data| Some(("password", data.password.as_ref()?)));
        let authorities = self.data.iter().filter_map(|data| Some(("server_ca", data.server_ca.as_ref()?)));
        let identities = self.data.iter().flat_map(RawData::identity_files);
        let of_data = statements.chain(schemas).chain(passwords).chain(authorities).chain(identities);
        self.users().map(|at| ("users", at)).chain(of_data)
    }

    /// The files of users, of the site itself and of its routes.
    pub(crate) fn users(&self) -> impl Iterator<Item = &At<PathBuf>> {
        self.terms.users.iter().chain(self.routes.iter().filter_map(|route| route.terms.users.as_ref()))
    }

    /// Whether a request can reach this site and `other` on one listener.
    pub(crate) fn shares_listener(&self, other: &RawSite) -> bool {
        let (Some(own), Some(others)) = (&self.listen, &other.listen) else {
            return true;
        };
        own.iter().any(|own| others.iter().any(|other| other.value == own.value))
    }

    /// The site without its places, if nothing in it was left out.
    pub(crate) fn finished(&self) -> Option<Arc<Site>> {
        self.clone().finish().map(Arc::new)
    }

    fn finish(self) -> Option<Site> {
        Some(Site {
            root: self.root().map(|root| root.value.clone()),
            worker: self.worker.finish(self.name.as_deref()?),
            name: self.name?,
            hosts: self.hosts.into_iter().map(|host| host.value).collect(),
            listen: self.listen.into_iter().flatten().map(|address| address.value).collect(),
            path: self.path?,
            index: self.index,
            tls: self.tls.map(RawSiteTls::finish),
            services: self.services.into_iter().map(RawService::finish).collect::<Option<_>>()?,
            data: self.data.into_iter().map(RawData::finish).collect::<Option<_>>()?,
            templates: match self.templates {
                None => None,
                Some(raw) => Some(Templates { folder: raw.folder?.value, values: raw.values }),
            },
            vhosts: self.vhosts.map(|vhosts| vhosts.value),
            follow_links: self.follow_links.into_iter().map(|folder| folder.value).collect(),
            redirect: self.redirect,
            statics: self.statics,
            limits: self.limits,
            terms: self.terms.terms,
            routes: self.routes.into_iter().map(RawRoute::finish).collect::<Option<_>>()?,
            start: self.start,
            idle_stop_ms: self.idle_stop_ms,
            recycle: self.recycle,
            workers: self.workers,
        })
    }
}

impl RawSite {
    /// The services that have a data source in their `data`.
    pub(crate) fn services_with<'s>(&'s self, data: &'s RawData) -> impl Iterator<Item = &'s RawService> {
        let has = move |service: &&RawService| {
            service.data.iter().any(|name| data.name.as_ref() == Some(&name.value))
        };
        self.services.iter().filter(has)
    }
}

impl RawWorker {
    fn finish(self, site: &str) -> Worker {
        Worker {
            access_log: self.access_log.map_or_else(|| format!("{site}.access.log"), |name| name.value),
            user: self.user.map(|user| user.value),
            program: self.program.map(|(command, program)| (command, program.value)),
        }
    }
}
