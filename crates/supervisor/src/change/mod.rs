//! Every change that can happen to an instance that runs.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. Never: changes anything itself.
//!
//! [`plan::plan`] compares what runs with what is to run; [`prepare`] says which processes the changes meet; the
//! launcher carries them out, all or none. A command (`bulkhead reload`, `bulkhead relaunch`), a signal and a file that
//! was written again take the same way.

mod edits;
mod keys;
pub mod plan;
pub mod prepare;
pub mod restart;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use config::{
    CertificateFiles, Conditioning, Filter, Limits, Listener, Log, Restart, Route, Server, Service, Site, Tls,
};

pub use edits::Edit;
use wire::Verb;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `[[listen]]`.
    Listener(Edit<Listener>),
    /// `[[site]]`. Services, routes and certificates of a site that stays are changes of their own.
    Site(Edit<Arc<Site>>),
    /// `[[site.service]]` of the site of this name.
    Service(String, Edit<Box<Service>>),
    /// `[[site.route]]` of the site of this name.
    Route(String, Edit<Box<Route>>),
    /// A file of `certificates` of the site of this name.
    Certificate(String, Edit<CertificateFiles>),
    /// `filters` of `[conditioning]`.
    Filter(Edit<Filter>),
    /// `[log]`: before and after.
    Log(Log, Log),
    /// `[tls]`.
    Tls(Tls, Tls),
    /// `[limits]`.
    Limits(Limits, Limits),
    /// `[conditioning]`, without its filters.
    Conditioning(Box<Conditioning>, Box<Conditioning>),
    /// `[restart]`.
    Restart(Restart, Restart),
    /// `[server]`.
    Server(Box<Server>, Box<Server>),
    /// The same things, in another order: for each place of a list, the place that it had before.
    Order(List, Vec<usize>),
    /// A file was written again; those who use it read it again.
    File(FileId),
    /// The processes of this name get successors.
    Relaunch(String),
}

/// A list of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// `[[listen]]`.
    Listeners,
    /// `[[site]]`: clients that name no host get the first one.
    Sites,
    /// `[[site.service]]` of the site of this name.
    Services(String),
    /// `[[site.route]]` of the site of this name.
    Routes(String),
    /// `certificates` of the site of this name.
    Certificates(String),
    /// `filters` of `[conditioning]`.
    Filters,
}

/// A file that processes read again when it has changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// The key that names the file.
    pub key: &'static str,
    /// The site, by number; nothing for a file of the machine.
    pub site: Option<u16>,
    /// Which of the files of this key.
    pub number: u16,
    /// Where the file is.
    pub path: PathBuf,
}

impl Change {
    /// What happens.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Listener(edit) => edit.verb(),
            Self::Site(edit) => edit.verb(),
            Self::Service(_, edit) => edit.verb(),
            Self::Route(_, edit) => edit.verb(),
            Self::Certificate(_, edit) => edit.verb(),
            Self::Filter(edit) => edit.verb(),
            Self::File(_) => Verb::Reread,
            Self::Relaunch(_) => Verb::Relaunched,
            _ => Verb::Changed,
        }
    }

    /// Whether the change is about this site, or about something in it.
    pub fn is_of_site(&self, name: &str) -> bool {
        match self {
            Self::Site(edit) => edit.either().name == name,
            Self::Service(site, _) | Self::Route(site, _) | Self::Certificate(site, _) => site == name,
            Self::Order(List::Services(site) | List::Routes(site) | List::Certificates(site), _) => {
                site == name
            }
            _ => false,
        }
    }

    /// Whether the change is about something in a site, or about a site.
    pub fn is_of_a_site(&self) -> bool {
        let order = |list: &List| matches!(list, List::Services(_) | List::Routes(_) | List::Certificates(_));
        match self {
            Self::Site(_) | Self::Service(..) | Self::Route(..) | Self::Certificate(..) => true,
            Self::Order(list, _) => order(list),
            _ => false,
        }
    }

    /// The keys that differ, where something has changed; none where something comes or goes.
    pub fn keys(&self) -> Vec<&'static str> {
        match self {
            Self::Listener(Edit::Change(old, new)) => keys::listener(old, new),
            Self::Site(Edit::Change(old, new)) => keys::site(old, new),
            Self::Service(_, Edit::Change(old, new)) => old.differing(new),
            Self::Route(_, Edit::Change(old, new)) => keys::route(old, new),
            Self::Certificate(_, Edit::Change(old, new)) => keys::certificate(old, new),
            Self::Filter(Edit::Change(old, new)) => keys::filter(old, new),
            Self::Log(old, new) => keys::log(old, new),
            Self::Tls(old, new) => keys::tls(old, new),
            Self::Limits(old, new) => old.differing(new),
            Self::Conditioning(old, new) => keys::conditioning(old, new),
            Self::Restart(old, new) => old.differing(new),
            Self::Server(old, new) => keys::server(old, new),
            Self::Order(..) => vec!["order"],
            _ => Vec::new(),
        }
    }
}

/// What the change is about, as an operator would name it.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(edit) => write!(f, "listener {}", edit.either().address),
            Self::Site(edit) => write!(f, "site {}", edit.either().name),
            Self::Service(site, edit) => write!(f, "service {site}/{}", edit.either().name),
            Self::Route(site, edit) => write!(f, "route {} of site {site}", keys::at(edit.either())),
            Self::Certificate(site, edit) => {
                write!(f, "certificate {} of site {site}", edit.either().certificate.display())
            }
            Self::Filter(edit) => write!(f, "filter {}", edit.either().command.join(" ")),
            Self::Log(..) => write!(f, "[log]"),
            Self::Tls(..) => write!(f, "[tls]"),
            Self::Limits(..) => write!(f, "[limits]"),
            Self::Conditioning(..) => write!(f, "[conditioning]"),
            Self::Restart(..) => write!(f, "[restart]"),
            Self::Server(..) => write!(f, "[server]"),
            Self::Order(List::Listeners, _) => write!(f, "[[listen]]"),
            Self::Order(List::Sites, _) => write!(f, "[[site]]"),
            Self::Order(List::Services(site), _) => write!(f, "services of site {site}"),
            Self::Order(List::Routes(site), _) => write!(f, "routes of site {site}"),
            Self::Order(List::Certificates(site), _) => write!(f, "certificates of site {site}"),
            Self::Order(List::Filters, _) => write!(f, "filters of [conditioning]"),
            Self::File(file) => write!(f, "`{}` {}", file.key, file.path.display()),
            Self::Relaunch(name) => write!(f, "{name}"),
        }
    }
}
