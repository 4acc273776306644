//! The tables of a site, as they are on the way to the last check: databases, routes, certificates.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values, each right by itself. Must never:
//! leave this crate.

use std::path::{Path, PathBuf};

use rewrite::Matcher;

use crate::data_schema::{DataSource, Database, DatabaseServer, Engine, Identity, RemoteServer};
use crate::place::At;
use crate::schema::{CertificateFiles, ClientCertificates, SiteTls};
use crate::statics_schema::{Action, Route, Talk, Target, Terms};

/// `[[site.data]]`.
#[derive(Clone)]
pub(crate) struct RawData {
    /// Where the header stands.
    pub(crate) offset: usize,
    /// `data source "catalog"`, or the header of one without a name.
    pub(crate) label: String,
    pub(crate) name: Option<String>,
    pub(crate) statements: Option<At<PathBuf>>,
    pub(crate) schema: Option<At<PathBuf>>,
    pub(crate) password: Option<At<PathBuf>>,
    pub(crate) server_ca: Option<At<PathBuf>>,
    pub(crate) certificate: Option<At<PathBuf>>,
    pub(crate) key: Option<At<PathBuf>>,
    pub(crate) memory_max: u64,
    /// `None` if something is wrong with it; of a server, without its files.
    pub(crate) database: Option<RawDatabase>,
}

/// Where a database is, without its files.
#[derive(Clone)]
pub(crate) enum RawDatabase {
    Sqlite,
    Server(DatabaseServer),
    Remote(Target),
}

impl RawData {
    /// Whether a connector connects its data proxy with a server.
    pub(crate) fn is_at_server(&self) -> bool {
        matches!(self.database, Some(RawDatabase::Server(_) | RawDatabase::Remote(_)))
    }

    /// The socket of its server, if it has one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.database {
            Some(RawDatabase::Server(DatabaseServer { target: Target::Unix(path), .. })) => Some(path),
            _ => None,
        }
    }

    pub(crate) fn finish(self) -> Option<DataSource> {
        let identity = self.identity();
        let statements = self.statements.map(|at| at.value);
        let server_ca = self.server_ca.map(|at| at.value);
        let (database, statements) = match self.database? {
            RawDatabase::Sqlite => {
                (Database::Sqlite { schema: self.schema.map(|at| at.value) }, Some(statements?))
            }
            RawDatabase::Server(server) => {
                let password = self.password.map(|at| at.value);
                (
                    Database::Server(DatabaseServer { password, server_ca, identity, ..server }),
                    Some(statements?),
                )
            }
            RawDatabase::Remote(target) => {
                let (server_ca, identity) = server_ca.zip(identity)?;
                (Database::Remote(RemoteServer { target, server_ca, identity }), None)
            }
        };
        Some(DataSource { name: self.name?, statements, database, memory_max: self.memory_max })
    }

    /// What its server speaks, if it is at one.
    pub(crate) fn engine(&self) -> Option<Engine> {
        match self.database.as_ref()? {
            RawDatabase::Sqlite | RawDatabase::Remote(_) => None,
            RawDatabase::Server(server) => Some(server.engine),
        }
    }

    /// The files of its identity, by their keys.
    pub(crate) fn identity_files(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>)> {
        let files = [("certificate", &self.certificate), ("key", &self.key)];
        files.into_iter().filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }

    /// What it shows to its server.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (certificate, key) = self.certificate.as_ref().zip(self.key.as_ref())?;
        Some(Identity { certificate: certificate.value.clone(), key: key.value.clone() })
    }
}

/// A route, with its places.
#[derive(Clone)]
pub(crate) struct RawRoute {
    /// Where its header stands.
    pub(crate) offset: usize,
    pub(crate) matcher: Option<At<Matcher>>,
    pub(crate) action: Option<Action>,
    /// Whether only after a miss, and where that is said.
    pub(crate) fallback: Option<At<bool>>,
    pub(crate) terms: RawTerms,
    pub(crate) body_bytes: Option<u64>,
    /// Whether those who answer get the rest of the path, and where that is said.
    pub(crate) strip_prefix: Option<At<bool>>,
    /// The folder that stands at its path.
    pub(crate) alias: Option<At<PathBuf>>,
    pub(crate) talk: Talk,
}

/// Who may ask, with the place of the file of users.
#[derive(Clone, Default)]
pub(crate) struct RawTerms {
    pub(crate) terms: Terms,
    pub(crate) users: Option<At<PathBuf>>,
}

impl RawRoute {
    /// Whether other servers answer, to which the site needs a connector.
    pub(crate) fn has_servers(&self) -> bool {
        matches!(self.action, Some(Action::Upstream(_) | Action::Fastcgi(_)))
    }

    pub(crate) fn finish(self) -> Option<Route> {
        Some(Route {
            matcher: self.matcher?.value,
            action: self.action?,
            fallback: self.fallback.is_some_and(|fallback| fallback.value),
            terms: self.terms.terms,
            body_bytes: self.body_bytes,
            strip_prefix: self.strip_prefix.is_some_and(|strip| strip.value),
            alias: self.alias.map(|alias| alias.value),
            talk: self.talk,
        })
    }
}

/// What a site says of its certificates.
#[derive(Clone)]
pub(crate) struct RawSiteTls {
    /// Where `certificates`, or `certificate`, stands.
    pub(crate) offset: usize,
    pub(crate) certificates: Vec<RawCertificate>,
    pub(crate) client_ca: Option<At<PathBuf>>,
    pub(crate) client_crl: Vec<At<PathBuf>>,
    pub(crate) client_certificates: ClientCertificates,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct RawCertificate {
    /// The key of the file that messages are about: `certificates`, or `certificate`.
    pub(crate) named_by: &'static str,
    pub(crate) certificate: At<PathBuf>,
    /// `None`: in the same file.
    pub(crate) key: Option<At<PathBuf>>,
}

impl RawCertificate {
    /// Its files, each with the key of the configuration that names it, and whether there is a private key in it.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &At<PathBuf>, bool)> {
        let own = (self.named_by, &self.certificate, self.key.is_none());
        std::iter::once(own).chain(self.key.as_ref().map(|key| ("key", key, true)))
    }

    fn finish(self) -> CertificateFiles {
        CertificateFiles { certificate: self.certificate.value, key: self.key.map(|key| key.value) }
    }
}

impl RawSiteTls {
    pub(crate) fn finish(self) -> SiteTls {
        SiteTls {
            certificates: self.certificates.into_iter().map(RawCertificate::finish).collect(),
            client_ca: self.client_ca.map(|file| file.value),
            client_crl: self.client_crl.into_iter().map(|file| file.value).collect(),
            client_certificates: self.client_certificates,
        }
    }
}
