#![allow(clippy::unwrap_used)]

use super::*;

fn rule(number: u16, matcher: Matcher, action: Action) -> Rule {
    Rule { number, matcher, action, fallback: false, terms: Terms::default() }
}

fn path(number: u16, at: &str, action: Action) -> Rule {
    rule(number, Matcher::Path(at.into()), action)
}

fn suffix(number: u16, at: &str, action: Action) -> Rule {
    rule(number, Matcher::Suffix(at.into()), action)
}

fn denying(mut rule: Rule) -> Rule {
    rule.terms.network("0.0.0.0/0", false).unwrap();
    rule
}

fn rules() -> Rules {
    let mut rules = Rules::new(&["index.html".into()]);
    rules.add(path(0, "/", Action::Terms));
    rules.add(path(1, "/app/", Action::Upstream));
    rules.add(path(2, "/app/v2/", Action::Upstream));
    rules.add(suffix(3, ".php", Action::Fastcgi));
    rules.add(denying(path(4, "/admin/", Action::Terms)));
    rules.add(denying(path(5, "/secret/index.html", Action::Terms)));
    rules.add(suffix(6, ".hook", Action::Hook("h".into())));
    rules.add(path(7, "/", Action::Rewrite("/index.html".into())));
    rules
}

#[test]
fn the_longest_path_acts_unless_a_suffix_fits() {
    let rules = rules();
    for (raw, number) in [
        ("/", 7),
        ("/x", 7),
        ("/app/", 1),
        ("/app", 7),
        ("/app/v2/x", 2),
        ("/app/%762/x", 2),
        ("//app//v2/x", 2),
        ("/app/a.php", 3),
        ("/a.php/more", 3),
        ("/a.hook", 6),
        ("/a.hook/more", 7),
    ] {
        assert_eq!(rules.plan(raw).unwrap().rule.unwrap().number, number, "{raw}");
    }
}

#[test]
fn no_spelling_passes_by_the_terms() {
    let rules = rules();
    let guarded = |raw| rules.plan(raw).unwrap().guarded;
    for raw in [
        "/admin/",
        "/admin/x",
        "//admin/x",
        "/%61dmin/x",
        "/admin//x",
        "/admin/x.php",
        "/admin/x.php/y",
        "/admin%2Fx",
        "/admin%2fx.php",
        "/secret/index.html",
        "/secret/",
        "//secret//",
        "/secret%2Findex.html",
    ] {
        assert!(guarded(raw), "{raw}");
    }
    for raw in ["/", "/administration", "/x/admin/", "/secret/x"] {
        assert!(!guarded(raw), "{raw}");
    }
    for raw in ["/x/../admin/", "/./admin/", "/%2e/admin/", "/%2e%2e/admin/", "/admin/%"] {
        assert!(rules.plan(raw).is_err(), "{raw}");
    }
}

#[test]
fn the_longest_network_counts() {
    let mut terms = Terms::default();
    let admits = |terms: &Terms, peer: &str| terms.admits(peer.parse().unwrap());
    assert!(admits(&terms, "192.0.2.1") && !terms.guards());
    terms.network("10.0.0.0/8", false).unwrap();
    assert!(admits(&terms, "192.0.2.1") && !admits(&terms, "10.1.2.3") && terms.guards());
    terms.network("10.1.0.0/16", true).unwrap();
    assert!(admits(&terms, "10.1.2.3") && !admits(&terms, "10.2.2.3") && admits(&terms, "::ffff:10.1.2.3"));
    // With any that may, others may not.
    assert!(!admits(&terms, "192.0.2.1") && !admits(&terms, "::1"));
    assert!(terms.network("nonsense", true).is_none() && terms.network("1.2.3.4/40", true).is_none());
}
