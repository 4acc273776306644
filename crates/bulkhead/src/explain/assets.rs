//! What a configuration has to lose.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration. Never: reads a file
//! that the configuration names.

use std::path::Path;

use config::{Config, DataSource, Service, Site};
use statements::NamedTable;

use super::granted::GrantedCalls;
use super::inventory::{Assets, Listing};
use super::model::{Asset, AssetKind};

/// The name of the log of requests that no site has.
pub const NO_SITE_LOG: &str = "no-site.access.log";

/// The name of the log of events.
pub const ERROR_LOG: &str = "error.log";

/// Every asset of a configuration: each site's, in the order of the file, then the server's.
pub fn of(config: &Config, granted: &GrantedCalls) -> Assets {
    let mut listing = Listing::default();
    for (number, site) in config.sites.iter().enumerate() {
        of_site(&mut listing, config, granted, number, site);
    }
    let mut add = |kind: AssetKind, name: &str, label: &str| {
        listing.add(Asset { kind, name: name.into(), label: label.into(), site: None }, None);
    };
    add(AssetKind::Log, NO_SITE_LOG, "no-site log");
    add(AssetKind::Log, ERROR_LOG, "error log");
    add(AssetKind::Orders, "stop, relaunch", "orders");
    add(AssetKind::Host, "root on this machine", "root");
    listing.done()
}

fn of_site(listing: &mut Listing, config: &Config, granted: &GrantedCalls, number: usize, site: &Site) {
    let own = Some(number);
    let named = |kind: AssetKind, name: String, label: String| Asset { kind, name, label, site: own };
    let files = |listing: &mut Listing, word: &str, path: &Path| {
        let shown = shown(config, path);
        let label = format!("{word} {shown}");
        listing.add(named(AssetKind::Files, shown, label), Some(path));
    };
    listing.add(named(AssetKind::Site, site.name.clone(), "site".into()), None);
    site.folders().for_each(|folder| files(listing, "files", folder));
    site.users().for_each(|users| files(listing, "passwords", users));
    let mut add = |kind: AssetKind, name: String, label: String| listing.add(named(kind, name, label), None);
    if site.tls.is_some() {
        add(AssetKind::Keys, site.name.clone(), "keys".into());
    }
    for data in &site.data {
        let source = data_name(site, data);
        add(AssetKind::Data, source.clone(), format!("database {}", data.name));
        for table in granted.tables(&source) {
            add(AssetKind::Table, table_name(&source, &table), format!("table {}", table.name));
        }
        if data.server().is_some_and(|server| server.password.is_some()) {
            add(AssetKind::Password, source.clone(), format!("password of {}", data.name));
        }
        if data.secured().is_some_and(|secured| secured.identity.is_some()) {
            add(AssetKind::ClientKey, source.clone(), format!("client key of {}", data.name));
        }
        for service in site.services_with(&data.name) {
            let label = format!("token of {} for {}", service.name, data.name);
            add(AssetKind::Token, token_name(&source, &service_name(site, service)), label);
        }
    }
    add(AssetKind::Users, site.name.clone(), "users".into());
    for service in &site.services {
        let name = service_name(site, service);
        let mut add = |kind: AssetKind, label: String| listing.add(named(kind, name.clone(), label), None);
        add(AssetKind::Service, service.name.clone());
        add(AssetKind::Users, format!("{} users", service.name));
        service.read.iter().for_each(|folder| files(listing, "files", folder));
        let own = service.files_folder(&config.server, site);
        own.iter().for_each(|folder| files(listing, "files", folder));
    }
    listing.add(named(AssetKind::Log, access_log(site), "access log".into()), None);
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
pub fn table_name(source: &str, table: &NamedTable) -> String {
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
        let assets = of(&demo(), &GrantedCalls::default());
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
}
