//! What the start of a process opens where somebody else than the kernel may answer: by the keys of the configuration.
//!
//! Runs in: the launcher, as root. Sees: paths of the configuration. Never: asks a file system that somebody else
//! answers for.

use std::path::PathBuf;

use config::{Database, Kind, PATH_KEYS, Site, Target, class_of};
use wire::Role;

use crate::opened_files::FileKey;
use crate::setup::reloaded_files::{for_data_proxy, for_workers};
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::reach::folder_of;

/// The number of a mount, if the kernel says one.
pub type Mount = Option<u64>;

impl SpawnContext {
    /// What the start of a process opens on file systems that somebody else answers for, with the mounts of these.
    pub(crate) fn remote_paths(&self, spec: &ProcessSpec) -> Vec<(Mount, FileKey, Kind)> {
        if self.empty_root.is_none() {
            return Vec::new();
        }
        let named = self.paths_of(spec).into_iter();
        self.remote_among(named.map(|(key, path)| ((class_of(key), path), kind_of(key))))
    }

    /// Those of some paths that somebody else answers for, with their mounts.
    pub(crate) fn remote_among(
        &self,
        files: impl Iterator<Item = (FileKey, Kind)>,
    ) -> Vec<(Mount, FileKey, Kind)> {
        let opener = self.opener();
        // A signer has thousands of them.
        let neighbours = opener.neighbours();
        let remote = |(file, kind): (FileKey, Kind)| {
            let mount = neighbours.remote_mount(file.0, &file.1)?;
            Some((mount, file, kind))
        };
        files.filter_map(remote).collect()
    }

    /// The paths that the start of a process opens, with their keys.
    fn paths_of(&self, spec: &ProcessSpec) -> Vec<(&'static str, PathBuf)> {
        let site = self.config.sites.get(usize::from(spec.site));
        match (spec.role, site) {
            (Role::Site, Some(site)) => of_worker(site),
            (Role::Publisher, Some(site)) => {
                site.templates.iter().map(|templates| ("folder", templates.folder.clone())).collect()
            }
            (Role::Signer, _) => self.of_signer(),
            (Role::DataProxy, _) => self.of_data_proxy(spec),
            (Role::Connector, _) => {
                let sockets = self.servers(spec).filter_map(|(_, server)| match server {
                    Target::Unix(path) => Some(("upstream", folder_of(path).to_owned())),
                    _ => None,
                });
                sockets.collect()
            }
            _ => self.of_guest(spec),
        }
    }

    /// Those of certificates and keys.
    fn of_signer(&self) -> Vec<(&'static str, PathBuf)> {
        let tls = self.config.sites.iter().filter_map(|site| site.tls.as_ref());
        let files = tls.flat_map(|tls| &tls.certificates);
        let files = files.flat_map(|files| std::iter::once(&files.certificate).chain(&files.key));
        files.map(|path| ("key", path.clone())).collect()
    }

    /// Those of a service or a filter.
    fn of_guest(&self, spec: &ProcessSpec) -> Vec<(&'static str, PathBuf)> {
        let Some(service) = self.guest(spec).filter(|service| !service.remote) else { return Vec::new() };
        let read = service.read.iter().map(|path| ("read", config::lexical(path)));
        let libraries = service.libraries.iter().map(|path| ("libraries", config::lexical(path)));
        read.chain(libraries).chain([("command", service.program.clone())]).collect()
    }

    fn of_data_proxy(&self, spec: &ProcessSpec) -> Vec<(&'static str, PathBuf)> {
        let Some(source) = self.data_source(spec) else { return Vec::new() };
        let schema = match &source.database {
            Database::Sqlite { schema } => schema.clone(),
            _ => None,
        };
        let others = for_data_proxy(source).into_iter().map(|(_, path)| ("statements", path));
        schema.map(|path| ("schema", path)).into_iter().chain(others).collect()
    }
}

/// Those of a site's worker.
fn of_worker(site: &Site) -> Vec<(&'static str, PathBuf)> {
    let folders = site.folders().map(|path| ("root", path.clone()));
    let files = for_workers(site).into_iter().map(|(_, path)| ("users", path));
    let program = site.worker.program.iter().map(|(_, path)| ("worker", path.clone()));
    folders.chain(files).chain(program).collect()
}

/// What the path of a key leads to.
fn kind_of(key: &str) -> Kind {
    PATH_KEYS.iter().find(|row| row.key == key).map_or(Kind::File, |row| row.kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use config::{Class, Config};

    use super::*;
    use crate::setup::process_table::process_table;
    use crate::spawn::cgroup::Cgroups;

    /// Each key of the table of paths that is not the server's own, with a path of its own.
    const CONFIGURATION: &str = r#"
[[listen]]
address = "127.0.0.1:443"
unfiltered = true
tls = true
[server]
user_range = "51001-51999"
[conditioning]
filters = [["/far/filters"]]
[[site]]
name = "a"
host = ["a.test"]
root = "/far/root"
follow_links = ["/far/follow_links"]
certificates = ["/far/certificates"]
client_ca = "/far/client_ca"
client_crl = ["/far/client_crl"]
auth = { users = "/far/users", realm = "x" }
worker = ["/far/worker"]
templates = { folder = "/far/folder" }
  [[site.route]]
  path = "/alias/"
  alias = "/far/alias"
  [[site.route]]
  path = "/up/"
  upstream = "unix:/far/upstream/s"
  [[site.route]]
  path = "/fast/"
  fastcgi = "unix:/far/fastcgi/s"
  [[site.data]]
  name = "one"
  statements = "/far/statements"
  schema = "/far/schema"
  [[site.service]]
  name = "s"
  path = "/s"
  command = ["/far/command", "x"]
  read = ["/far/read"]
  libraries = ["/far/libraries"]
  data = ["one"]
  templates = true
[[site]]
name = "b"
host = ["b.test"]
vhosts = "/far/vhosts"
certificate = "/far/certificate"
key = "/far/key"
php = "unix:/far/php/s"
  [[site.data]]
  name = "two"
  engine = "postgresql"
  server = "unix:/far/server/s"
  user = "u"
  database = "d"
  password = "/far/password"
  statements = "/far/statements2"
  [[site.data]]
  name = "three"
  engine = "postgresql"
  server = "db.test:5432"
  user = "u"
  database = "d"
  password = "/far/password"
  server_ca = "/far/server_ca"
  statements = "/far/statements3"
  [[site.service]]
  name = "s"
  path = "/s"
  command = ["/far/command2"]
  data = ["two", "three"]
"#;

    #[test]
    fn a_start_opens_what_every_key_of_the_table_names() {
        let config =
            Config::parse(CONFIGURATION, "test", Path::new("/etc")).unwrap_or_else(|fault| panic!("{fault}"));
        let specs = process_table(&config, 1, None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(folder.path()).unwrap().into();
        let context = SpawnContext::with_roles(
            "/roles".into(),
            config,
            None,
            directory,
            folder.path(),
            Cgroups::default(),
        );
        let context = context.unwrap();
        let opened: BTreeSet<PathBuf> =
            specs.iter().flat_map(|spec| context.paths_of(spec)).map(|(_, path)| path).collect();
        for row in PATH_KEYS.iter().filter(|row| row.class != Class::Own) {
            assert!(
                opened.contains(&Path::new("/far").join(row.key)),
                "{} {}: {opened:?}",
                row.table,
                row.key
            );
        }
    }
}
