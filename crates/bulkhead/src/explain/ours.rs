//! What falls with each of our own processes: the rules of Bulkhead, on top of who can send what to whom.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration, and uids that the server reports.
//! Never: claims a separation that a missing uid takes away; grants a right whose channel is not in the table.

use std::collections::BTreeMap;

use config::{Config, Service, Site};
use supervisor::spawn::process_spec::ProcessSpec;
use wire::{AccessLogRight, Edge, Role};

use super::assets::{ERROR_LOG, access_log, service_name};
use super::contacts::Hosts;
use super::databases;
use super::granted::GrantedCalls;
use super::inventory::{Assets, Reaches};
use super::model::{Asset, AssetKind, ExplainedProcess, Loss, Model, Reach};
use super::together::together;

/// Why who holds a connection can do more than answer the request that it came with.
const NEXT: &str =
    "who holds a client's connection can answer what the client sends next on it, on the same host";

/// Uids by the name of their process; empty if no server runs.
pub type Uids = BTreeMap<String, u32>;

/// What the rules are about.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The checked configuration.
    pub config: &'a Config,
    /// Which of its sites share hosts.
    pub hosts: &'a Hosts,
    /// Who can send what to whom.
    pub channels: &'a [Edge],
    /// What there is to lose.
    pub assets: &'a Assets,
    /// What services may ask of databases.
    pub granted: &'a GrantedCalls,
}

/// Our own server: a process for each of `posts`, in that order. What processes reach is said of those alone that fall
/// with `chosen`, if there is one.
pub fn model(facts: Facts<'_>, posts: &[ProcessSpec], uids: &Uids, chosen: Option<usize>) -> Model {
    let (drags, places, circles) = together(facts.config, posts, uids);
    let processes = posts.iter().zip(drags).zip(places).map(|((post, drags), circle)| ExplainedProcess {
        name: post.name.clone(),
        is_root: post.role == Role::Launcher,
        reaches: Vec::new(),
        common: None,
        drags,
        circle,
    });
    let mut model = Model { assets: facts.assets.clone(), processes: processes.collect(), circles };
    let fallen = chosen.map(|chosen| model.falls(chosen));
    let needed: Vec<usize> = match fallen {
        Some(fallen) => fallen.iter().map(|drag| drag.process).collect(),
        None => (0..posts.len()).collect(),
    };
    for number in needed {
        model.processes[number].reaches = facts.reaches(&posts[number], uids);
    }
    model
}

/// Which connections of clients a process has: in a word or two, and in a sentence.
pub fn connections(config: &Config, post: &ProcessSpec) -> (&'static str, &'static str) {
    match post.role {
        Role::Launcher => {
            ("all", "it holds no client's, but copies of the listening sockets and every right")
        }
        Role::Gate => ("new", "it holds new ones until it has passed them on, and is sent those handed back"),
        Role::Filter => ("new", "it holds new ones, with the heads that were read from them, on their way"),
        Role::Site => ("live", "it holds all of its site's, and is sent them by gates"),
        Role::Service if post.service(config).is_some_and(|service| service.takes_connections) => {
            ("handed", "it holds those that gates hand to it for its path")
        }
        Role::Service => {
            ("none", "it holds no client's: requests of all users reach it over pairs of sockets")
        }
        Role::Connector if post.service(config).is_some() => {
            ("none", "it holds no client's; it makes its service's connections to what that is granted")
        }
        Role::Connector if post.data_source(config).is_some() => {
            ("none", "it holds no client's; it makes its data proxy's connections to the database server")
        }
        Role::Connector => {
            ("none", "it holds no client's; it makes its site's connections to servers behind it")
        }
        _ => ("none", "it holds no client's, and is sent none"),
    }
}

impl<'a> Facts<'a> {
    fn reaches(&self, post: &ProcessSpec, uids: &Uids) -> Vec<Reach> {
        let found = Reaches::of(self.assets);
        let found = match (post.role, post.site(self.config), post.service(self.config)) {
            (Role::Launcher, ..) => launcher(found, uids.get(&post.name)),
            (Role::Gate, ..) => self.gate(found),
            (Role::Filter, ..) => self.filter(found),
            (Role::Site, Some(site), _) => self.site(found, site),
            (Role::Service, Some(site), Some(service)) => self.service(found, site, service),
            (Role::Logger, ..) => {
                found.each(is_log, Loss::Whole, "it reads all that is to be logged, and may forge it")
            }
            (Role::Admin, ..) => self.admin(found),
            (Role::Signer, ..) => self.signer(found),
            (Role::Stapler, ..) => self.stapler(found),
            (Role::Connector, Some(site), Some(service)) => {
                self.connector(found, &service_name(site, service), Role::Broker)
            }
            (Role::Connector, Some(site), None) if post.data_source(self.config).is_some() => {
                self.database_connector(found, site, post)
            }
            (Role::Connector, Some(site), None) => self.connector(found, &site.name, Role::Site),
            (Role::DataProxy, Some(site), _) => self.data_proxy(found, site, post),
            (Role::Publisher, Some(site), _) => self.publisher(found, site),
            _ => found,
        };
        self.logs(found, post).done()
    }

    fn has(&self, from: Role, to: Role, message: &str) -> bool {
        self.channels.iter().any(|edge| (edge.from, edge.to, edge.message) == (from, to, message))
    }

    fn gate(&self, mut found: Reaches<'a>) -> Reaches<'a> {
        if self.has(Role::Launcher, Role::Gate, "LauncherToGate") {
            let how =
                "it accepts them: it reads the heads on new connections, and answers those that it keeps";
            found = found.each(|asset| asset.kind == AssetKind::Users, Loss::Part, how);
        }
        found
    }

    fn filter(&self, found: Reaches<'a>) -> Reaches<'a> {
        if !self.has(Role::Gate, Role::Filter, "ToWorker") {
            return found;
        }
        let how = "it gets every new connection with its head, and may change it, keep it or answer it";
        found.each(|asset| asset.kind == AssetKind::Users, Loss::Part, how)
    }

    fn site(&self, mut found: Reaches<'a>, site: &Site) -> Reaches<'a> {
        found = found.one(AssetKind::Site, &site.name, Loss::Whole, "it is this process");
        if let Some(root) = site.folder() {
            found = found.files(root, "`root`: it reads them to send them");
        }
        for folder in site.routes.iter().filter_map(|route| route.alias.as_ref()) {
            found = found.files(folder, "`alias`: it reads them to send them");
        }
        for folder in &site.follow_links {
            found = found.files(folder, "`follow_links`: it reads what links lead to");
        }
        for users in site.users() {
            found = found.files(users, "`auth`: it checks names and passwords by it");
        }
        if self.has(Role::Gate, Role::Site, "ToWorker") {
            let how = "it holds every live connection, with requests and answers";
            found = found.one(AssetKind::Users, &site.name, Loss::Whole, how);
            found = self.next_on_the_host(found, site, &site.name);
        }
        if self.has(Role::Site, Role::Service, "ToWorker") {
            for service in site.services.iter().filter(|service| !service.takes_connections) {
                let how = "it relays every request and answer, and may ask in any user's place";
                found = found.one(AssetKind::Users, &service_name(site, service), Loss::Whole, how);
            }
            found = databases::with_site(found, self.granted, site);
        }
        if self.has(Role::Site, Role::Site, "ToWorker") {
            for other in self.beside(site).filter(|other| self.config.relays(site, other)) {
                let how = "it does TLS for its host: it relays every request and answer, and may ask in any user's place";
                let relayed = other.services.iter().filter(|service| !service.takes_connections);
                let names = relayed.map(|service| service_name(other, service));
                for name in names.chain([other.name.clone()]) {
                    found = found.one(AssetKind::Users, &name, Loss::Whole, how);
                }
            }
        }
        found
    }

    fn service(&self, mut found: Reaches<'a>, site: &Site, service: &Service) -> Reaches<'a> {
        let name = service_name(site, service);
        found = found.one(AssetKind::Service, &name, Loss::Whole, "it is this process");
        for folder in &service.read {
            found = found.files(folder, "`read`: it opens them itself");
        }
        if let Some(folder) = service.files_folder(&self.config.server, site) {
            found = found.files(&folder, "`files`: it writes them");
        }
        if self.has(Role::Service, Role::DataProxy, "ServiceToDataProxy") {
            for data in site.data.iter().filter(|data| service.data.contains(&data.name)) {
                found = databases::with_service(found, self.granted, site, service, data);
            }
        }
        if service.takes_connections && self.has(Role::Gate, Role::Service, "ToWorker") {
            let how = "gates hand it the connections themselves";
            found = found.one(AssetKind::Users, &name, Loss::Whole, how);
            found = self.next_on_the_host(found, site, &name);
        } else if self.has(Role::Site, Role::Service, "ToWorker") {
            let how = "it gets every request, one by one, without the connection";
            found = found.one(AssetKind::Users, &name, Loss::Whole, how);
        }
        found
    }

    /// The users of everything that answers on a host of `site`, but for `holder`, who holds their connections.
    ///
    /// A client keeps a connection to one host and port; another pattern for the same host never answers there,
    /// as the more exact one has all of its paths.
    fn next_on_the_host(&self, mut found: Reaches<'a>, site: &Site, holder: &str) -> Reaches<'a> {
        for other in self.beside(site).filter(|other| meet(site, other)) {
            let services = other.services.iter().map(|service| service_name(other, service));
            for name in services.chain([other.name.clone()]).filter(|name| name != holder) {
                found = found.one(AssetKind::Users, &name, Loss::Part, NEXT);
            }
        }
        found
    }

    /// The sites on the same hosts, in the order of the file; itself as well.
    fn beside(&self, site: &Site) -> impl Iterator<Item = &'a Site> {
        let config = self.config;
        self.hosts.beside(site).into_iter().map(move |number| &*config.sites[number])
    }

    /// The logs that a process may write to.
    fn logs(&self, found: Reaches<'a>, post: &ProcessSpec) -> Reaches<'a> {
        if !self.has(post.role, Role::Logger, "log batch") {
            return found;
        }
        let how = "it adds lines, true or false";
        match (post.role.facts().access_log, post.site(self.config)) {
            (AccessLogRight::Every, _) => found.each(is_log, Loss::Part, how),
            (AccessLogRight::Site, Some(site)) => found
                .one(AssetKind::Log, &access_log(site), Loss::Part, how)
                .one(AssetKind::Log, ERROR_LOG, Loss::Part, how),
            _ => found.one(AssetKind::Log, ERROR_LOG, Loss::Part, how),
        }
    }

    fn signer(&self, mut found: Reaches<'a>) -> Reaches<'a> {
        if self.has(Role::Launcher, Role::Signer, "LauncherToSigner") {
            let how =
                "it has the site's keys: with them, who is on the way to its users can pass for the site";
            for site in self.config.sites.iter().filter(|site| site.tls.is_some()) {
                found = found.one(AssetKind::Keys, &site.name, Loss::Whole, "it signs with them");
                let names = site.services.iter().map(|service| service_name(site, service));
                for name in names.chain([site.name.clone()]) {
                    found = found.one(AssetKind::Users, &name, Loss::Part, how);
                }
            }
        }
        found
    }

    fn stapler(&self, mut found: Reaches<'a>) -> Reaches<'a> {
        if self.has(Role::Stapler, Role::Site, "StaplerToSite") {
            let how =
                "clients that look at staples go away where it staples nonsense; it reads nothing of theirs";
            for site in self.config.sites.iter().filter(|site| site.tls.is_some()) {
                found = found.one(AssetKind::Users, &site.name, Loss::Part, how);
            }
        }
        found
    }

    /// A connector whose connections go to `to`, and so to the users of `of`.
    fn connector(&self, mut found: Reaches<'a>, of: &str, to: Role) -> Reaches<'a> {
        let connects = self.channels.iter().any(|edge| (edge.from, edge.to) == (Role::Connector, to));
        if connects {
            let how = "it makes the connections to other servers, and may be at their other end itself";
            found = found.one(AssetKind::Users, of, Loss::Part, how);
        }
        found
    }

    fn database_connector(&self, mut found: Reaches<'a>, site: &Site, post: &ProcessSpec) -> Reaches<'a> {
        if let Some(data) = post.data_source(self.config) {
            found = databases::with_connector(found, self.granted, site, data);
        }
        found
    }

    fn data_proxy(&self, mut found: Reaches<'a>, site: &Site, post: &ProcessSpec) -> Reaches<'a> {
        if let Some(data) = post.data_source(self.config) {
            found = databases::with_proxy(found, self.granted, site, data);
        }
        found
    }

    fn publisher(&self, mut found: Reaches<'a>, site: &Site) -> Reaches<'a> {
        if self.has(Role::Publisher, Role::Service, "PublisherToService") {
            for service in site.services.iter().filter(|service| service.templates) {
                let how = "the service makes pages of the templates that it sends";
                found = found.one(AssetKind::Users, &service_name(site, service), Loss::Part, how);
            }
        }
        found
    }

    fn admin(&self, mut found: Reaches<'a>) -> Reaches<'a> {
        if self.has(Role::Admin, Role::Launcher, "AdminToLauncher") {
            found = found.each(
                |asset| asset.kind == AssetKind::Orders,
                Loss::Whole,
                "it passes orders on, as numbers",
            );
        }
        found
    }
}

/// Root, or, in a rootless run, the user who started the server.
fn launcher<'a>(found: Reaches<'a>, uid: Option<&u32>) -> Reaches<'a> {
    let found =
        found.each(|asset| asset.kind != AssetKind::Host, Loss::Whole, "it gives it away, and can keep it");
    let host = |asset: &Asset| asset.kind == AssetKind::Host;
    match uid {
        Some(&uid) if uid != 0 => {
            found.each(host, Loss::Part, &format!("everything that uid {uid} may do; it is not root"))
        }
        _ => found.each(host, Loss::Whole, "it is root"),
    }
}

fn is_log(asset: &Asset) -> bool {
    asset.kind == AssetKind::Log
}

/// Whether two sites answer on a host of the same name at the same address.
fn meet(one: &Site, two: &Site) -> bool {
    let host = one.hosts.iter().any(|host| two.hosts.contains(host));
    let all = one.listen.is_empty() || two.listen.is_empty();
    host && (all || one.listen.iter().any(|address| two.listen.contains(address)))
}

#[cfg(test)]
#[path = "ours_tests.rs"]
mod tests;
