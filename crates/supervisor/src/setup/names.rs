//! What this machine says of names: two files, for the stapler and for connectors whose servers have names.
//!
//! Runs in: the launcher, as root. Sees: nothing of what is in the files. Never: looks a name up.

use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Opener, Site, Target};
use wire::stapler::LauncherToStapler;
use wire::{LauncherToConnector, Role};

use crate::Supervisor;

/// A file about names. A machine may be without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesFile {
    /// Which DNS servers there are.
    Resolver,
    /// Names that are known without them.
    Hosts,
}

impl NamesFile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Resolver, Self::Hosts];

    /// Where it is.
    pub fn path(self) -> &'static str {
        match self {
            Self::Resolver => "/etc/resolv.conf",
            Self::Hosts => "/etc/hosts",
        }
    }

    /// The message to the stapler with which it goes.
    pub fn for_stapler(self) -> LauncherToStapler {
        match self {
            Self::Resolver => LauncherToStapler::Resolver {},
            Self::Hosts => LauncherToStapler::Hosts {},
        }
    }

    /// The message to a connector with which it goes.
    pub fn for_connector(self) -> LauncherToConnector {
        match self {
            Self::Resolver => LauncherToConnector::Resolver {},
            Self::Hosts => LauncherToConnector::Hosts {},
        }
    }

    /// What opens them: they are the machine's, whoever owns the configuration.
    pub fn opener() -> Opener {
        Opener::of(Path::new("/etc"))
    }

    /// Those that are there, opened.
    pub fn opened() -> impl Iterator<Item = (Self, OwnedFd)> {
        let opener = Self::opener();
        Self::ALL
            .into_iter()
            .filter_map(move |file| Some((file, opener.file(file.path().as_ref()).ok()?.into())))
    }
}

/// Whether some server of a site has a name.
pub fn has_named_servers(site: &Site) -> bool {
    site.backends()
        .any(|(_, backend)| backend.servers.iter().any(|server| matches!(server, Target::Name(..))))
}

impl Supervisor {
    /// Hands a file about names, which has changed, to a process that looks names up.
    pub fn hand_names(&mut self, serial: u64, which: NamesFile, file: OwnedFd) {
        match self.spec_of(serial).role {
            Role::Stapler => self.send(serial, &which.for_stapler(), Some(file)),
            Role::Connector => self.send(serial, &which.for_connector(), Some(file)),
            _ => {}
        }
    }

    /// The processes that look names up.
    pub fn users_of_names(&self) -> Vec<u64> {
        let connectors = self.active(Role::Connector, None).into_iter();
        let asking = connectors.filter(|&serial| self.context().looks_names_up(self.spec_of(serial)));
        self.active(Role::Stapler, None).into_iter().chain(asking).collect()
    }
}
