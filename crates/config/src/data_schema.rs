//! What a valid configuration says of databases: where each is, and how its data proxy comes there.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none, these are results. Must never: be built from
//! anything but a file that passed all checks, or hold a password.

use std::path::{Path, PathBuf};

pub use wire::data::Engine;

use crate::statics_schema::Target;

/// `[[site.data]]`: a database, of which services call named statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// Unique in its site; the rule of a site's name.
    pub name: String,
    /// The file of statements; another machine that holds the database has its own.
    pub statements: Option<PathBuf>,
    /// Where the database is.
    pub database: Database,
    /// Bytes of memory of its data proxy.
    pub memory_max: u64,
}

/// Where a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// In a file of the data proxy's own.
    Sqlite {
        /// The file that makes the tables of a new database.
        schema: Option<PathBuf>,
    },
    /// At a server.
    Server(DatabaseServer),
    /// With another machine's data proxy.
    Remote(RemoteServer),
}

/// A server with a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseServer {
    /// What it speaks.
    pub engine: Engine,
    /// Where it listens.
    pub target: Target,
    /// What it calls the database; Redis's have numbers.
    pub database: String,
    /// As whom the data proxy logs in; empty for Redis's user without a name.
    pub user: String,
    /// The file with the password, if there is one.
    pub password: Option<PathBuf>,
    /// The file with the authorities one of which must have signed the server's certificate; then TLS is spoken.
    pub server_ca: Option<PathBuf>,
    /// What the data proxy shows to a server that asks for a certificate.
    pub identity: Option<Identity>,
    /// How many connections the data proxy has.
    pub connections: u16,
}

/// What a data proxy shows to the server that it calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
}

/// Another machine that holds a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteServer {
    /// Where it listens.
    pub target: Target,
    /// The file with the authorities one of which must have signed its certificate.
    pub server_ca: PathBuf,
    /// What it is shown.
    pub identity: Identity,
}

/// How a connection to a server is made safe.
#[derive(Clone, Copy, Debug)]
pub struct Secured<'d> {
    /// The file with its authorities.
    pub server_ca: &'d Path,
    /// What it is shown.
    pub identity: Option<&'d Identity>,
}

impl DataSource {
    /// Where the server or the other machine listens that has the database.
    pub fn target(&self) -> Option<&Target> {
        match &self.database {
            Database::Sqlite { .. } => None,
            Database::Server(server) => Some(&server.target),
            Database::Remote(remote) => Some(&remote.target),
        }
    }

    /// For whom the certificate there must be: a name, or an address.
    pub fn certificate_name(&self) -> Option<String> {
        match self.target()? {
            Target::Unix(_) => None,
            Target::Tcp(address) => Some(address.ip().to_string()),
            Target::Name(name, _) => Some(name.clone()),
        }
    }

    /// How the way there is made safe, if it is.
    pub fn secured(&self) -> Option<Secured<'_>> {
        match &self.database {
            Database::Sqlite { .. } => None,
            Database::Server(server) => {
                let server_ca = server.server_ca.as_deref()?;
                Some(Secured { server_ca, identity: server.identity.as_ref() })
            }
            Database::Remote(RemoteServer { server_ca, identity, .. }) => {
                Some(Secured { server_ca, identity: Some(identity) })
            }
        }
    }
}
