//! Who is there, and who can send what to whom: `wire::CHANNELS`, spelled out for one configuration.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration. Never: knows of a channel that the
//! table has not.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use config::{Config, DataSource, Service, Site};
use supervisor::spawn::process_spec::{BROKER_OF, CONNECTOR_OF, DATA_OF, TEMPLATES_OF};
use wire::{Edge, Role};

use super::assets::{data_name, service_name};

/// A process that a configuration asks for. All gates are one, as they have one uid; all filters are one, as each of
/// them has the same to lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// What it does.
    pub role: Role,
    /// Its name, as people write it.
    pub name: String,
    /// Its site, by its number in the configuration.
    pub site: Option<usize>,
    /// Which service of its site it runs, or works for.
    pub service: Option<usize>,
    /// Which data source of its site it holds.
    pub data: Option<usize>,
}

impl Post {
    /// The site that it serves or belongs to.
    pub fn site<'c>(&self, config: &'c Config) -> Option<&'c Site> {
        config.sites.get(self.site?).map(|site| &**site)
    }

    /// The service that it runs, or works for.
    pub fn service<'c>(&self, config: &'c Config) -> Option<&'c Service> {
        self.site(config)?.services.get(self.service?)
    }

    /// The data source that it holds.
    pub fn data<'c>(&self, config: &'c Config) -> Option<&'c DataSource> {
        self.site(config)?.data.get(self.data?)
    }
}

/// One direction of a channel between two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The other process, by its number.
    pub peer: usize,
    /// The message type.
    pub message: &'static str,
    /// What comes along.
    pub descriptors: &'static str,
}

/// Every process, in the order of tables: outermost first.
pub fn posts(config: &Config) -> Vec<Post> {
    let role = |role: Role| Post { role, name: role.name().into(), site: None, service: None, data: None };
    let mut posts = vec![role(Role::Launcher), role(Role::Gate)];
    posts.extend((!config.conditioning.filters.is_empty()).then(|| role(Role::Filter)));
    for (number, site) in config.sites.iter().enumerate() {
        let of_site =
            |role: Role, name: String, data| Post { role, name, site: Some(number), service: None, data };
        posts.push(of_site(Role::Site, site.name.clone(), None));
        for (service, about) in site.services.iter().enumerate() {
            let of_service = |role: Role, ending: &str| Post {
                role,
                name: service_name(site, about) + ending,
                site: Some(number),
                service: Some(service),
                data: None,
            };
            posts.push(of_service(Role::Service, ""));
            if about.network.is_granted() {
                posts
                    .extend([of_service(Role::Broker, BROKER_OF), of_service(Role::Connector, CONNECTOR_OF)]);
            }
        }
        let proxies = site
            .data
            .iter()
            .enumerate()
            .map(|(data, about)| of_site(Role::DataProxy, data_name(site, about) + DATA_OF, Some(data)));
        posts.extend(proxies);
        let at_servers = site.data.iter().enumerate().filter(|(_, about)| about.target().is_some());
        posts.extend(at_servers.map(|(data, about)| {
            of_site(Role::Connector, data_name(site, about) + DATA_OF + CONNECTOR_OF, Some(data))
        }));
        let publisher = || of_site(Role::Publisher, site.name.clone() + TEMPLATES_OF, None);
        posts.extend(site.templates.is_some().then(publisher));
        let connector = || of_site(Role::Connector, site.name.clone() + CONNECTOR_OF, None);
        posts.extend(site.backends().next().is_some().then(connector));
    }
    let certified = config.sites.iter().any(|site| site.tls.is_some());
    posts.extend(certified.then(|| role(Role::Signer)));
    posts.extend((certified && config.tls.ocsp).then(|| role(Role::Stapler)));
    posts.extend([role(Role::Logger), role(Role::Admin)]);
    posts
}

/// Which sites have a host.
#[derive(Debug)]
pub struct Hosts(HashMap<String, Vec<usize>>);

impl Hosts {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        let mut hosts: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, site) in config.sites.iter().enumerate() {
            site.hosts.iter().for_each(|host| hosts.entry(host.clone()).or_default().push(number));
        }
        Self(hosts)
    }

    /// The sites that share a host with this one, which is among them.
    pub fn beside(&self, site: &Site) -> BTreeSet<usize> {
        site.hosts.iter().filter_map(|host| self.0.get(host)).flatten().copied().collect()
    }
}

/// Where processes are found: those of a site stand together.
#[derive(Debug)]
pub struct Directory {
    sites: Vec<Range<usize>>,
    /// Those that belong to no site.
    server: Vec<usize>,
}

impl Directory {
    /// Of these.
    pub fn of(posts: &[Post]) -> Self {
        let mut directory = Self { sites: Vec::new(), server: Vec::new() };
        for (number, post) in posts.iter().enumerate() {
            match post.site {
                None => directory.server.push(number),
                Some(site) if site == directory.sites.len() => directory.sites.push(number..number + 1),
                Some(site) => directory.sites[site].end = number + 1,
            }
        }
        directory
    }
}

/// Who can send what to whom.
#[derive(Debug)]
pub struct Topology<'a> {
    /// The checked configuration.
    pub config: &'a Config,
    /// Which of its sites share hosts.
    pub hosts: &'a Hosts,
    /// The table of channels.
    pub channels: &'a [Edge],
    /// All processes.
    pub posts: &'a [Post],
    /// Where they are.
    pub directory: &'a Directory,
}

impl Topology<'_> {
    /// What `post` can send, with to whom.
    pub fn sends(&self, post: usize) -> Vec<Contact> {
        self.contacts(post, true)
    }

    /// What `post` can be sent, with by whom.
    pub fn receives(&self, post: usize) -> Vec<Contact> {
        self.contacts(post, false)
    }

    fn contacts(&self, post: usize, is_sender: bool) -> Vec<Contact> {
        let own = &self.posts[post];
        let near = self.near(own);
        let found = self.channels.iter().flat_map(|edge| {
            let peers = near.iter().filter(move |&&number| {
                let peer = &self.posts[number];
                let (sender, receiver) = if is_sender { (own, peer) } else { (peer, own) };
                let has_roles = (sender.role, receiver.role) == (edge.from, edge.to);
                number != post && has_roles && linked(self.config, edge, sender, receiver)
            });
            let (message, descriptors) = (edge.message, edge.descriptors.unwrap_or("none"));
            peers.map(move |&peer| Contact { peer, message, descriptors })
        });
        found.collect()
    }

    /// The processes that one may have a channel to. A site's have none to those of another site, but its worker to the workers of
    /// sites on the same host.
    fn near(&self, own: &Post) -> BTreeSet<usize> {
        let Some((number, site)) = own.site.zip(own.site(self.config)) else {
            return (0..self.posts.len()).collect();
        };
        let workers = self.hosts.beside(site).into_iter().filter(|_| own.role == Role::Site);
        let beside = workers.map(|other| self.directory.sites[other].start);
        self.directory
            .server
            .iter()
            .copied()
            .chain(self.directory.sites[number].clone())
            .chain(beside)
            .collect()
    }
}

/// Whether the launcher connects these two, if their roles have a channel at all.
fn linked(config: &Config, edge: &Edge, one: &Post, two: &Post) -> bool {
    let takes = |post: &Post| post.service(config).is_some_and(|service| service.takes_connections);
    let relays = |front: &Post, other: &Post| {
        front.site(config).zip(other.site(config)).is_some_and(|(front, other)| config.relays(front, other))
    };
    let calls = |service: &Post, proxy: &Post| {
        let has = |(service, data): (&Service, &DataSource)| service.data.contains(&data.name);
        service.site == proxy.site && service.service(config).zip(proxy.data(config)).is_some_and(has)
    };
    let reads = |service: &Post, publisher: &Post| {
        service.site == publisher.site && service.service(config).is_some_and(|service| service.templates)
    };
    match (one.role, two.role) {
        (Role::Gate, Role::Service) => takes(two),
        (Role::Service, Role::Gate) => takes(one),
        (Role::Site, Role::Service) | (Role::Service, Role::Site) => one.site == two.site,
        // Connections go one way, and what is said of them the other.
        (Role::Site, Role::Site) if edge.message == "ToWorker" => relays(one, two),
        (Role::Site, Role::Site) => relays(two, one),
        (Role::Site, Role::Connector) | (Role::Connector, Role::Site) => {
            (one.site, one.service, one.data) == (two.site, two.service, two.data)
        }
        (Role::Broker, Role::Connector) | (Role::Connector, Role::Broker) => {
            (one.site, one.service) == (two.site, two.service)
        }
        (Role::DataProxy, Role::Connector) | (Role::Connector, Role::DataProxy) => {
            (one.site, one.data) == (two.site, two.data)
        }
        (Role::Service, Role::DataProxy) => calls(one, two),
        (Role::DataProxy, Role::Service) => calls(two, one),
        (Role::Service, Role::Publisher) => reads(one, two),
        (Role::Publisher, Role::Service) => reads(two, one),
        (Role::Site, Role::Signer | Role::Stapler) => one.site(config).is_some_and(|site| site.tls.is_some()),
        (Role::Signer | Role::Stapler, Role::Site) => two.site(config).is_some_and(|site| site.tls.is_some()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::assets::tests::{demo, parse};
    use super::*;
    use wire::CHANNELS;

    fn number(posts: &[Post], name: &str) -> usize {
        posts.iter().position(|post| post.name == name).unwrap()
    }

    #[derive(Clone, Copy)]
    enum Asked {
        Sends,
        Receives,
    }

    fn found(config: &Config, channels: &[Edge], name: &str, asked: Asked) -> Vec<(String, &'static str)> {
        let posts = posts(config);
        let (hosts, directory) = (Hosts::of(config), Directory::of(&posts));
        let topology = Topology { config, hosts: &hosts, channels, posts: &posts, directory: &directory };
        let contacts = match asked {
            Asked::Sends => topology.sends(number(&posts, name)),
            Asked::Receives => topology.receives(number(&posts, name)),
        };
        contacts.iter().map(|contact| (posts[contact.peer].name.clone(), contact.message)).collect()
    }

    fn names(name: &str, asked: Asked) -> Vec<String> {
        let found = found(&demo(), CHANNELS, name, asked);
        found.into_iter().map(|(name, message)| format!("{name} {message}")).collect()
    }

    #[test]
    fn a_site_is_near_to_its_own_and_to_those_that_it_does_tls_for() {
        let config = parse(
            "[[listen]]\naddress = \"127.0.0.1:1\"\ntls = true\n\
            [[site]]\nname = \"far\"\nhost = [\"b\"]\nroot = \"c\"\n\
            [[site]]\nname = \"front\"\nhost = [\"a\"]\nroot = \"a\"\ncertificates = [\"a.pem\"]\n\
            [[site]]\nname = \"shop\"\nhost = [\"a\"]\npath = \"/shop/\"\nroot = \"b\"\n\
            [[site.service]]\nname = \"s\"\npath = \"/shop/s\"\ncommand = [\"bin/s\"]\n",
        );
        let to = |name: &str, message: &str| {
            let all = found(&config, CHANNELS, name, Asked::Sends).into_iter();
            all.filter(|(_, sent)| *sent == message).map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            (to("front", "ToWorker"), to("shop", "ToWorker")),
            (vec!["shop".into()], vec!["shop/s".into()])
        );
        assert_eq!(to("far", "ToWorker"), [] as [&str; 0]);
        assert_eq!(to("gate", "ToWorker"), ["far", "front", "shop"]);
        assert_eq!(to("front", "SiteToSigner"), ["signer"]);
    }

    #[test]
    fn every_process_of_the_demo() {
        let names: Vec<String> = posts(&demo()).into_iter().map(|post| post.name).collect();
        let expected = [
            "bulkheadd",
            "gate",
            "packages",
            "packages/search",
            "packages/package",
            "packages/crash",
            "other",
            "logger",
            "admin",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn only_a_service_that_takes_connections_knows_gates() {
        let relayed =
            ["bulkheadd ChildToLauncher", "packages FromWorker", "admin ServiceToAdmin", "logger log batch"];
        assert_eq!(names("packages/search", Asked::Sends), relayed);
        let taking = names("packages/package", Asked::Sends);
        assert!(taking.contains(&"gate FromWorker".to_owned()), "{taking:?}");
    }

    #[test]
    fn a_site_knows_its_own_services_only() {
        assert_eq!(
            names("other", Asked::Sends),
            ["bulkheadd ChildToLauncher", "gate FromWorker", "logger log batch"]
        );
        let packages = names("packages", Asked::Sends);
        assert!(packages.contains(&"packages/crash ToWorker".to_owned()), "{packages:?}");
        assert_eq!(names("other", Asked::Receives), ["bulkheadd LauncherToSite", "gate ToWorker"]);
    }

    #[test]
    fn filters_know_gates_only() {
        let mut config = demo();
        config.conditioning.filters = vec![config::Filter {
            command: vec!["f".into()],
            program: "/f".into(),
            read: vec![],
            jit: false,
        }];
        for asked in [Asked::Sends, Asked::Receives] {
            let peers = found(&config, CHANNELS, "filter", asked).into_iter().map(|(name, _)| name);
            assert_eq!(peers.collect::<Vec<_>>(), ["gate"]);
        }
    }

    #[test]
    fn a_channel_that_is_not_in_the_table_is_nowhere() {
        let config = demo();
        let without: Vec<Edge> = CHANNELS.iter().filter(|edge| edge.message != "ToWorker").copied().collect();
        let found = found(&config, &without, "gate", Asked::Sends);
        assert!(found.iter().all(|(_, message)| *message != "ToWorker"));
        assert_eq!(found.len(), 2);
    }
}
