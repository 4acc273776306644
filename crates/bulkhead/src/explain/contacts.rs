//! Who is there, and who can send what to whom: `wire::CHANNELS`, spelled out for one configuration.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration. Never: knows of a channel that the
//! table has not.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use config::{Config, Site};
use supervisor::setup::links::are_linked;
use supervisor::setup::process_table::process_table;
use supervisor::spawn::process_spec::ProcessSpec;
use wire::{Edge, Role};

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

/// Every process that the launcher plans, in the order of tables: outermost first. All gates are one, as they have one
/// uid; all filters are one, as each of them has the same to lose.
pub fn posts(config: &Config) -> Vec<ProcessSpec> {
    // Only uids can be missing, and none are asked for.
    let mut posts = process_table(config, 1, None).unwrap_or_default();
    posts.retain(|post| post.is_first() && (post.role != Role::Filter || post.index == 0));
    posts.push(ProcessSpec::of_the_server(Role::Launcher, Role::Launcher.name(), 0));
    posts.sort_by_cached_key(|post| place(config, post));
    posts
}

/// Where a process stands: by the order in which roles go, as a role that passes work on stands before the one that
/// does it. Those of a site stand together, and what works for a service stands by the service.
fn place(config: &Config, post: &ProcessSpec) -> impl Ord + use<> {
    let stop_place = |role: Role| Role::STOP_ORDER.iter().position(|&other| other == role);
    let of = match (post.service(config), post.data_source(config)) {
        _ if post.role == Role::Site => 0,
        (Some(_), _) => 1,
        (_, Some(_)) => 2,
        _ => 3,
    };
    let level = stop_place(if post.role.is_of_a_site() { Role::Site } else { post.role });
    (level, post.site, of, post.index, stop_place(post.role))
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
    pub fn of(posts: &[ProcessSpec]) -> Self {
        let mut directory = Self { sites: Vec::new(), server: Vec::new() };
        for (number, post) in posts.iter().enumerate() {
            match post.site_number() {
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
    pub posts: &'a [ProcessSpec],
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
                number != post && has_roles && are_linked(self.config, edge, sender, receiver)
            });
            let (message, descriptors) = (edge.message, edge.descriptors.unwrap_or("none"));
            peers.map(move |&peer| Contact { peer, message, descriptors })
        });
        found.collect()
    }

    /// The processes that one may have a channel to. A site's have none to those of another site, but its worker to the
    /// workers of sites on the same host.
    fn near(&self, own: &ProcessSpec) -> BTreeSet<usize> {
        let Some((number, site)) = own.site_number().zip(own.site(self.config)) else {
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

#[cfg(test)]
mod tests {
    use super::super::assets::tests::{demo, parse};
    use super::*;
    use wire::CHANNELS;

    fn number(posts: &[ProcessSpec], name: &str) -> usize {
        posts.iter().position(|post| post.name == name).unwrap()
    }

    #[derive(Clone, Copy)]
    enum ContactQuestion {
        Sends,
        Receives,
    }

    fn found(
        config: &Config,
        channels: &[Edge],
        name: &str,
        asked: ContactQuestion,
    ) -> Vec<(String, &'static str)> {
        let posts = posts(config);
        let (hosts, directory) = (Hosts::of(config), Directory::of(&posts));
        let topology = Topology { config, hosts: &hosts, channels, posts: &posts, directory: &directory };
        let contacts = match asked {
            ContactQuestion::Sends => topology.sends(number(&posts, name)),
            ContactQuestion::Receives => topology.receives(number(&posts, name)),
        };
        contacts.iter().map(|contact| (posts[contact.peer].name.clone(), contact.message)).collect()
    }

    fn names(name: &str, asked: ContactQuestion) -> Vec<String> {
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
            let all = found(&config, CHANNELS, name, ContactQuestion::Sends).into_iter();
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
            "admin",
            "logger",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn only_a_service_that_takes_connections_knows_gates() {
        let relayed =
            ["bulkheadd ChildToLauncher", "packages FromWorker", "admin ServiceToAdmin", "logger log batch"];
        assert_eq!(names("packages/search", ContactQuestion::Sends), relayed);
        let taking = names("packages/package", ContactQuestion::Sends);
        assert!(taking.contains(&"gate FromWorker".to_owned()), "{taking:?}");
    }

    #[test]
    fn a_site_knows_its_own_services_only() {
        assert_eq!(
            names("other", ContactQuestion::Sends),
            ["bulkheadd ChildToLauncher", "gate FromWorker", "logger log batch"]
        );
        let packages = names("packages", ContactQuestion::Sends);
        assert!(packages.contains(&"packages/crash ToWorker".to_owned()), "{packages:?}");
        assert_eq!(names("other", ContactQuestion::Receives), ["bulkheadd LauncherToSite", "gate ToWorker"]);
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
        for asked in [ContactQuestion::Sends, ContactQuestion::Receives] {
            let peers = found(&config, CHANNELS, "filter", asked).into_iter().map(|(name, _)| name);
            assert_eq!(peers.collect::<Vec<_>>(), ["gate"]);
        }
    }

    #[test]
    fn a_channel_that_is_not_in_the_table_is_nowhere() {
        let config = demo();
        let without: Vec<Edge> = CHANNELS.iter().filter(|edge| edge.message != "ToWorker").copied().collect();
        let found = found(&config, &without, "gate", ContactQuestion::Sends);
        assert!(found.iter().all(|(_, message)| *message != "ToWorker"));
        assert_eq!(found.len(), 2);
    }
}
