//! What falls with each process of the demo, and with sites that share a host.
//!
//! Runs in: `cargo test`. Sees: the demo's configuration. Never: runs a server.

use super::super::assets::{self, tests::demo, tests::parse};
use super::super::contacts::posts;
use super::super::granted::tests::shop;
use super::*;
use wire::CHANNELS;

fn build(config: &Config, channels: &[Edge], uids: &Uids) -> Model {
    built(config, channels, uids, &GrantedCalls::default(), None)
}

fn built(
    config: &Config,
    channels: &[Edge],
    uids: &Uids,
    granted: &GrantedCalls,
    chosen: Option<usize>,
) -> Model {
    let (hosts, assets) = (Hosts::of(config), assets::of(config, granted));
    model(Facts { config, hosts: &hosts, channels, assets: &assets, granted }, &posts(config), uids, chosen)
}

fn number(model: &Model, name: &str) -> usize {
    model.processes.iter().position(|process| process.name == name).unwrap()
}

/// What is lost with `process`, as `kind name`, with a `~` before it if in part.
fn losses(model: &Model, process: &str) -> Vec<String> {
    let found = model.losses(number(model, process));
    let shown = found.iter().map(|reach| {
        let asset = &model.assets[reach.asset];
        let sign = if reach.loss == Loss::Part { "~" } else { "" };
        format!("{sign}{} {}", asset.kind.name(), asset.name)
    });
    shown.collect()
}

fn demo_losses(process: &str) -> Vec<String> {
    losses(&build(&demo(), CHANNELS, &Uids::new()), process)
}

#[test]
fn with_the_launcher_everything() {
    let model = build(&demo(), CHANNELS, &Uids::new());
    let blast = model.blast(number(&model, "bulkheadd"));
    assert_eq!((blast.whole, blast.part), (blast.total, 0));
    assert_eq!(model.falls(0).len(), model.processes.len());
}

#[test]
fn with_a_gate_no_asset_altogether() {
    let gate = demo_losses("gate");
    assert!(gate.iter().all(|loss| loss.starts_with('~')), "{gate:?}");
    assert_eq!(gate.iter().filter(|loss| loss.starts_with("~users")).count(), 5);
    assert_eq!(gate.iter().filter(|loss| loss.starts_with("~log")).count(), 4);
    assert_eq!(gate.len(), 9);
}

#[test]
fn with_a_site_its_files_users_and_what_it_relays() {
    let expected = [
        "site packages",
        "files public",
        "users packages",
        "users packages/search",
        "~users packages/package",
        "users packages/crash",
        "~log packages.access.log",
        "~log error.log",
    ];
    assert_eq!(demo_losses("packages"), expected);
    let other = ["site other", "files other", "users other", "~log other.access.log", "~log error.log"];
    assert_eq!(demo_losses("other"), other);
}

#[test]
fn with_a_service_itself_and_what_it_reads() {
    let expected = [
        "service packages/search",
        "users packages/search",
        "files data",
        "~log packages.access.log",
        "~log error.log",
    ];
    assert_eq!(demo_losses("packages/search"), expected);
}

#[test]
fn connections_that_are_handed_over_have_their_price() {
    let expected = [
        "~users packages",
        "~users packages/search",
        "files data",
        "service packages/package",
        "users packages/package",
        "~users packages/crash",
        "~log packages.access.log",
        "~log error.log",
    ];
    let mut found = demo_losses("packages/package");
    let mut expected = expected.map(str::to_owned).to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn with_the_logger_the_logs_and_with_admin_the_orders() {
    let logger = demo_losses("logger");
    assert_eq!(logger.len(), 4);
    assert!(logger.iter().all(|loss| loss.starts_with("log ")), "{logger:?}");
    let admin = demo_losses("admin");
    assert_eq!(admin.last().unwrap(), "orders stop, relaunch");
    assert_eq!(admin[..admin.len() - 1], ["~log error.log"]);
}

#[test]
fn sites_of_one_host_and_address_share_connections() {
    let two = |listen: &str| {
        parse(&format!(
            "[[listen]]\naddress = \"127.0.0.1:80\"\n[[listen]]\naddress = \"127.0.0.1:81\"\n\
            [[site]]\nname = \"a\"\nhost = [\"h\"]\nroot = \"a\"\nlisten = [\"127.0.0.1:80\"]\n\
            [[site]]\nname = \"b\"\nhost = [\"h\"]\nroot = \"b\"\npath = \"/b/\"\n{listen}"
        ))
    };
    let both = build(&two(""), CHANNELS, &Uids::new());
    assert!(losses(&both, "a").contains(&"~users b".to_owned()));
    let apart = build(&two("listen = [\"127.0.0.1:81\"]\n"), CHANNELS, &Uids::new());
    assert!(!losses(&apart, "a").contains(&"~users b".to_owned()));
}

#[test]
fn who_reads_a_folder_reads_what_is_inside() {
    let config = parse(
        "[[listen]]\naddress = \"127.0.0.1:80\"\n\
        [[site]]\nname = \"a\"\nhost = [\"h\"]\nroot = \"public\"\n\
        [[site.service]]\nname = \"x\"\npath = \"/x\"\ncommand = [\"x\"]\nread = [\"public/data\"]\n",
    );
    let model = build(&config, CHANNELS, &Uids::new());
    let files =
        |name| losses(&model, name).into_iter().filter(|loss| loss.contains("files ")).collect::<Vec<_>>();
    assert_eq!(files("a"), ["files public", "files public/data"]);
    assert_eq!(files("a/x"), ["~files public", "files public/data"]);
}

/// Sites a and b, and what each of them says besides.
fn two_sites(a: &str, b: &str) -> Config {
    parse(&format!(
        "[[listen]]\naddress = \"127.0.0.1:80\"\n\
        [[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"a\"\n{a}\n\
        [[site]]\nname = \"b\"\nhost = [\"b\"]\nroot = \"b\"\n{b}\n"
    ))
}

#[test]
fn passwords_fall_with_the_workers_that_check_by_them() {
    let auth = |file: &str| format!("auth = {{ users = \"{file}\", realm = \"r\" }}");
    let of_a_route = format!("[[site.route]]\npath = \"/x/\"\n{}", auth("keys/b"));
    let reads = "[[site.service]]\nname = \"x\"\npath = \"/x\"\ncommand = [\"x\"]\nread = [\"keys\"]\n";
    let config = two_sites(&format!("{}\n{reads}", auth("keys/a")), &of_a_route);
    let model = build(&config, CHANNELS, &Uids::new());
    let keys =
        |name| losses(&model, name).into_iter().filter(|loss| loss.contains("keys")).collect::<Vec<_>>();
    assert_eq!(keys("a"), ["files keys/a", "~files keys"]);
    assert_eq!(keys("b"), ["~files keys", "files keys/b"]);
    assert_eq!(keys("a/x"), ["files keys/a", "files keys", "files keys/b"]);
    assert!(keys("gate").is_empty() && keys("logger").is_empty());
    let shared = two_sites(&auth("keys/one"), &auth("keys/one"));
    let assets = assets::of(&shared, &GrantedCalls::default());
    assert_eq!(assets.iter().filter(|asset| asset.name == "keys/one").count(), 1);
}

#[test]
fn sites_of_one_account_fall_together() {
    let user = "user = \"www\"\ndanger_shared_user = true";
    let config = two_sites(user, user);
    let falls = |config: &Config, uids: &Uids, name: &str| {
        let model = build(config, CHANNELS, uids);
        let fallen = model.falls(number(&model, name));
        fallen
            .into_iter()
            .skip(1)
            .map(|drag| (model.processes[drag.process].name.clone(), drag.how.to_string()))
            .collect::<Vec<_>>()
    };
    let how = "both run as the account www, by `user`".to_owned();
    assert_eq!(falls(&config, &Uids::new(), "a"), [("b".to_owned(), how)]);
    assert!(falls(&config, &Uids::new(), "logger").is_empty());
    // A server that runs says which uids there are, as in a rootless run, which has no accounts.
    let uids = Uids::from([("a".into(), 1000), ("b".into(), 1001), ("logger".into(), 1002)]);
    assert!(falls(&config, &uids, "a").is_empty());
    assert!(falls(&two_sites("user = \"www\"", "user = \"other\""), &Uids::new(), "a").is_empty());
    assert!(falls(&two_sites("", ""), &Uids::new(), "a").is_empty());
}

#[test]
fn a_uid_that_is_shared_separates_nothing() {
    let config = demo();
    let names = posts(&config).into_iter().map(|post| (post.name, 65_534));
    let rootless = build(&config, CHANNELS, &names.collect());
    let blast = rootless.blast(number(&rootless, "packages/crash"));
    // All but the machine itself, of which nobody has more than the user's part.
    assert_eq!((blast.whole, blast.part), (blast.total - 1, 1));
    let two = Uids::from([("packages".into(), 51_001), ("other".into(), 51_001)]);
    let found = losses(&build(&config, CHANNELS, &two), "other");
    assert!(found.contains(&"files public".to_owned()), "{found:?}");
    assert!(!found.contains(&"service packages/search".to_owned()), "{found:?}");
}

/// What is said of one process is what is said of it among all.
#[test]
fn one_process_alone_loses_the_same() {
    let granted = GrantedCalls::default();
    let pair = Uids::from([("packages".into(), 51_001), ("other".into(), 51_001)]);
    let rootless: Uids = posts(&demo()).into_iter().map(|post| (post.name, 1000)).collect();
    for uids in [Uids::new(), pair, rootless] {
        let all = build(&demo(), CHANNELS, &uids);
        for number in 0..all.processes.len() {
            let one = built(&demo(), CHANNELS, &uids, &granted, Some(number));
            assert_eq!((one.losses(number), one.falls(number)), (all.losses(number), all.falls(number)));
        }
    }
}

/// Every process and asset beside others does not make it more work: neither are looked through for one name.
#[test]
fn ten_times_as_many_sites_are_ten_times_as_much_to_say() {
    let count = |sites: usize| {
        let site = |number| {
            format!("[[site]]\nname = \"s{number}\"\nhost = [\"h{number}\"]\nroot = \"r/s{number}\"\n")
        };
        let config = parse(
            &("[[listen]]\naddress = \"127.0.0.1:1\"\n".to_owned()
                + &(0..sites).map(site).collect::<String>()),
        );
        let model = build(&config, CHANNELS, &Uids::new());
        let reaches: usize = model.processes.iter().map(|process| process.reaches.len()).sum();
        let rootless: Uids = posts(&config).into_iter().map(|post| (post.name, 1000)).collect();
        let drags: usize =
            build(&config, CHANNELS, &rootless).processes.iter().map(|process| process.drags.len()).sum();
        (reaches, drags)
    };
    let (few, many) = (count(10), count(100));
    assert!(many.0 < 11 * few.0 && many.1 < 11 * few.1, "{few:?}, {many:?}");
}

#[test]
fn a_right_goes_with_its_channel() {
    let config = demo();
    let without = |from: Role, to: Role| -> Model {
        let kept = CHANNELS.iter().filter(|edge| (edge.from, edge.to) != (from, to));
        build(&config, &kept.copied().collect::<Vec<_>>(), &Uids::new())
    };
    let gate = losses(&without(Role::Gate, Role::Logger), "gate");
    assert!(gate.iter().all(|loss| loss.starts_with("~users")), "{gate:?}");
    let admin = losses(&without(Role::Admin, Role::Launcher), "admin");
    assert_eq!(admin, ["~log error.log"]);
    let site = losses(&without(Role::Site, Role::Service), "packages");
    assert!(!site.contains(&"users packages/search".to_owned()), "{site:?}");
    let service = losses(&without(Role::Gate, Role::Service), "packages/package");
    assert!(!service.contains(&"~users packages".to_owned()), "{service:?}");
}

#[test]
fn a_database_falls_with_its_proxy_and_in_part_with_those_who_call_it() {
    let site = "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\nroot = \"public\"\n";
    let data = "[[site.data]]\nname = \"catalog\"\nstatements = \"catalog.sql\"\n";
    let service = |name: &str, more: &str| {
        format!("[[site.service]]\nname = \"{name}\"\npath = \"/{name}\"\ncommand = [\"bin/{name}\"]\n{more}")
    };
    let services = service("s", "data = [\"catalog\"]\n") + &service("t", "");
    let config = parse(&format!("[[listen]]\naddress = \"127.0.0.1:1\"\n{site}{data}{services}"));
    let model = build(&config, CHANNELS, &Uids::new());
    let token = "token a/s for a/catalog";
    assert_eq!(losses(&model, "a/catalog:data"), ["data a/catalog", token, "~log error.log"]);
    assert!(losses(&model, "a/s").contains(&token.to_owned()));
    assert!(losses(&model, "a/s").contains(&"~data a/catalog".to_owned()));
    for other in ["a/t", "a", "gate", "logger", "admin"] {
        let found = losses(&model, other);
        assert!(!found.iter().any(|loss| loss.ends_with("data a/catalog")), "{other}: {found:?}");
    }
}

#[test]
fn a_database_at_a_server_falls_with_the_connector_as_well() {
    let source = "[[site.data]]\nname = \"catalog\"\nstatements = \"catalog.sql\"\nengine = \"postgresql\"\n\
                  server = \"unix:/run/s\"\ndatabase = \"shop\"\nuser = \"shop\"\n";
    let service =
        "[[site.service]]\nname = \"s\"\npath = \"/s\"\ncommand = [\"bin/s\"]\ndata = [\"catalog\"]\n";
    let site = "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\nroot = \"public\"\n";
    let config = parse(&format!("[[listen]]\naddress = \"127.0.0.1:1\"\n{site}{source}{service}"));
    let model = build(&config, CHANNELS, &Uids::new());
    let proxy = ["data a/catalog", "token a/s for a/catalog", "~log error.log"];
    assert_eq!(losses(&model, "a/catalog:data"), proxy);
    assert_eq!(losses(&model, "a/catalog:data:connector"), ["data a/catalog", "~log error.log"]);
}

#[test]
fn a_database_of_another_machine_falls_in_part_and_the_key_with_its_proxy_alone() {
    let source = "[[site.data]]\nname = \"catalog\"\nengine = \"remote\"\nserver = \"db.test:443\"\n\
                  server_ca = \"ca.pem\"\ncertificate = \"web.pem\"\nkey = \"web.key\"\n";
    let service =
        "[[site.service]]\nname = \"s\"\npath = \"/s\"\ncommand = [\"bin/s\"]\ndata = [\"catalog\"]\n";
    let site = "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\nroot = \"public\"\n";
    let config = parse(&format!("[[listen]]\naddress = \"127.0.0.1:1\"\n{site}{source}{service}"));
    let model = build(&config, CHANNELS, &Uids::new());
    let token = "token a/s for a/catalog";
    let proxy = ["~data a/catalog", "client_key a/catalog", token, "~log error.log"];
    assert_eq!(losses(&model, "a/catalog:data"), proxy);
    for other in ["a", "a/s", "gate", "a/catalog:data:connector"] {
        assert!(!losses(&model, other).iter().any(|loss| loss.contains("client_key")), "{other}");
    }
}

#[test]
fn what_is_granted_to_a_door_falls_with_the_worker_of_its_site() {
    let source = "[[site.data]]\nname = \"catalog\"\nstatements = \"catalog.sql\"\n";
    let door = "[[site.service]]\nname = \"s\"\nremote = true\ndata = [\"catalog\"]\n";
    let site =
        "[[site]]\nname = \"a\"\nhost = [\"a.test\"]\ncertificates = [\"a.pem\"]\nclient_ca = \"ca.pem\"\n";
    let config = parse(&format!("[[listen]]\naddress = \"127.0.0.1:1\"\ntls = true\n{site}{source}{door}"));
    let model = build(&config, CHANNELS, &Uids::new());
    for one in ["a", "a/s"] {
        assert!(losses(&model, one).contains(&"~data a/catalog".to_owned()), "{one}");
    }
}

/// Which process has which key: the password, the tokens; and which tables a service may touch.
#[test]
fn keys_and_tables_of_a_database_are_reached_by_few() {
    for engine in ["postgresql", "mysql"] {
        let (config, granted) = shop(engine);
        let model = built(&config, CHANNELS, &Uids::new(), &granted, None);
        let of = |process: &str| {
            let kinds = ["data ", "table ", "password ", "token "];
            let is_of_database =
                |loss: &String| kinds.iter().any(|kind| loss.trim_start_matches('~').starts_with(kind));
            losses(&model, process).into_iter().filter(is_of_database).collect::<Vec<_>>()
        };
        let tables = ["table a/catalog.articles", "table a/catalog.makers", "table a/catalog.orders"];
        let proxy = ["data a/catalog", tables[0], tables[1], tables[2], "password a/catalog"];
        let tokens = ["token a/search for a/catalog", "token a/shop for a/catalog"];
        assert_eq!(of("a/catalog:data"), [&proxy[..], &tokens].concat());
        assert_eq!(of("a/catalog:data:connector"), [&proxy[..4], &["~password a/catalog"]].concat());
        assert_eq!(
            of("a/search"),
            ["~data a/catalog", "~table a/catalog.articles", "~table a/catalog.makers", tokens[0]]
        );
        for other in ["a", "gate", "logger", "admin"] {
            assert_eq!(of(other), [] as [&str; 0], "{other}");
        }
        let how = |name: &str| {
            let asset = model.assets.iter().position(|asset| asset.name == name).unwrap();
            let losses = model.losses(number(&model, "a/shop"));
            losses.iter().find(|reach| reach.asset == asset).unwrap().how.to_string()
        };
        assert_eq!(how("a/catalog.orders"), "it calls statements that change it: order_it, buy");
        assert_eq!(how("a/catalog.makers"), "it calls statements that read it: article");
        assert!(
            how("a/catalog")
                .starts_with("`data`: it calls the 3 statements that are granted to it, of which 2 may")
        );
    }
}

#[test]
fn who_owns_a_publisher_writes_pages_of_the_services_that_have_its_templates() {
    let site = "[[site]]\nname = \"a\"\nhost = [\"*\"]\n[site.templates]\nfolder = \"t\"\n";
    let service = |name, templates| {
        format!(
            "[[site.service]]\nname = \"{name}\"\npath = \"/{name}\"\ncommand = [\"bin/s\"]\ntemplates = {templates}\n"
        )
    };
    let services = service("s", true) + &service("t", false);
    let config = parse(&format!("[[listen]]\naddress = \"127.0.0.1:1\"\n{site}{services}"));
    let model = build(&config, CHANNELS, &Uids::new());
    assert_eq!(losses(&model, "a:templates"), ["~users a/s", "~log error.log"]);
}

#[test]
fn every_message_of_the_table_is_known_here() {
    let known = |edge: &Edge| match edge.message {
        "ToWorker" | "FromWorker" | "AdminToLauncher" | "ChildToLauncher" => true,
        "log batch" => edge.to == Role::Logger,
        "SiteToSigner" | "SignerToSite" | "ToConnector" | "FromConnector" => true,
        "BrokerToConnector" | "ConnectorToBroker" => true,
        "ServiceToDataProxy" | "DataProxyToService" => true,
        // The templates are public; what is compiled and what is not says nothing.
        "PublisherToService" | "ServiceToPublisher" => true,
        // Whoever owns the admin role gives orders anyway.
        "AdminToService" | "ServiceToAdmin" => true,
        // Certificates are public, and what is stapled is for clients.
        "SignerToStapler" | "StaplerToSite" => true,
        message => edge.from == Role::Launcher && message.starts_with("LauncherTo"),
    };
    for edge in CHANNELS {
        assert!(known(edge), "{edge:?} is new: what does it give to who owns its sender or its receiver?");
    }
    // A pair of roles that are connected for the first time may open a way that no rule here speaks of.
    assert_eq!(CHANNELS.len(), 59, "the table has changed: look whether the rules still say everything");
}

#[test]
fn a_site_with_the_certificate_of_a_host_has_the_users_of_sites_below_it() {
    let config = parse(
        "[[listen]]\naddress = \"127.0.0.1:1\"\ntls = true\n[[site]]\nname = \"front\"\nhost = [\"a\"]\nroot = \"a\"\n\
         certificates = [\"a.pem\"]\n[[site]]\nname = \"shop\"\nhost = [\"a\"]\npath = \"/shop/\"\nroot = \"b\"\n",
    );
    let model = build(&config, CHANNELS, &Uids::new());
    let has = |process: &str, what: &str| losses(&model, process).contains(&what.to_owned());
    assert!(has("front", "users shop"), "{:?}", losses(&model, "front"));
    assert!(!has("shop", "users front"), "{:?}", losses(&model, "shop"));
    assert!(!has("front", "site shop") && !has("front", "files b"));
    let without: Vec<Edge> = CHANNELS.iter().filter(|edge| edge.from != edge.to).copied().collect();
    let model = build(&config, &without, &Uids::new());
    assert!(!losses(&model, "front").contains(&"users shop".to_owned()));
}

#[test]
fn the_signer_has_every_key_and_a_site_none() {
    let config = parse(
        "[[listen]]\naddress = \"127.0.0.1:1\"\ntls = true\n[[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"a\"\n\
         certificates = [\"a.pem\"]\n",
    );
    let model = build(&config, CHANNELS, &Uids::new());
    let has = |process: &str| losses(&model, process).contains(&"keys a".to_owned());
    assert!(has("signer") && has("bulkheadd"));
    assert!(!has("a") && !has("gate") && !has("stapler"));
    let others = super::super::others::all(&config, &model.assets);
    for (other, worker) in others.iter().zip(["httpd child", "nginx worker", "server"]) {
        assert!(losses(&other.model, worker).contains(&"keys a".to_owned()), "{worker}");
    }
}
