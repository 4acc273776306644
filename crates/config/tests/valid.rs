//! Files that load, field by field; and what loading from disk adds to parsing.
//!
//! Runs in: the test process, unprivileged. Input: the files of this repository, and folders in its own
//! temporary folder.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files should panic")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::CertificateFiles;
use config::{
    AccessFormat, Checks, ClientCertificates, Compress, Conditioning, Config, DataSource, Encoding, Filter,
    Limits, Listener, Log, Priority, Restart, Resumption, Server, Service, Site, SiteTls, Statics, Terms,
    Tls, TlsVersion,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn parse(text: &str) -> Result<Config, config::Diagnostics> {
    Config::parse(text, "bulkhead.toml", Path::new("/srv"))
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn service(name: &str, path: &str, command: &[&str], program: &str, read: &[&str]) -> Service {
    Service {
        name: name.to_owned(),
        path: path.to_owned(),
        command: strings(command),
        program: program.into(),
        read: read.iter().map(PathBuf::from).collect(),
        ..Service::default()
    }
}

/// What a site has that says nothing of it.
fn bare_site() -> Site {
    Site {
        name: String::new(),
        hosts: Vec::new(),
        listen: Vec::new(),
        path: "/".to_owned(),
        root: None,
        index: strings(&["index.html"]),
        tls: None,
        services: Vec::new(),
        data: Vec::new(),
        templates: None,
        vhosts: None,
        follow_links: Vec::new(),
        redirect: None,
        statics: bare_statics(),
        terms: Terms::default(),
        limits: config::SiteLimits::default(),
        routes: Vec::new(),
        worker: worker(""),
        start: None,
        idle_stop_ms: None,
        recycle: config::Recycle::default(),
        workers: config::Workers::default(),
    }
}

fn bare_statics() -> Statics {
    let encodings = vec![Encoding::Br, Encoding::Zstd, Encoding::Gzip];
    Statics {
        cache_control: None,
        stat_interval_ms: None,
        compress: Compress { encodings, static_level: 9, dynamic_level: 2, max_bytes: 32 << 20 },
        error_page: Vec::new(),
        listing: false,
        send_hidden: Vec::new(),
        send_sources: Vec::new(),
        media_types: Vec::new(),
    }
}

fn listener(address: &str) -> Listener {
    Listener {
        address: address.parse().unwrap(),
        shared_connections: false,
        tls: false,
        redirect_to_https: false,
        h2c: false,
        proxies: vec![],
        unfiltered: false,
    }
}

fn default_tls() -> Tls {
    Tls {
        min_version: TlsVersion::V12,
        tamper_ban_ms: 24 * 3600 * 1000,
        tamper_exempt: strings(&["127.0.0.0/8"]),
        hsts: "max-age=31536000".to_owned(),
        reread_ms: 3600 * 1000,
        resumption: Resumption::Tickets,
        ocsp: true,
        ocsp_ports: vec![80],
    }
}

/// What main-job.toml says, in a folder /srv.
fn main_job() -> Config {
    let search = ["bin/search", "--index", "data/packages.json"];
    let package = ["bin/package", "--index", "data/packages.json"];
    let search = service("search", "/search", &search, "/srv/bin/search", &["/srv/data"]);
    let package = service("package", "/package/", &package, "/srv/bin/package", &["/srv/data"]);
    Config {
        dir: "/srv".into(),
        server: Server {
            user_range: 51001..=51999,
            user_range_given: true,
            state_dir: "/srv/state".into(),
            run_dir: "/srv/run".into(),
            log_dir: "/srv/log".into(),
            gates: Some(2),
            isolation: config::Isolation::Strict,
            danger_without: vec![],
            start: config::Start::Always,
            idle_stop_ms: 600_000,
        },
        include: None,
        listeners: vec![listener("127.0.0.1:8080")],
        tls: default_tls(),
        log: default_log(),
        restart: Restart { broken_after: 30, within_ms: 50_000, backoff_max_ms: 3000, hang_after_ms: 30_000 },
        limits: Limits { head_bytes: 8192, ..default_limits() },
        conditioning: default_conditioning(),
        warnings: vec![],
        sites: [
            Arc::new(Site {
                name: "packages".to_owned(),
                hosts: strings(&["localhost", "127.0.0.1", "packages.test"]),
                listen: Vec::new(),
                path: "/".to_owned(),
                root: Some("/srv/public".into()),
                index: strings(&["index.html"]),
                tls: None,
                services: vec![
                    Service { memory_max: Some(256 << 20), ..search },
                    Service { takes_connections: true, ..package },
                    service("crash", "/crash", &["bin/crash"], "/srv/bin/crash", &[]),
                ],
                worker: worker("packages.access.log"),
                ..bare_site()
            }),
            Arc::new(Site {
                name: "other".to_owned(),
                hosts: strings(&["other.test"]),
                listen: Vec::new(),
                path: "/".to_owned(),
                root: Some("/srv/other".into()),
                index: strings(&["index.html"]),
                tls: None,
                services: Vec::new(),
                worker: worker("other.access.log"),
                ..bare_site()
            }),
        ]
        .into_iter()
        .collect(),
    }
}

fn worker(access_log: &str) -> config::Worker {
    config::Worker { access_log: access_log.to_owned(), user: None, program: None }
}

fn default_log() -> Log {
    Log {
        access_format: AccessFormat::Combined,
        flush_ms: 1500,
        daily: false,
        error_file: None,
        error_syslog: false,
        access_bytes: 4 << 30,
    }
}

fn default_conditioning() -> Conditioning {
    Conditioning {
        first_byte_timeout_ms: 10_000,
        body_min_rate: 500,
        response_min_rate: 500,
        priority: Priority::Recency,
        share_max: [250, 150, 100],
        share_max_v6: [250, 150, 100],
        checks: Checks::Standard,
        exempt: strings(&["127.0.0.0/8"]),
        rate_max: None,
        rate_burst: 0,
        ban_after: 100,
        ban_time_ms: 600_000,
        filters: Vec::new(),
    }
}

fn default_limits() -> Limits {
    Limits {
        head_bytes: 32_768,
        head_timeout_ms: 10_000,
        body_bytes: 2_097_152,
        idle_timeout_ms: 60_000,
        start_timeout_ms: 10_000,
        drain_timeout_ms: 30_000,
        connections: 8192,
    }
}

#[test]
fn the_main_job_loads_as_it_is() {
    let copy = std::fs::read_to_string(repository().join("tests/config/main-job.toml")).unwrap();
    assert_eq!(parse(&copy).unwrap(), main_job());
    // The original stands outside the repository, and not on every machine.
    if let Ok(original) = std::fs::read_to_string(repository().join("../shared/acceptance/main-job.toml")) {
        assert_eq!(parse(&original).unwrap(), main_job());
    }
}

/// That file states the defaults, so it must mean the same as one that states none, but for the strict checks.
#[test]
fn the_policies_are_by_default_what_the_seeds_say() {
    let copy = std::fs::read_to_string(repository().join("tests/config/conditioning.toml")).unwrap();
    let config = parse(&copy).unwrap();
    let strict = Conditioning { checks: Checks::Strict, ..default_conditioning() };
    assert_eq!((config.conditioning, config.limits), (strict, default_limits()));
    assert!(!config.listeners[0].shared_connections);
    // The original stands outside the repository, and not on every machine.
    if let Ok(original) = std::fs::read_to_string(repository().join("../shared/acceptance/conditioning.toml"))
    {
        assert_eq!(original, copy);
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let text = "[[listen]]\naddress = '[::1]:80'\n[[site]]\nname = 'a'\nhost = ['*']\nroot = 'r'\n";
    let config = parse(text).unwrap();
    let server = Server { gates: None, user_range_given: false, ..main_job().server };
    assert_eq!(config.server, server);
    assert_eq!(config.log, main_job().log);
    assert_eq!(config.restart, main_job().restart);
    assert_eq!(config.limits, default_limits());
    assert_eq!(config.conditioning, default_conditioning());
    assert!(config.sites[0].listen.is_empty());
    assert_eq!(config.sites[0].path, "/");
    assert_eq!(config.sites[0].index, ["index.html"]);
}

fn every_policy() -> Conditioning {
    let filter = |command: &[&str], program: &str, read: &[&str]| Filter {
        command: strings(command),
        program: program.into(),
        read: read.iter().map(PathBuf::from).collect(),
        jit: command == ["/usr/bin/python3", "second.py"],
    };
    Conditioning {
        first_byte_timeout_ms: 100,
        body_min_rate: 0,
        response_min_rate: 1 << 30,
        priority: Priority::Fifo,
        share_max: [1000, 500, 1],
        share_max_v6: [250, 750, 100],
        checks: Checks::Lenient,
        exempt: strings(&["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]),
        rate_max: Some(100),
        rate_burst: 1000,
        ban_after: 0,
        ban_time_ms: 86_400_000,
        filters: vec![
            filter(&["bin/first", "--fast"], "/srv/bin/first", &[]),
            filter(&["/usr/bin/python3", "second.py"], "/usr/bin/python3", &["/usr/lib/python3", "/srv/."]),
        ],
    }
}

#[test]
fn rates_are_numbers_or_words_and_bring_a_second_worth_of_burst() {
    let rate = |keys: &str| {
        let text = format!(
            "[conditioning]\n{keys}\n[[listen]]\naddress = '[::1]:80'\n[[site]]\nname = 'a'\nhost = ['*']\nroot = 'r'\n"
        );
        parse(&text).map(|config| (config.conditioning.rate_max, config.conditioning.rate_burst)).unwrap()
    };
    assert_eq!(rate(""), (None, 0));
    assert_eq!(rate("rate_max = 7"), (Some(7), 7));
    assert_eq!(rate("rate_max = '7/s'\nrate_burst = 1"), (Some(7), 1));
}

#[test]
fn workers_are_so_many_or_the_least_and_the_most() {
    let workers = |keys: &str| {
        let text = format!(
            "[[listen]]\naddress = '[::1]:80'\n[[site]]\nname = 'a'\nhost = ['*']\nroot = 'r'\n{keys}\n"
        );
        parse(&text).map(|config| (config.sites[0].workers.min, config.sites[0].workers.max)).unwrap()
    };
    assert_eq!([workers(""), workers("workers = 3")], [(1, 1), (3, 3)]);
    assert_eq!(workers("workers = { min = 2, max = 64 }"), (2, 64));
    assert_eq!(workers("workers = { max = 4 }"), (1, 4));
}

#[test]
fn one_bound_may_be_given_in_either_table() {
    let timeout = |keys: &str| {
        let text = format!(
            "{keys}\n[[listen]]\naddress = '[::1]:80'\n[[site]]\nname = 'a'\nhost = ['*']\nroot = 'r'\n"
        );
        parse(&text).map(|config| config.limits.head_timeout_ms).unwrap()
    };
    assert_eq!(timeout("[limits]\nhead_timeout = '1s'"), 1000);
    assert_eq!(timeout("[conditioning]\nhead_timeout = '2s'"), 2000);
    assert_eq!(timeout("[limits]\nhead_timeout = '2s'\n[conditioning]\nhead_timeout = '2000ms'"), 2000);
}

#[test]
fn data_of_every_key() {
    let text = std::fs::read_to_string(repository().join("tests/config/every-key.toml")).unwrap();
    let config = parse(&text).unwrap();
    let [numbers, catalog, orders] = &config.sites[1].data[..] else { panic!("three sources") };
    assert_eq!(
        (numbers.statements.as_deref(), numbers.target()),
        (Some(Path::new("/srv/numbers.sql")), None)
    );
    assert_eq!(numbers.schema(), Some(Path::new("/srv/schema.sql")));
    let server = catalog.server().unwrap();
    assert_eq!((&*server.database, &*server.user, server.connections), ("shop", "api", 2));
    assert_eq!(server.password.as_deref(), Some(Path::new("/srv/db-password")));
    assert_eq!(catalog.certificate_name().as_deref(), Some("db.test"));
    let shown = |source: &DataSource| source.secured().unwrap().identity.unwrap().key.clone();
    assert_eq!((shown(catalog), shown(orders)), ("/srv/api-at-db.key".into(), "/srv/api.key".into()));
    assert_eq!((orders.statements.as_deref(), orders.certificate_name().as_deref()), (None, Some("fd00::2")));
    let [door, pages] = &config.sites[2].services[..] else { panic!("two services") };
    assert_eq!((door.remote, &*door.path, pages.remote, pages.templates), (true, "/data/all", false, true));
}

#[test]
fn every_key_is_taken() {
    let config =
        parse(&std::fs::read_to_string(repository().join("tests/config/every-key.toml")).unwrap()).unwrap();
    assert_eq!(config.server.user_range, 1000..=1999);
    assert_eq!(config.server.state_dir, Path::new("/var/lib/bulkhead"));
    assert_eq!(config.server.run_dir, Path::new("/run/bulkhead"));
    assert_eq!(config.server.log_dir, Path::new("/srv/../log"));
    assert_eq!(config.server.gates, Some(64));
    assert_eq!(config.listeners.len(), 3);
    let log = Log {
        access_format: AccessFormat::Json,
        flush_ms: 60_000,
        daily: true,
        error_file: Some("/var/log/bulkhead-errors".into()),
        error_syslog: true,
        access_bytes: 1 << 40,
    };
    assert_eq!(config.log, log);
    assert_eq!(
        config.restart,
        Restart { broken_after: 1, within_ms: 86_400_000, backoff_max_ms: 10, hang_after_ms: 30_000 }
    );
    let limits = Limits {
        head_bytes: 65536,
        head_timeout_ms: 300_000,
        body_bytes: 1_000_000_000,
        idle_timeout_ms: 3_600_000,
        start_timeout_ms: 250,
        drain_timeout_ms: 2000,
        connections: 16,
    };
    assert_eq!(config.limits, limits);
    let shared: Vec<bool> = config.listeners.iter().map(|listener| listener.shared_connections).collect();
    assert_eq!(shared, [false, true, false]);
    assert_eq!(config.conditioning, every_policy());
    let site = &config.sites[0];
    assert_eq!(site.hosts, ["blog.example.org", "*.example.org", "*", "[::1]", "192.0.2.1"]);
    assert_eq!(site.listen, [config.listeners[1].address, config.listeners[0].address]);
    assert_eq!((site.path.as_str(), site.root.as_deref()), ("/blog/", Some(Path::new("/srv/www"))));
    assert!(site.index.is_empty());
    let program = Some((strings(&["bin/my-worker", "-v"]), "/srv/bin/my-worker".into()));
    let worker =
        config::Worker { access_log: "access.log".to_owned(), user: Some("www-data".to_owned()), program };
    assert_eq!(site.worker, worker);
    let service = &site.services[0];
    assert_eq!(service.command, ["/usr/bin/search", "-v", ""]);
    assert_eq!(service.program, Path::new("/usr/bin/search"));
    assert_eq!(service.read, [Path::new("/usr/share/data"), Path::new("/srv/data")]);
    assert_eq!(service.libraries, [Path::new("/usr/lib/python3"), Path::new("/srv/venv")]);
    assert_eq!(service.memory_max, Some(4 << 20));
    assert!(service.takes_connections);
    let variables = [("LANG", "C"), ("RUST_LOG", "info")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(service.environment, variables);
    assert_eq!(config.sites[1].root, None);
    assert_eq!(config.sites[1].services[0].program, Path::new("/srv/api"));
}

#[test]
fn sites_on_different_listeners_may_have_the_same_host_and_path() {
    let text = |second: &str| {
        let site = |name, listen| format!("[[site]]\nname = '{name}'\nhost = ['*']\nroot = 'r'\n{listen}\n");
        let listeners = "[[listen]]\naddress = '[::1]:80'\n[[listen]]\naddress = '[::1]:81'\n";
        format!("{listeners}{}{}", site("a", "listen = ['[0::1]:80']"), site("b", second))
    };
    let config = parse(&text("listen = ['[::1]:81']")).unwrap();
    assert_eq!(config.sites[1].listen, [config.listeners[1].address]);
    for shared in ["", "listen = ['[::1]:81', '[::1]:80']"] {
        let found = parse(&text(shared)).unwrap_err().to_string();
        assert!(found.contains("is already site \"a\""), "{found}");
    }
}

/// A fresh folder for one test, with `public/` and a configuration of one site in it.
fn on_disk(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("public")).unwrap();
    let text = "[[listen]]\naddress = '[::1]:80'\n[[site]]\nname = 'a'\nhost = ['*']\nroot = 'public'\n";
    std::fs::write(dir.join("bulkhead.toml"), text).unwrap();
    dir
}

#[test]
fn loading_takes_the_files_folder() {
    let dir = on_disk("folder");
    let config = Config::load(&dir.join("bulkhead.toml")).unwrap();
    assert_eq!(config.dir, dir);
    assert_eq!(config.sites[0].root.as_deref(), Some(dir.join("public").as_path()));
}

#[test]
fn a_link_does_not_hide_that_logs_are_published() {
    let dir = on_disk("link");
    std::os::unix::fs::symlink("public/hidden", dir.join("log")).unwrap();
    std::fs::create_dir(dir.join("public/hidden")).unwrap();
    let found = Config::load(&dir.join("bulkhead.toml")).unwrap_err().0;
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("would publish `log_dir`"), "{}", found[0].message);
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let dir = on_disk("unreadable");
    let missing = Config::load(&dir.join("none.toml")).unwrap_err();
    assert_eq!((missing.0[0].line, missing.0.len()), (0, 1));
    assert!(missing.to_string().contains("none.toml: error: cannot read it: No such file"));
    std::fs::write(dir.join("latin.toml"), b"[server]\n# caf\xe9\n").unwrap();
    let latin = Config::load(&dir.join("latin.toml")).unwrap_err();
    assert_eq!((latin.0[0].line, latin.0[0].column), (2, 6));
    std::fs::write(dir.join("large.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(Config::load(&dir.join("large.toml")).unwrap_err().to_string().contains("larger than"));
}

#[test]
fn any_part_of_a_good_file_is_read_or_explained() {
    let text = std::fs::read_to_string(repository().join("tests/config/every-key.toml")).unwrap();
    for (at, _) in text.char_indices() {
        for part in [&text[..at], &text[at..]] {
            let said = parse(part).err().map(|diagnostics| diagnostics.to_string()).unwrap_or_default();
            assert!(!said.contains("this is a bug"), "{part}");
        }
    }
}

#[test]
fn a_folder_that_is_not_absolute_is_refused() {
    assert!(
        Config::parse("", "f", Path::new("srv")).unwrap_err().to_string().contains("not an absolute path")
    );
}

fn files(certificate: &str, key: Option<&str>) -> CertificateFiles {
    CertificateFiles { certificate: certificate.into(), key: key.map(Into::into) }
}

#[test]
fn a_certificate_may_have_its_key_elsewhere() {
    let site = |lines: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:443\"\ntls = true\n[[site]]\nname = \"a\"\nhost = [\"a\"]\nroot = \"p\"\n{lines}\n"
        );
        parse(&text).map(|config| config.sites[0].tls.clone().unwrap().certificates)
    };
    let apart = files("/srv/fullchain.pem", Some("/srv/privkey.pem"));
    assert_eq!(
        site("certificate = \"fullchain.pem\"\nkey = \"privkey.pem\"").unwrap(),
        std::slice::from_ref(&apart)
    );
    assert_eq!(site("certificate = \"a.pem\"").unwrap(), [files("/srv/a.pem", None)]);
    let several = "certificates = [\"a.pem\", { certificate = \"fullchain.pem\", key = \"privkey.pem\" }]";
    assert_eq!(site(several).unwrap(), [files("/srv/a.pem", None), apart]);
    for wrong in [
        "key = \"privkey.pem\"",
        "certificates = [\"a.pem\"]\nkey = \"privkey.pem\"",
        "certificates = [\"a.pem\"]\ncertificate = \"b.pem\"",
        "certificates = [{ key = \"privkey.pem\" }]",
        "certificates = [{ certificate = \"a.pem\", chain = \"b.pem\" }]",
    ] {
        assert!(site(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn tls_of_every_key() {
    let text = std::fs::read_to_string(repository().join("tests/config/every-key.toml")).unwrap();
    let config = parse(&text).unwrap();
    let kinds: Vec<_> = config.listeners.iter().map(|l| (l.tls, l.redirect_to_https, l.h2c)).collect();
    assert_eq!(kinds, [(false, true, false), (false, false, true), (true, false, false)]);
    let expected = Tls {
        min_version: TlsVersion::V13,
        tamper_ban_ms: 0,
        tamper_exempt: strings(&["10.0.0.0/8", "192.0.2.1/32"]),
        hsts: String::new(),
        reread_ms: 1000,
        resumption: Resumption::Stateful,
        ocsp: false,
        ocsp_ports: vec![80, 8080],
    };
    assert_eq!(config.tls, expected);
    assert_eq!(config.sites[0].tls, None);
    let api = SiteTls {
        certificates: vec![
            files("/srv/api-ecdsa.pem", None),
            files("/etc/ssl/api-rsa.pem", Some("/srv/api-rsa.key")),
        ],
        client_ca: Some("/srv/clients.pem".into()),
        client_crl: vec!["/srv/revoked.pem".into(), "/etc/ssl/more.crl".into()],
        client_certificates: ClientCertificates::Request,
    };
    assert_eq!(config.sites[1].tls, Some(api));
}

#[test]
fn templates_and_public_values() {
    let text = "[[listen]]\naddress = \"[::1]:80\"\n[[site]]\nname = \"shop\"\nhost = [\"*\"]\n[site.templates]\nfolder = \"pages\"\n\
                [site.templates.values]\nyear = 0x7ea\ncompany = \"ACME\"\nbeta = true\n\
                [[site.service]]\nname = \"s\"\npath = \"/s\"\ncommand = [\"bin/s\"]\ntemplates = true\n\
                [[site.service]]\nname = \"t\"\npath = \"/t\"\ncommand = [\"bin/t\"]\ntemplates = false\n";
    let site = parse(text).unwrap().sites[0].clone();
    let value = |name: &str, value| (name.to_owned(), value);
    let values = vec![
        value("beta", config::PublicValue::Bool(true)),
        value("company", config::PublicValue::Text("ACME".to_owned())),
        value("year", config::PublicValue::Int(2026)),
    ];
    assert_eq!(site.templates, Some(config::Templates { folder: "/srv/pages".into(), values }));
    assert_eq!(site.services.iter().map(|service| service.templates).collect::<Vec<_>>(), [true, false]);
}
