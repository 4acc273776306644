//! What statics.toml says, field by field; and that everything is told about the acceptance test's file.
//!
//! Runs in: the test process, unprivileged. Input: the files of this repository.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files should panic")]

use std::path::Path;

use config::{Action, Auth, Compress, Config, Encoding, Matcher, Redirect, Route, Talk, Target, Terms};

fn parse() -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/config/statics.toml");
    Config::parse(&std::fs::read_to_string(path).unwrap(), "statics.toml", Path::new("/srv")).unwrap()
}

fn route(matcher: Matcher, action: Action) -> Route {
    Route {
        matcher,
        action,
        talk: Talk::default(),
        fallback: false,
        body_bytes: None,
        strip_prefix: false,
        alias: None,
        terms: Terms::default(),
    }
}

fn path(path: &str, action: Action) -> Route {
    route(Matcher::path(path), action)
}

#[test]
fn files_and_their_answers() {
    let config = parse();
    let sites: Vec<_> = config.sites.iter().collect();
    let [a, many, elsewhere] = sites[..] else { panic!("three sites") };
    assert_eq!(
        (a.statics.cache_control, a.statics.stat_interval_ms, a.statics.listing),
        (Some(300), Some(120_000), true)
    );
    let encodings = vec![Encoding::Br, Encoding::Zstd, Encoding::Gzip];
    let compress = Compress { encodings, static_level: 9, dynamic_level: 2, max_bytes: 32 << 20 };
    assert_eq!(a.statics.compress, compress);
    let pages = [(404, "errors/404.html".to_owned()), (503, "busy.html".to_owned())];
    assert_eq!(a.statics.error_page, pages);
    assert_eq!(a.terms.headers, [("X-Frame-Options".to_owned(), "DENY".to_owned())]);
    assert_eq!(a.terms.deny, ["192.0.2.0/24"]);
    assert_eq!(
        (many.hosts.as_slice(), many.vhosts.as_deref()),
        (&["*".to_owned()][..], Some(Path::new("/srv/vhosts")))
    );
    assert!(many.statics.compress.encodings.is_empty() && many.root.is_none());
    assert_eq!(elsewhere.redirect, Some(Redirect { to: "https://www.b.test/".to_owned(), status: 302 }));
    assert_eq!(elsewhere.statics.cache_control, Some(0));
}

#[test]
fn routes() {
    let config = parse();
    let fastcgi = vec![Target::Unix("/srv/php.sock".into()), Target::Tcp("127.0.0.1:9000".parse().unwrap())];
    let upstream = Action::Upstream(vec![Target::Unix("/srv/app.sock".into())]);
    let auth = Auth { users: "/srv/users.htpasswd".into(), realm: "Members only".to_owned() };
    let terms = Terms {
        headers: vec![("Cache-Control".to_owned(), "no-store".to_owned())],
        allow: vec!["10.0.0.0/8".to_owned(), "::1/128".to_owned()],
        auth: Some(auth),
        ..Terms::default()
    };
    assert_eq!(
        config.sites[0].routes,
        [
            path("/old/", Action::Redirect(Redirect { to: "/new/".to_owned(), status: 301 })),
            Route { fallback: true, ..path("/app/", upstream) },
            route(Matcher::suffix(".php"), Action::Fastcgi(fastcgi)),
            path("/alias", Action::Rewrite("/sub/".to_owned())),
            route(Matcher::suffix(".hook"), Action::Hook("counter".to_owned())),
            Route { terms, ..path("/admin/", Action::Terms) },
        ]
    );
}
