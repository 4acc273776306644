//! The table of who may talk to whom: what must not be in it, and that docs/internals/roles.md shows it as it is.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes the table into docs/internals/roles.md.

use std::collections::HashSet;
use std::path::PathBuf;

use wire::{CHANNELS, Edge, Role};

fn edges(chosen: impl Fn(&Edge) -> bool) -> Vec<(Role, Role, &'static str)> {
    let chosen = CHANNELS.iter().filter(|edge| chosen(edge));
    chosen.map(|edge| (edge.from, edge.to, edge.message)).collect()
}

#[test]
fn the_page_shows_the_tables() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/roles.md");
    let tables = [
        ("processes", wire::render_processes()),
        ("topology", wire::render()),
        ("oom steps", wire::render_oom_steps()),
    ];
    for (name, table) in tables {
        let text = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let start =
            text.find(&begin).expect("docs/internals/roles.md has the marker of the beginning") + begin.len();
        let length =
            text[start..].find(&end).expect("docs/internals/roles.md has the marker of the end after it");
        let (before, shown, after) = (&text[..start], &text[start..start + length], &text[start + length..]);
        if std::env::var_os("BLESS").is_some() {
            if shown != table {
                std::fs::write(&path, format!("{before}{table}{after}")).unwrap();
            }
        } else {
            assert_eq!(shown, table, "run `BLESS=1 cargo test -p wire` to rewrite docs/internals/roles.md");
        }
    }
}

/// The page says of each reason what to do about it.
#[test]
fn the_page_of_conditioning_has_every_reason() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/conditioning.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.split_once("| word in `WHY` |").unwrap().1.split_once("\n\n").unwrap().0;
    let firsts: String = rows.lines().filter_map(|row| row.split('|').nth(1)).collect();
    let none = wire::Shed::default();
    let words = none.reasons().map(|(_, word, _)| format!("`{word}`"));
    let missing: Vec<_> = words.filter(|word| !firsts.contains(word)).collect();
    assert!(missing.is_empty(), "docs/guide/conditioning.md has no row for {missing:?}");
}

/// The programs of ours, for what reads no Rust: the Makefile and the tests.
#[test]
fn the_list_of_programs_is_that_of_the_roles() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("roles.txt");
    let ours = Role::ALL.iter().filter(|role| !role.is_operators());
    let names: String = ours.map(|role| format!("{}\n", role.name())).collect();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &names).unwrap();
    }
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, names, "run `BLESS=1 cargo test -p wire` to rewrite {}", path.display());
}

/// Whatever the kernel kills when memory runs out, nothing goes before it that others need more.
#[test]
fn what_more_depends_on_is_killed_later() {
    let step = Role::oom_step;
    let for_all = [Role::Gate, Role::Logger, Role::Admin, Role::Signer, Role::Stapler];
    let of_a_site = [Role::Site, Role::Connector, Role::Broker, Role::DataProxy, Role::Publisher];
    assert!(Role::ALL.iter().all(|&role| step(role) <= wire::OOM_STEP_MAX));
    assert!(step(Role::Launcher) < wire::OOM_STEP_REAPER);
    assert!(
        for_all.iter().all(|&role| wire::OOM_STEP_REAPER < step(role) && step(role) < wire::OOM_STEP_HELPER)
    );
    assert!(
        of_a_site.iter().all(|&role| wire::OOM_STEP_HELPER < step(role) && step(role) < step(Role::Service))
    );
}

/// A process goes before those that it needs at the end, and is replaced after them.
#[test]
fn what_others_need_goes_last_and_is_replaced_first() {
    let place = |order: &[Role], role: Role| order.iter().position(|one| *one == role).unwrap();
    for &role in Role::ALL {
        for &user in role.facts().users {
            assert!(place(&Role::STOP_ORDER, user) < place(&Role::STOP_ORDER, role), "{user:?}, {role:?}");
            assert!(
                place(&Role::REPLACEMENT_ORDER, role) < place(&Role::REPLACEMENT_ORDER, user),
                "{role:?}, {user:?}"
            );
        }
    }
    let [stops, replaced] = [Role::STOP_ORDER, Role::REPLACEMENT_ORDER];
    assert_eq!(
        (stops[0], stops.last(), replaced[0], replaced.last()),
        (Role::Gate, Some(&Role::Logger), Role::Logger, Some(&Role::Admin))
    );
}

#[test]
fn no_edge_is_there_twice() {
    let mut seen = HashSet::new();
    for edge in CHANNELS {
        // Between processes of one role, both directions are from that role to itself.
        let own_kind = (edge.from == edge.to).then_some(edge.message);
        assert!(seen.insert((edge.from, edge.to, own_kind)), "{edge:?}");
    }
}

/// A name in the table is the name of a type (or the log's batches, which are not one type).
#[test]
fn messages_are_types() {
    let types = [
        std::any::type_name::<wire::ToWorker>(),
        std::any::type_name::<wire::FromWorker>(),
        std::any::type_name::<wire::ChildToLauncher>(),
        std::any::type_name::<wire::AdminToLauncher>(),
        std::any::type_name::<wire::LauncherToGate>(),
        std::any::type_name::<wire::LauncherToSite>(),
        std::any::type_name::<wire::LauncherToService>(),
        std::any::type_name::<wire::LauncherToLogger>(),
        std::any::type_name::<wire::LauncherToAdmin>(),
        std::any::type_name::<wire::tls::LauncherToSigner>(),
        std::any::type_name::<wire::tls::SiteToSigner>(),
        std::any::type_name::<wire::tls::SignerToSite>(),
        std::any::type_name::<wire::LauncherToConnector>(),
        std::any::type_name::<wire::ToConnector>(),
        std::any::type_name::<wire::FromConnector>(),
        std::any::type_name::<wire::LauncherToBroker>(),
        std::any::type_name::<wire::BrokerToConnector>(),
        std::any::type_name::<wire::ConnectorToBroker>(),
        std::any::type_name::<wire::stapler::LauncherToStapler>(),
        std::any::type_name::<wire::stapler::SignerToStapler>(),
        std::any::type_name::<wire::stapler::StaplerToSite>(),
        std::any::type_name::<wire::data::LauncherToDataProxy>(),
        std::any::type_name::<wire::data::ServiceToDataProxy>(),
        std::any::type_name::<wire::data::DataProxyToService>(),
        std::any::type_name::<wire::templates::LauncherToPublisher>(),
        std::any::type_name::<wire::templates::PublisherToService>(),
        std::any::type_name::<wire::templates::ServiceToPublisher>(),
        std::any::type_name::<wire::orders::AdminToService>(),
        std::any::type_name::<wire::orders::ServiceToAdmin>(),
    ];
    let mut names: HashSet<&str> = types.iter().filter_map(|path| path.rsplit("::").next()).collect();
    names.insert("log batch");
    let used: HashSet<&str> = CHANNELS.iter().map(|edge| edge.message).collect();
    assert_eq!(used, names);
}

#[test]
fn the_launcher_hears_two_types_and_takes_no_descriptor() {
    for edge in CHANNELS.iter().filter(|edge| edge.to == Role::Launcher) {
        let expected = match edge.from {
            Role::Gate
            | Role::Site
            | Role::Service
            | Role::Logger
            | Role::Signer
            | Role::Connector
            | Role::Stapler
            | Role::Broker
            | Role::DataProxy
            | Role::Publisher => "ChildToLauncher",
            Role::Admin => "AdminToLauncher",
            Role::Launcher | Role::Filter => panic!("it has nothing to say to the launcher"),
        };
        assert_eq!(edge.message, expected, "{edge:?}");
        assert_eq!(edge.descriptors, None, "{edge:?}");
    }
    let elsewhere = edges(|edge| edge.to != Role::Launcher && edge.message.ends_with("ToLauncher"));
    assert_eq!(elsewhere, []);
}

/// Two gates or two services never meet: what takes one over stays there. Filters are a chain. Of sites, one with a
/// `path` hears requests of the one that has the certificate of its host, and that one hears of it what a gate does.
#[test]
fn only_filters_and_sites_of_a_host_talk_to_their_own_kind() {
    let own_kind = [
        (Role::Filter, Role::Filter, "ToWorker"),
        (Role::Site, Role::Site, "ToWorker"),
        (Role::Site, Role::Site, "FromWorker"),
    ];
    assert_eq!(edges(|edge| edge.from == edge.to), own_kind);
}

/// A filter may be any program: it has requests and nothing else, no orders, no log, no way to a worker.
#[test]
fn filters_meet_gates_and_each_other_only() {
    let touches = |edge: &Edge| edge.from == Role::Filter || edge.to == Role::Filter;
    let others = edges(|edge| touches(edge) && edge.from != Role::Gate && edge.to != Role::Gate);
    assert_eq!(others, [(Role::Filter, Role::Filter, "ToWorker")]);
    assert!(CHANNELS.iter().filter(|edge| touches(edge)).all(|edge| edge.message == "ToWorker"));
}

#[test]
fn services_are_reached_by_the_launcher_a_gate_their_site_and_what_they_ask() {
    let senders: Vec<Role> =
        CHANNELS.iter().filter(|edge| edge.to == Role::Service).map(|edge| edge.from).collect();
    assert_eq!(
        senders,
        [Role::Launcher, Role::Gate, Role::Site, Role::DataProxy, Role::Publisher, Role::Admin]
    );
}

#[test]
fn the_logger_tells_nobody_but_the_launcher_and_admin_services_as_well() {
    let from = |role| edges(|edge| edge.from == role);
    assert_eq!(from(Role::Logger), [(Role::Logger, Role::Launcher, "ChildToLauncher")]);
    assert_eq!(
        from(Role::Admin),
        [
            (Role::Admin, Role::Launcher, "AdminToLauncher"),
            (Role::Admin, Role::Service, "AdminToService"),
            (Role::Admin, Role::Logger, "log batch"),
        ]
    );
    assert_eq!(
        edges(|edge| edge.to == Role::Admin),
        [(Role::Launcher, Role::Admin, "LauncherToAdmin"), (Role::Service, Role::Admin, "ServiceToAdmin")]
    );
}

/// Who has the network meets one site, one data proxy, or one service's broker, and neither a gate nor a service.
#[test]
fn connectors_meet_the_launcher_whom_they_connect_and_the_log() {
    let peers = edges(|edge| edge.from == Role::Connector || edge.to == Role::Connector);
    let client = |role: &Role| [Role::Site, Role::Broker, Role::DataProxy].contains(role);
    let others = peers.iter().filter(|(from, to, _)| !client(from) && !client(to));
    let others: Vec<_> = others.map(|(.., message)| *message).collect();
    assert_eq!(others, ["LauncherToConnector", "ChildToLauncher", "log batch"]);
}

/// Who reads a service's memory has no word with anybody who is not that service's own.
#[test]
fn brokers_meet_the_launcher_their_connector_and_the_log() {
    let peers = edges(|edge| edge.from == Role::Broker || edge.to == Role::Broker);
    assert_eq!(
        peers,
        [
            (Role::Launcher, Role::Broker, "LauncherToBroker"),
            (Role::Broker, Role::Launcher, "ChildToLauncher"),
            (Role::Broker, Role::Connector, "BrokerToConnector"),
            (Role::Connector, Role::Broker, "ConnectorToBroker"),
            (Role::Broker, Role::Logger, "log batch"),
        ]
    );
}

#[test]
fn log_batches_carry_no_descriptor_and_go_to_the_logger_only() {
    for edge in CHANNELS.iter().filter(|edge| edge.message == "log batch") {
        assert_eq!((edge.to, edge.descriptors), (Role::Logger, None));
    }
}

#[test]
fn roles_have_a_number_and_a_name_each() {
    let names: HashSet<_> = Role::ALL.iter().map(|role| role.name()).collect();
    let numbers: HashSet<_> = Role::ALL.iter().map(|role| *role as u8).collect();
    assert_eq!((names.len(), numbers.len()), (Role::ALL.len(), Role::ALL.len()));
}

/// Nothing of a client's, and nothing of a service's, comes to the keys.
#[test]
fn the_signer_hears_the_launcher_and_sites_only() {
    let touches = |edge: &Edge| edge.from == Role::Signer || edge.to == Role::Signer;
    let heard = edges(|edge| edge.to == Role::Signer);
    let heard: HashSet<Role> = heard.into_iter().map(|(from, ..)| from).collect();
    assert_eq!(heard, HashSet::from([Role::Launcher, Role::Site]));
    let given = CHANNELS.iter().filter(|edge| edge.from == Role::Signer || edge.from == Role::Site);
    assert!(given.filter(|edge| touches(edge)).all(|edge| edge.descriptors.is_none()));
}

/// What one process reads of another is tried with any bytes, on every channel.
#[test]
fn every_message_has_a_fuzz_target() {
    let targets = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let guarded = ["ToGuard", "FromGuarded"];
    for message in CHANNELS.iter().map(|edge| edge.message).chain(guarded) {
        let name = snake_case(message);
        let source = std::fs::read_to_string(targets.join(format!("targets/{name}.rs")))
            .unwrap_or_else(|error| panic!("fuzz/targets/{name}.rs: {error}"));
        let read = if message == "log batch" { "wire::log::" } else { message };
        assert!(source.contains(read), "fuzz/targets/{name}.rs does not read {message}");
        let seeds = std::fs::read_dir(targets.join("seeds").join(&name)).unwrap();
        assert!(seeds.count() > 0, "fuzz/seeds/{name} is empty");
    }
}

/// `SiteToSigner` as `site_to_signer`, `log batch` as `log_batch`.
fn snake_case(message: &str) -> String {
    message.chars().fold(String::new(), |mut name, c| {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(if c == ' ' { '_' } else { c.to_ascii_lowercase() });
        name
    })
}

/// Who reads what comes from the network has nothing to say to the keys, and sites have nothing to say to it.
#[test]
fn the_stapler_is_told_by_the_launcher_and_the_signer_and_tells_sites() {
    let from = |role| edges(|edge| edge.from == role);
    let to = edges(|edge| edge.to == Role::Stapler);
    assert_eq!(
        to,
        [
            (Role::Launcher, Role::Stapler, "LauncherToStapler"),
            (Role::Signer, Role::Stapler, "SignerToStapler"),
        ]
    );
    assert_eq!(
        from(Role::Stapler),
        [
            (Role::Stapler, Role::Launcher, "ChildToLauncher"),
            (Role::Stapler, Role::Site, "StaplerToSite"),
            (Role::Stapler, Role::Logger, "log batch"),
        ]
    );
}

/// Who holds a database hears services and nobody that clients can reach without one, is connected to its server by
/// another, and passes no descriptor on.
#[test]
fn the_data_proxy_is_told_by_the_launcher_and_asked_by_services() {
    let with = edges(|edge| [edge.from, edge.to].contains(&Role::DataProxy));
    assert_eq!(
        with,
        [
            (Role::Launcher, Role::DataProxy, "LauncherToDataProxy"),
            (Role::DataProxy, Role::Launcher, "ChildToLauncher"),
            (Role::Service, Role::DataProxy, "ServiceToDataProxy"),
            (Role::DataProxy, Role::Service, "DataProxyToService"),
            (Role::DataProxy, Role::Connector, "ToConnector"),
            (Role::Connector, Role::DataProxy, "FromConnector"),
            (Role::DataProxy, Role::Logger, "log batch"),
        ]
    );
    let own = CHANNELS.iter().filter(|edge| edge.from == Role::DataProxy || edge.from == Role::Service);
    let to_proxies = own.filter(|edge| edge.to != Role::Gate && edge.descriptors.is_some());
    assert_eq!(to_proxies.count(), 0);
}

/// Who reads templates hears the launcher and its site's services, and holds nothing that it could pass on.
#[test]
fn the_publisher_is_told_by_the_launcher_and_answered_by_services() {
    let with = edges(|edge| [edge.from, edge.to].contains(&Role::Publisher));
    assert_eq!(
        with,
        [
            (Role::Launcher, Role::Publisher, "LauncherToPublisher"),
            (Role::Publisher, Role::Launcher, "ChildToLauncher"),
            (Role::Publisher, Role::Service, "PublisherToService"),
            (Role::Service, Role::Publisher, "ServiceToPublisher"),
            (Role::Publisher, Role::Logger, "log batch"),
        ]
    );
    let own = CHANNELS.iter().filter(|edge| edge.from == Role::Publisher || edge.to == Role::Publisher);
    assert!(own.filter(|edge| edge.from != Role::Launcher).all(|edge| edge.descriptors.is_none()));
}
