//! The same sites and services as other servers would run them, for comparison.
//!
//! Runs in: the `bulkhead` command; pure. Sees: the checked configuration. Never: assumes the worst of another
//! server: where its set-up is open, the milder one is taken, and it is said which.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3 and figure 2
//! (Apache, and Haboob as the server of one process).

use std::rc::Rc;

use config::{Config, Site};

use super::assets::{ERROR_LOG, service_name};
use super::inventory::{Assets, Reaches};
use super::model::{Asset, AssetKind, Circle, Drag, ExplainedProcess, Loss, Model, Reach};

/// A server beside ours.
#[derive(Debug)]
pub struct Other {
    /// What it is called.
    pub name: &'static str,
    /// What is taken for granted of its set-up.
    pub assumed: &'static str,
    /// Its processes.
    pub model: Model,
}

/// The servers that ours is compared with.
pub fn all(config: &Config, assets: &Assets) -> Vec<Other> {
    let model = |(processes, circles)| Model { assets: assets.clone(), processes, circles };
    vec![
        Other {
            name: "Apache prefork",
            assumed: "Services run inside its children (as with mod_php), all under one uid; any child may \
                serve any site. Logs are open for appending. No child can trace another.",
            model: model((apache(assets), Vec::new())),
        },
        Other {
            name: "nginx + php-fpm",
            assumed: "The nginx workers and one php-fpm pool per site run as www-data, the default; one \
                php-fpm master, so one opcode cache for all pools. Logs are open for appending.",
            model: model(nginx(config, assets)),
        },
        Other {
            name: "one process",
            assumed: "One process under one uid, not root, serves every site and runs every service.",
            model: model((vec![single(assets)], Vec::new())),
        },
    ]
}

fn root(name: &str, assets: &Assets) -> ExplainedProcess {
    let reaches = Reaches::of(assets).each(|_| true, Loss::Whole, "it is root").done();
    ExplainedProcess { is_root: true, ..process_of(name, reaches) }
}

fn process(name: &str, reaches: Reaches<'_>) -> ExplainedProcess {
    process_of(name, reaches.done())
}

fn process_of(name: &str, reaches: Vec<Reach>) -> ExplainedProcess {
    ExplainedProcess {
        name: name.into(),
        is_root: false,
        reaches,
        common: None,
        drags: Vec::new(),
        circle: None,
    }
}

/// Whether it is of a database: with others, who answers for a service has the password itself, and all that it opens.
fn is_of_database(asset: &Asset) -> bool {
    matches!(
        asset.kind,
        AssetKind::Data | AssetKind::Table | AssetKind::Password | AssetKind::ClientKey | AssetKind::Token
    )
}

/// Whether these are what users send to a service, not to a site's files.
fn is_of_service(asset: &Asset) -> bool {
    asset.name.contains('/')
}

fn apache(assets: &Assets) -> Vec<ExplainedProcess> {
    let runs = |asset: &Asset| matches!(asset.kind, AssetKind::Site | AssetKind::Service);
    let users = |asset: &Asset| asset.kind == AssetKind::Users;
    let child = Reaches::of(assets)
        .each(runs, Loss::Whole, "every child has the part of every site and service")
        .each(|asset| asset.kind == AssetKind::Keys, Loss::Whole, "it holds the keys of all sites")
        .each(|asset| asset.kind == AssetKind::Files, Loss::Whole, "its uid reads the files of all")
        .each(is_of_database, Loss::Whole, "it logs in for every service")
        .each(
            |asset| users(asset) && is_of_service(asset),
            Loss::Whole,
            "all children run services from one opcode cache, which each may write",
        )
        .each(
            |asset| users(asset) && !is_of_service(asset),
            Loss::Part,
            "connections that it accepts, of any site",
        )
        .each(|asset| asset.kind == AssetKind::Log, Loss::Part, "it adds lines to any log");
    vec![root("httpd, root", assets), process("httpd child", child)]
}

fn nginx(config: &Config, assets: &Assets) -> (Vec<ExplainedProcess>, Vec<Circle>) {
    let worker = Reaches::of(assets)
        .each(|asset| asset.kind == AssetKind::Site, Loss::Whole, "every worker serves every site")
        .each(|asset| asset.kind == AssetKind::Keys, Loss::Whole, "it holds the keys of all sites")
        .each(|asset| asset.kind == AssetKind::Files, Loss::Whole, "its uid reads the files of all")
        .each(|asset| asset.kind == AssetKind::Users, Loss::Part, "connections that it accepts, of any site")
        .each(|asset| asset.kind == AssetKind::Log, Loss::Part, "it adds lines to any log");
    let mut processes = vec![root("nginx, root", assets), process("nginx worker", worker)];
    let pools = pools(config, assets);
    if pools.is_empty() {
        return (processes, Vec::new());
    }
    processes.push(root("php-fpm, root", assets));
    let members: Vec<usize> = (processes.len()..processes.len() + pools.len()).collect();
    let how: Rc<str> = "its uid may tell any pool what to run".into();
    processes[1].drags = members.iter().map(|&process| Drag { process, how: how.clone() }).collect();
    processes.extend(pools);
    let how = "same uid and opcode cache: a pool may tell another what to run".into();
    (processes, vec![Circle { members, how }])
}

/// A pool for each site that has services, all in one circle.
fn pools(config: &Config, assets: &Assets) -> Vec<ExplainedProcess> {
    let is_file = |asset: &Asset| asset.kind == AssetKind::Files;
    let files = Reaches::of(assets).each(is_file, Loss::Whole, "its uid reads the files of all").done();
    let files: Rc<[Reach]> = files.into();
    let pool = |(number, site): (usize, &Site)| {
        let mut own = Reaches::of(assets);
        for service in &site.services {
            let name = service_name(site, service);
            own = own.one(AssetKind::Service, &name, Loss::Whole, "it runs in this pool").one(
                AssetKind::Users,
                &name,
                Loss::Whole,
                "the pool's workers share an opcode cache, which each may write",
            );
        }
        own = own.of_site(number, is_of_database, Loss::Whole, "its services log in themselves").one(
            AssetKind::Log,
            ERROR_LOG,
            Loss::Part,
            "what it prints goes into the error log",
        );
        let common = Some(files.clone());
        ExplainedProcess { common, circle: Some(0), ..process(&format!("pool {}", site.name), own) }
    };
    let sites = config.sites.iter().map(|site| &**site).enumerate();
    sites.filter(|(_, site)| !site.services.is_empty()).map(pool).collect()
}

fn single(assets: &Assets) -> ExplainedProcess {
    let all = |asset: &Asset| asset.kind != AssetKind::Host;
    process("server", Reaches::of(assets).each(all, Loss::Whole, "it does everything itself"))
}

#[cfg(test)]
mod tests {
    use super::super::assets::{self, tests::demo, tests::parse};
    use super::super::granted::{GrantedCalls, tests::shop};
    use super::*;

    fn losses(other: &Other, process: &str) -> Vec<(String, Option<Loss>)> {
        let number = other.model.processes.iter().position(|known| known.name == process).unwrap();
        let losses = other.model.losses(number);
        let name = |asset: &Asset| format!("{} {}", asset.kind.name(), asset.name);
        let names = other.model.assets.iter().map(name);
        let loss = |asset| losses.iter().find(|reach| reach.asset == asset).map(|reach| reach.loss);
        names.enumerate().map(|(asset, name)| (name, loss(asset))).collect()
    }

    fn of(losses: &[(String, Option<Loss>)], name: &str) -> Option<Loss> {
        losses.iter().find(|(known, _)| known == name).unwrap().1
    }

    #[test]
    fn an_apache_child_falls_with_every_service_and_no_root() {
        let config = demo();
        let all = all(&config, &assets::of(&config, &GrantedCalls::default()));
        let child = losses(&all[0], "httpd child");
        for name in ["service packages/crash", "users packages/search", "files other", "site other"] {
            assert_eq!(of(&child, name), Some(Loss::Whole), "{name}");
        }
        assert_eq!(of(&child, "users other"), Some(Loss::Part));
        assert_eq!(of(&child, "log error.log"), Some(Loss::Part));
        assert_eq!(of(&child, "host root on this machine"), None);
        assert_eq!(of(&child, "orders stop, relaunch"), None);
        assert!(all[0].model.processes[0].is_root);
    }

    #[test]
    fn pools_of_one_uid_fall_together_and_with_nginx() {
        let two = "[[listen]]\naddress = \"127.0.0.1:80\"\n\
            [[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"a\"\n\
            [[site.service]]\nname = \"x\"\npath = \"/x\"\ncommand = [\"x\"]\nread = [\"secret\"]\n\
            [[site]]\nname = \"b\"\nhost = [\"b\"]\n\
            [[site.service]]\nname = \"y\"\npath = \"/y\"\ncommand = [\"y\"]\n";
        let config = parse(two);
        let all = all(&config, &assets::of(&config, &GrantedCalls::default()));
        let pool = losses(&all[1], "pool b");
        assert_eq!(of(&pool, "service a/x"), Some(Loss::Whole));
        assert_eq!(of(&pool, "files secret"), Some(Loss::Whole));
        assert_eq!(of(&pool, "site a"), None);
        assert_eq!(of(&pool, "users a"), None);
        assert_eq!(of(&losses(&all[1], "nginx worker"), "users b/y"), Some(Loss::Whole));
    }

    #[test]
    fn without_services_there_is_no_php() {
        let files = "[[listen]]\naddress = \"127.0.0.1:80\"\n\
            [[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"a\"\n";
        let config = parse(files);
        let all = all(&config, &assets::of(&config, &GrantedCalls::default()));
        assert_eq!(all[1].model.processes.len(), 2);
        assert_eq!(all[1].model.summary().processes, 1);
    }

    #[test]
    fn who_runs_services_has_their_databases() {
        let (config, granted) = shop("postgresql");
        let all = all(&config, &assets::of(&config, &granted));
        for (server, process) in [(0, "httpd child"), (1, "nginx worker"), (1, "pool a"), (2, "server")] {
            let found = losses(&all[server], process);
            for name in ["data a/catalog", "table a/catalog.orders", "password a/catalog"] {
                assert_eq!(of(&found, name), Some(Loss::Whole), "{process}: {name}");
            }
        }
    }

    #[test]
    fn one_process_loses_all_but_root() {
        let config = demo();
        let all = all(&config, &assets::of(&config, &GrantedCalls::default()));
        let blast = all[2].model.blast(0);
        assert_eq!((blast.whole, blast.part), (blast.total - 1, 0));
    }
}
