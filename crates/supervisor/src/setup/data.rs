//! Data proxies: what each is sent, the folder of its database, and its channels to services. Folders of services' own
//! files.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: reads a statement, or opens a database.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use config::{DataSource, Database, DatabaseServer, RemoteServer, Site};
use jail::policy::Policy;
use wire::data::{LauncherToDataProxy, TOKEN_BYTES, Token};
use wire::{LauncherToService, Role, Text};

use crate::Supervisor;
use crate::directories;
use crate::error::{Error, at, during};
use crate::setup::links;
use crate::setup::reloaded_files::for_data_proxy;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// Where a data proxy with a root of its own has the folder of its database.
pub const DATA_AT: &str = "/data";

/// Where a service with a root of its own has its files.
pub const FILES_AT: &str = "/files";

/// What tells a service where its files are.
const FILES_VARIABLE: &str = "BULKHEAD_FILES";

impl SpawnContext {
    /// The data source of a proxy, or of a proxy's connector.
    pub fn data_source(&self, spec: &ProcessSpec) -> Option<&DataSource> {
        spec.data_source(&self.config)
    }

    /// A proxy's site and source.
    fn source(&self, spec: &ProcessSpec) -> Result<(&Site, &DataSource), Error> {
        let source = spec.site(&self.config).zip(self.data_source(spec));
        source.ok_or_else(|| Error::NoDataSource { name: spec.name.clone() })
    }

    /// The folder of a source's database, which belongs to its proxy; made if it is not there. A server's has none.
    pub fn data_folder(&self, spec: &ProcessSpec) -> Result<Option<OwnedFd>, Error> {
        let (site, source) = self.source(spec)?;
        let Some(mut path) = source.file(&self.config.server, &site.name) else { return Ok(None) };
        path.pop();
        self.kept_folder(spec, path).map(Some)
    }

    /// A folder `state_dir/KIND/SITE/NAME`, which belongs to a process of `spec`; made if it is not there.
    pub fn kept_folder(&self, spec: &ProcessSpec, path: PathBuf) -> Result<OwnedFd, Error> {
        // Everything above it is ours: nobody can put a link there.
        let above = path.ancestors().skip(1).take(2).collect::<Vec<_>>();
        above.into_iter().rev().try_for_each(|folder| directories::own_directory(folder, 0o755))?;
        let is_new = match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(at("make", &path)(error)),
        };
        let folder = directories::directory(&path)?;
        let Some(identity) = spec.identity else { return Ok(folder) };
        if is_new || is_not_given_yet(&path).map_err(at("examine", &path))? {
            fchown(&folder, Some(identity.id()), Some(identity.id())).map_err(at("give away", &path))?;
        }
        let owner = fs::File::from(folder.try_clone().map_err(during("duplicate a descriptor"))?);
        let found = owner.metadata().map_err(at("examine", &path))?.uid();
        match found == identity.id() {
            true => Ok(folder),
            false => Err(Error::NotTheWriters { path, found, wanted: identity.id() }),
        }
    }

    /// The folder of a service's own files as the launcher sees it, if the service has one.
    pub fn files_folder(&self, spec: &ProcessSpec) -> Option<PathBuf> {
        let (site, service) = self.service(spec)?;
        service.files_folder(&self.config.server, site)
    }

    /// What tells a service in its environment where its own files are, if it has any.
    pub fn files_variable(&self, spec: &ProcessSpec) -> Option<String> {
        let folder = self.files_folder(spec)?;
        let seen = if self.template().is_some() { Path::new(FILES_AT) } else { &folder };
        Some(format!("{FILES_VARIABLE}={}", seen.display()))
    }

    /// What a data proxy may do, by where its database is.
    pub fn data_proxy_policy(&self, spec: &ProcessSpec) -> Policy {
        let server = self.data_source(spec).is_some_and(|source| source.target().is_some());
        Policy::DataProxy { server }
    }

    /// What a data proxy is sent before it opens its source.
    pub fn data_proxy_setup(
        &self,
        spec: &ProcessSpec,
    ) -> Result<Vec<(LauncherToDataProxy, Option<OwnedFd>)>, Error> {
        let (site, source) = self.source(spec)?;
        let opener = self.opener();
        let opened = |path: &Path| opener.file(path).map(OwnedFd::from).map_err(at("open", path));
        let limits = LauncherToDataProxy::Limits { flush_ms: self.config.log.flush_ms };
        let mut messages = vec![(limits, None)];
        match &source.database {
            Database::Sqlite { schema } => {
                let mut path = source.file(&self.config.server, &site.name).unwrap_or_default();
                if self.template().is_some() {
                    path = Path::new(DATA_AT).join(path.file_name().unwrap_or_default());
                }
                let path = Text::new(path.to_string_lossy());
                // The other half is for what is on its way, and for the program.
                let heap_bytes = source.memory_max / 2;
                messages.push((LauncherToDataProxy::Sqlite { path, heap_bytes }, None));
                if let Some(schema) = schema {
                    messages.push((LauncherToDataProxy::Schema {}, Some(opened(schema)?)));
                }
            }
            Database::Server(server) => messages.push((server_message(server), None)),
            Database::Remote(remote) => messages.push((remote_message(source, remote), None)),
        }
        for (message, path) in for_data_proxy(source) {
            messages.push((message, Some(opened(&path)?)));
        }
        let services = site.services_with(&source.name);
        messages
            .extend(services.map(|one| (LauncherToDataProxy::Service { name: Text::new(&*one.name) }, None)));
        messages.push((LauncherToDataProxy::Begin {}, None));
        Ok(messages)
    }
}

/// Whether a folder is as this process makes it, which could not give it away then: ours, and empty.
fn is_not_given_yet(folder: &Path) -> std::io::Result<bool> {
    let own = fs::symlink_metadata(folder)?.uid() == rustix::process::geteuid().as_raw();
    Ok(own && fs::read_dir(folder)?.next().is_none())
}

fn server_message(server: &DatabaseServer) -> LauncherToDataProxy {
    LauncherToDataProxy::Server {
        engine: server.engine,
        database: Text::new(&*server.database),
        user: Text::new(&*server.user),
        connections: server.connections,
    }
}

fn remote_message(source: &DataSource, remote: &RemoteServer) -> LauncherToDataProxy {
    LauncherToDataProxy::Remote {
        source: Text::new(&*source.name),
        authority: Text::new(remote.target.to_string()),
    }
}

impl Supervisor {
    /// Makes the channels between a new data proxy and its services, or the other way round; those that retire
    /// included, which have requests to answer yet.
    pub(crate) fn connect_data(&mut self, serial: u64) -> Result<(), Error> {
        let (role, site) = (self.spec_of(serial).role, self.spec_of(serial).site);
        // There may be thousands of sites: only this one is looked at.
        for other in self.of_site(site).collect::<Vec<_>>() {
            let (service, proxy) = match (role, self.spec_of(other).role) {
                (Role::DataProxy, Role::Service) => (other, serial),
                (Role::Service, Role::DataProxy) if self.is_active(other) => (serial, other),
                _ => continue,
            };
            if links::has_data(&self.context().config, self.spec_of(service), self.spec_of(proxy)) {
                self.join_data(service, proxy)?;
            }
        }
        Ok(())
    }

    /// Makes a channel, with a token that nobody else knows.
    fn join_data(&mut self, service: u64, proxy: u64) -> Result<(), Error> {
        let mut token = [0; TOKEN_BYTES];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)
            .map_err(during("get random bytes"))?;
        let token = Token(token);
        let service_name = self.context().service(self.spec_of(service)).map(|(_, one)| one.name.clone());
        let source_name = self.context().data_source(self.spec_of(proxy)).map(|source| source.name.clone());
        let Some((service_name, source_name)) = service_name.zip(source_name) else { return Ok(()) };
        let of_service = LauncherToService::DataProxy { name: Text::new(source_name), token: token.clone() };
        let of_proxy = LauncherToDataProxy::Attach { service: Text::new(service_name), token };
        self.join((service, &of_service), (proxy, &of_proxy))
    }
}
