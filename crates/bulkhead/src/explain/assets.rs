//! What a configuration has to lose.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration. Never: reads a file
//! that the configuration names.

use std::path::Path;

use config::{Config, DataSource, Service, Site};
use statements::Table;

use super::granted::Granted;
use super::model::{Asset, Kind, Loss, Reach};

/// The name of the log of requests that no site has.
pub const NO_SITE_LOG: &str = "no-site.access.log";

/// The name of the log of events.
pub const ERROR_LOG: &str = "error.log";

/// Every asset of a configuration: each site's, in the order of the file, then the server's.
pub fn of(config: &Config, granted: &Granted) -> Vec<Asset> {
    let mut assets: Vec<Asset> = Vec::new();
    let mut add = |kind: Kind, name: String, label: String, site: Option<usize>| {
        // A folder that several may read is one asset.
        if assets.iter().all(|known| known.kind != kind || known.name != name) {
            assets.push(Asset { kind, name, label, site });
        }
    };
    for (number, site) in config.sites.iter().enumerate() {
        let own = Some(number);
        let files = |path: &Path| format!("files {}", shown(config, path));
        add(Kind::Site, site.name.clone(), "site".into(), own);
        for folder in site.folders() {
            add(Kind::Files, shown(config, folder), files(folder), own);
        }
        for users in site.users() {
            add(Kind::Files, shown(config, users), format!("passwords {}", shown(config, users)), own);
        }
        if site.tls.is_some() {
            add(Kind::Keys, site.name.clone(), "keys".into(), own);
        }
        for data in &site.data {
            let source = data_name(site, data);
            add(Kind::Data, source.clone(), format!("database {}", data.name), own);
            for table in granted.tables(&source) {
                add(Kind::Table, table_name(&source, &table), format!("table {}", table.name), own);
            }
            if data.server().is_some_and(|server| server.password.is_some()) {
                add(Kind::Password, source.clone(), format!("password of {}", data.name), own);
            }
            if data.secured().is_some_and(|secured| secured.identity.is_some()) {
                add(Kind::ClientKey, source.clone(), format!("client key of {}", data.name), own);
            }
            for service in site.services.iter().filter(|service| service.data.contains(&data.name)) {
                let label = format!("token of {} for {}", service.name, data.name);
                add(Kind::Token, token_name(&source, &service_name(site, service)), label, own);
            }
        }
        add(Kind::Users, site.name.clone(), "users".into(), own);
        for service in &site.services {
            let name = service_name(site, service);
            add(Kind::Service, name.clone(), service.name.clone(), own);
            add(Kind::Users, name, format!("{} users", service.name), own);
            for folder in &service.read {
                add(Kind::Files, shown(config, folder), files(folder), own);
            }
            if let Some(folder) = service.files_folder(&config.server, site) {
                add(Kind::Files, shown(config, &folder), files(&folder), own);
            }
        }
        add(Kind::Log, access_log(site), "access log".into(), own);
    }
    add(Kind::Log, NO_SITE_LOG.into(), "no-site log".into(), None);
    add(Kind::Log, ERROR_LOG.into(), "error log".into(), None);
    add(Kind::Orders, "stop, relaunch".into(), "orders".into(), None);
    add(Kind::Host, "root on this machine".into(), "root".into(), None);
    assets
}

/// A folder, as short as it is clear: relative to the configuration's if it is in there.
pub fn shown(config: &Config, path: &Path) -> String {
    let short = path.strip_prefix(&config.dir).unwrap_or(path);
    if short.as_os_str().is_empty() { ".".into() } else { short.display().to_string() }
}

/// A service's name as people write it.
pub fn service_name(site: &Site, service: &Service) -> String {
    format!("{}/{}", site.name, service.name)
}

/// A data source's name, with its site's.
pub fn data_name(site: &Site, data: &DataSource) -> String {
    format!("{}/{}", site.name, data.name)
}

/// A table's name, with its source's.
pub fn table_name(source: &str, table: &Table) -> String {
    format!("{source}.{}", table.name.to_ascii_lowercase())
}

/// The name of what a service shows to the data proxy of a source.
pub fn token_name(source: &str, service: &str) -> String {
    format!("{service} for {source}")
}

/// The name of a site's access log.
pub fn access_log(site: &Site) -> String {
    site.worker.access_log.clone()
}

/// What one process reaches, as it is being found out.
#[derive(Debug)]
pub struct Reaches<'a> {
    assets: &'a [Asset],
    found: Vec<Reach>,
}

impl<'a> Reaches<'a> {
    /// Nothing yet.
    pub fn of(assets: &'a [Asset]) -> Self {
        Self { assets, found: Vec::new() }
    }

    /// Adds each asset that fits.
    pub fn each(mut self, fits: impl Fn(&Asset) -> bool, loss: Loss, how: &str) -> Self {
        let fitting = self.assets.iter().enumerate().filter(|(_, asset)| fits(asset));
        self.found.extend(fitting.map(|(asset, _)| Reach { asset, loss, how: how.into() }));
        self
    }

    /// Adds the one asset of a kind that has a name.
    pub fn one(self, kind: Kind, name: &str, loss: Loss, how: &str) -> Self {
        self.each(|asset| asset.kind == kind && asset.name == name, loss, how)
    }

    /// What was found.
    pub fn done(self) -> Vec<Reach> {
        self.found
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The configuration of the demo.
    pub fn demo() -> Config {
        parse(include_str!("../../../../tests/config/main-job.toml"))
    }

    pub fn parse(text: &str) -> Config {
        Config::parse(text, "bulkhead.toml", Path::new("/srv")).unwrap()
    }

    #[test]
    fn the_demo_has_these_to_lose() {
        let assets = of(&demo(), &Granted::default());
        let names: Vec<String> =
            assets.iter().map(|asset| format!("{} {}", asset.kind.name(), asset.name)).collect();
        let expected = "site packages, files public, users packages, service packages/search, \
            users packages/search, files data, service packages/package, users packages/package, \
            service packages/crash, users packages/crash, log packages.access.log, site other, files other, \
            users other, log other.access.log, log no-site.access.log, log error.log, orders stop, relaunch, \
            host root on this machine";
        assert_eq!(names.join(", "), expected);
        assert_eq!(assets[5].label, "files data");
        assert_eq!((assets[5].site, assets[11].site, assets[15].site), (Some(0), Some(1), None));
    }

    #[test]
    fn folders_elsewhere_keep_their_whole_name() {
        let config = demo();
        assert_eq!(shown(&config, Path::new("/var/www")), "/var/www");
        assert_eq!(shown(&config, Path::new("/srv")), ".");
        assert_eq!(shown(&config, Path::new("/srv/a/b")), "a/b");
    }

    #[test]
    fn reaches_are_found_by_name() {
        let assets = of(&demo(), &Granted::default());
        let found = Reaches::of(&assets)
            .one(Kind::Users, "other", Loss::Part, "so")
            .one(Kind::Users, "nobody", Loss::Part, "so")
            .each(|asset| asset.kind == Kind::Log, Loss::Whole, "all")
            .done();
        assert_eq!(found.len(), 5);
        assert_eq!(found[0], Reach { asset: 13, loss: Loss::Part, how: "so".into() });
    }
}
