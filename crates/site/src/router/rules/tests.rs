#![allow(clippy::unwrap_used)]

use super::*;

fn rule(number: u16, matcher: Matcher, target: RuleTarget) -> Rule {
    Rule::new(Some(number), matcher, target)
}

fn path(number: u16, at: &str, target: RuleTarget) -> Rule {
    rule(number, Matcher::path(at), target)
}

fn suffix(number: u16, at: &str, target: RuleTarget) -> Rule {
    rule(number, Matcher::suffix(at), target)
}

fn denying(mut rule: Rule) -> Rule {
    rule.policy.network("0.0.0.0/0", false).unwrap();
    rule
}

fn route<'r>(rules: &'r Rules, raw: &str) -> Result<RouteMatch<'r>, InvalidPath> {
    rules.find(&NormalPath::parse(raw)?)
}

fn rules() -> Rules {
    let mut rules = Rules::default();
    rules.add(path(0, "/", RuleTarget::Files));
    rules.add(path(1, "/app/", RuleTarget::Upstream(9)));
    rules.add(path(2, "/app/v2/", RuleTarget::Upstream(9)));
    rules.add(suffix(3, ".php", RuleTarget::FastCgi(9)));
    rules.add(denying(path(4, "/admin/", RuleTarget::Files)));
    rules.add(denying(path(5, "/secret/index.html", RuleTarget::Files)));
    rules.add(suffix(6, ".hook", RuleTarget::Hook("h".into())));
    rules.add(path(7, "/", RuleTarget::Rewrite(To::parse("/index.html", None).unwrap())));
    rules.add(denying(suffix(8, ".inc.php", RuleTarget::Files)));
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
        assert_eq!(route(&rules, raw).unwrap().rule.unwrap().number, Some(number), "{raw}");
    }
}

#[test]
fn no_spelling_passes_by_the_terms() {
    let rules = rules();
    let guarded = |raw| route(&rules, raw).unwrap().guarded;
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
        "/a.inc.php",
        "/a.inc.php/more",
        "/admin",
        "/admin;x=1/y",
        "/admin%5cx",
        "/admin%252Fx",
        "/secret/index.html;x",
        "/secret%2Findex.html",
    ] {
        assert!(guarded(raw), "{raw}");
    }
    for raw in ["/", "/administration", "/x/admin/", "/secret/x"] {
        assert!(!guarded(raw), "{raw}");
    }
    for raw in [
        "/x/..;/admin/",
        "/x/..%2fadmin/",
        "/x/%252e%252e/admin/",
        "/x/../admin/",
        "/./admin/",
        "/%2e/admin/",
        "/%2e%2e/admin/",
        "/admin/%",
    ] {
        assert!(route(&rules, raw).is_err(), "{raw}");
    }
}

#[test]
fn the_longest_network_counts() {
    let mut policy = AccessPolicy::default();
    let admits = |policy: &AccessPolicy, peer: &str| policy.allows(peer.parse().unwrap());
    assert!(admits(&policy, "192.0.2.1") && !policy.guards());
    policy.network("10.0.0.0/8", false).unwrap();
    assert!(admits(&policy, "192.0.2.1") && !admits(&policy, "10.1.2.3") && policy.guards());
    policy.network("10.1.0.0/16", true).unwrap();
    assert!(
        admits(&policy, "10.1.2.3") && !admits(&policy, "10.2.2.3") && admits(&policy, "::ffff:10.1.2.3")
    );
    // With any that may, others may not.
    assert!(!admits(&policy, "192.0.2.1") && !admits(&policy, "::1"));
    assert!(policy.network("nonsense", true).is_none() && policy.network("1.2.3.4/40", true).is_none());
}

#[test]
fn a_file_has_its_own_rules_beside_those_of_the_path() {
    let rules = rules();
    let mut of_path = route(&rules, "/secret/").unwrap();
    assert!(!of_path.guarded);
    let new = of_path.resolve_to(route(&rules, "/secret/index.html").unwrap());
    assert_eq!(new.iter().map(|rule| rule.number).collect::<Vec<_>>(), [Some(5)]);
    assert!(of_path.guarded);
}

#[test]
fn what_is_the_source_of_a_script() {
    let mut rules = Rules::new(vec![".phps".into()]);
    rules.add(suffix(1, ".cgi", RuleTarget::FastCgi(9)));
    rules.add(suffix(
        2,
        ".html",
        RuleTarget::Redirect { to: To::parse("/", None).unwrap(), status: StatusCode::FOUND },
    ));
    for (path, is) in
        [("a.cgi", true), ("d/a.CGI.gz", true), ("a.php", true), ("a.phps", false), ("a.html", false)]
    {
        assert_eq!(rules.is_source(path.as_bytes()), is, "{path}");
    }
}

#[test]
fn a_neighbour_is_as_open_as_its_file() {
    let mut rules = Rules::default();
    rules.add(denying(path(1, "/members/", RuleTarget::Files)));
    rules.add(denying(suffix(2, ".gz", RuleTarget::Files)));
    assert!(rules.is_as_open(b"members/a.css.br", b"members/a.css"));
    assert!(!rules.is_as_open(b"members/a.css.gz", b"members/a.css"));
    assert!(!rules.is_as_open(b"a.css.gz", b"a.css"));
    assert!(rules.is_as_open(b"a.css.br", b"a.css"));
}

/// A path as read by a backend that decodes it twice, and takes every kind of slash for one: written without a look
/// at the normal form.
fn generous(raw: &str) -> Vec<String> {
    let decode = |text: &[u8]| {
        let mut out = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let code = text.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
            match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| text[at] == b'%') {
                Some(byte) => {
                    out.push(byte);
                    at += 3;
                }
                None => {
                    out.push(text[at]);
                    at += 1;
                }
            }
        }
        out
    };
    let text = String::from_utf8_lossy(&decode(&decode(raw.as_bytes()))).into_owned();
    let mut names: Vec<String> = Vec::new();
    for name in text.split(['/', '\\']).map(|segment| segment.split(';').next().unwrap()) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name.to_owned()),
        }
    }
    names
}

#[test]
fn no_spelling_that_reaches_a_backends_folder_passes_by_its_rules() {
    const PIECES: [&str; 24] = [
        "/", "/", "//", "admin", "admin", "a", "%61", "dmin", "x", "..", ".", "%2e", "%2F", "%5c", ";",
        ";v=1", "%3B", "%25", "2f", "2e", "%252F", "%00", "..;", "%2E%2e",
    ];
    let rules = rules();
    let (mut state, mut reached) = (1_u64, 0);
    for _ in 0..200_000 {
        let mut raw = String::from("/");
        for _ in 0..8 {
            // Knuth's constants: the order is the same in every run.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            raw.push_str(PIECES[(state >> 33) as usize % PIECES.len()]);
        }
        if generous(&raw).first().is_some_and(|name| name == "admin") {
            reached += 1;
            assert!(route(&rules, &raw).map_or(true, |route| route.guarded), "{raw}");
        }
    }
    assert!(reached > 1_000, "{reached}");
}

#[test]
fn services_and_servers_are_backends_and_a_function_is_passed_to_as_well() {
    let redirect = RuleTarget::Redirect { to: To::parse("/", None).unwrap(), status: StatusCode::FOUND };
    for (target, backend, passes_on) in [
        (RuleTarget::Service(3), Some(BackendId::Service(3)), true),
        (RuleTarget::Upstream(4), Some(BackendId::Target(4)), true),
        (RuleTarget::FastCgi(5), Some(BackendId::Target(5)), true),
        (RuleTarget::Hook("h".into()), None, true),
        (RuleTarget::Files, None, false),
        (redirect, None, false),
        (RuleTarget::Rewrite(To::parse("/", None).unwrap()), None, false),
    ] {
        assert_eq!(target.backend(), backend, "{target:?}");
        assert_eq!(path(1, "/", target.clone()).passes_on(), passes_on, "{target:?}");
    }
}

#[test]
fn each_term_by_itself_makes_a_rule_one_that_not_everybody_passes() {
    assert!(!AccessPolicy::default().guards());
    assert!(AccessPolicy { internal: true, ..AccessPolicy::default() }.guards());
    let mut policy = AccessPolicy::default();
    policy.network("0.0.0.0/0", true).unwrap();
    assert!(policy.guards());
}

#[test]
fn a_file_is_open_where_no_rule_acts_before_it() {
    let mut rules = Rules::default();
    rules.add(path(1, "/", RuleTarget::Files));
    rules.add(path(2, "/app/", RuleTarget::Upstream(9)));
    rules.add(Rule { fallback: true, ..path(3, "/try/", RuleTarget::Upstream(9)) });
    rules.add(denying(path(4, "/admin/", RuleTarget::Files)));
    for (raw, open) in [("/a", true), ("/app/a", false), ("/try/a", true), ("/admin/a", false)] {
        assert_eq!(route(&rules, raw).unwrap().is_open(), open, "{raw}");
    }
}

#[test]
fn among_rules_of_one_path_the_sites_own_is_the_weakest_and_a_service_the_strongest() {
    let service = || Rule { number: None, ..path(9, "/", RuleTarget::Service(3)) };
    let own = || {
        path(0, "/", RuleTarget::Redirect { to: To::parse("/x", None).unwrap(), status: StatusCode::FOUND })
    };
    let route_rule = || path(1, "/", RuleTarget::Upstream(4));
    let acts = |order: Vec<Rule>| {
        let mut rules = Rules::default();
        order.into_iter().for_each(|rule| rules.add(rule));
        route(&rules, "/a").unwrap().rule.unwrap().target.clone()
    };
    assert_eq!(acts(vec![own(), route_rule()]), RuleTarget::Upstream(4));
    assert_eq!(acts(vec![route_rule(), own()]), RuleTarget::Upstream(4));
    assert_eq!(acts(vec![service(), route_rule(), own()]), RuleTarget::Service(3));
    assert_eq!(acts(vec![own(), service(), route_rule()]), RuleTarget::Service(3));
}

#[test]
fn the_longest_suffix_acts_in_whatever_order_rules_stand() {
    let names = [".php", ".inc.php", ".x.inc.php"];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let mut rules = Rules::default();
        for index in order {
            rules.add(suffix(index, names[usize::from(index)], RuleTarget::Upstream(index)));
        }
        for (raw, expected) in [("/a.php", 0), ("/a.inc.php", 1), ("/a.x.inc.php", 2)] {
            assert_eq!(
                route(&rules, raw).unwrap().rule.unwrap().target,
                RuleTarget::Upstream(expected),
                "{order:?}"
            );
        }
    }
}

#[test]
fn a_service_answers_whatever_a_name_below_its_path_ends_with() {
    let mut rules = Rules::default();
    rules.add(Rule { number: None, ..path(9, "/app/", RuleTarget::Service(3)) });
    rules.add(suffix(2, ".php", RuleTarget::FastCgi(9)));
    rules.add(suffix(3, ".inc.php", RuleTarget::Upstream(8)));
    let acts = |raw: &str| route(&rules, raw).unwrap().rule.map(|rule| rule.target.clone());
    assert_eq!(acts("/app/a.php"), Some(RuleTarget::Service(3)));
    assert_eq!(acts("/a.php"), Some(RuleTarget::FastCgi(9)));
    assert_eq!(acts("/a.inc.php"), Some(RuleTarget::Upstream(8)), "the longest suffix");
    assert_eq!(acts("/a.php/more"), Some(RuleTarget::FastCgi(9)));
    assert_eq!(
        acts("/a.inc.php/more"),
        Some(RuleTarget::FastCgi(9)),
        "only a script has more of the path behind it"
    );
    assert_eq!(acts("/a"), None);
}

#[test]
fn headers_of_all_rules_that_cover_a_path_are_added_the_longest_path_last() {
    let with_header = |mut rule: Rule, value: &'static str| {
        rule.policy.headers.push((HeaderName::from_static("x"), HeaderValue::from_static(value)));
        rule
    };
    let mut rules = Rules::default();
    rules.add(with_header(path(1, "/a/", RuleTarget::Files), "one"));
    rules.add(with_header(path(0, "/", RuleTarget::Files), "own"));
    rules.add(with_header(path(2, "/b/", RuleTarget::Files), "two"));
    let matched = route(&rules, "/a/x").unwrap();
    let values: Vec<&str> = matched.headers().map(|(_, value)| value.to_str().unwrap()).collect();
    assert_eq!(values, ["own", "one"]);
    assert!(!matched.private());
}

#[test]
fn a_rule_is_found_by_its_number() {
    let mut rules = rules();
    assert_eq!(rules.get_mut(6).map(|rule| rule.matcher.clone()), Some(Matcher::suffix(".hook")));
    assert_eq!(rules.get_mut(2).map(|rule| rule.matcher.clone()), Some(Matcher::path("/app/v2/")));
    assert!(rules.get_mut(99).is_none());
    assert_eq!(rules.iter().count(), 9);
}

#[test]
fn a_folder_is_guarded_with_and_without_its_slash() {
    let mut rules = Rules::default();
    rules.add(denying(path(1, "/admin/", RuleTarget::Files)));
    for (raw, guarded) in [("/admin/", true), ("/admin", true), ("/admin/x", true), ("/administer", false)] {
        assert_eq!(route(&rules, raw).unwrap().guarded, guarded, "{raw}");
    }
}

/// Which rule acts where several are for a path.
#[test]
fn a_pattern_acts_before_a_suffix_and_the_closer_suffix_first() {
    let mut rules = Rules::default();
    let pattern =
        |number, text| rule(number, Matcher::pattern(Pattern::new(text).unwrap()), RuleTarget::Upstream(9));
    let both = |path: &str, suffix: &str| Matcher { suffix: Some(suffix.into()), ..Matcher::path(path) };
    rules.add(path(0, "/", RuleTarget::Files));
    rules.add(suffix(1, ".php", RuleTarget::FastCgi(1)));
    rules.add(rule(2, both("/app/", ".php"), RuleTarget::Upstream(2)));
    rules.add(rule(3, both("/app/very/long/path/", ".p"), RuleTarget::Upstream(3)));
    rules.add(path(4, "/app/", RuleTarget::Upstream(4)));
    rules.add(pattern(5, "^/app/x[0-9]+"));
    rules.add(pattern(6, "^/app/x"));
    for (raw, number) in [
        ("/a.php", 1),
        ("/app/a.php", 2),
        ("/app/very/long/path/a.p", 3),
        ("/app/very/long/path/a.php", 2),
        ("/app/a.txt", 4),
        ("/app/x1.php", 5),
        ("/app/xy.php", 6),
        ("/app/%782", 5),
    ] {
        assert_eq!(route(&rules, raw).unwrap().rule.unwrap().number, Some(number), "{raw}");
    }
    assert!(route(&rules, "/x").unwrap().rule.is_none());
}

#[test]
fn a_suffix_below_a_path_is_closed_in_every_spelling() {
    let mut rules = Rules::default();
    let matcher = Matcher { suffix: Some(".php".into()), ..Matcher::path("/uploads/") };
    rules.add(denying(rule(1, matcher, RuleTarget::Files)));
    rules.add(suffix(2, ".php", RuleTarget::FastCgi(9)));
    let guarded = |raw| route(&rules, raw).unwrap().guarded;
    for raw in [
        "/uploads/x.php",
        "/uploads/x.php/more",
        "//uploads//a/x.php",
        "/%75ploads/x.ph%70",
        "/uploads%2Fx.php",
        "/uploads/x.php;a/b",
    ] {
        assert!(guarded(raw), "{raw}");
    }
    for raw in ["/x.php", "/uploads/x.txt", "/uploads/", "/other/uploads/x.php"] {
        assert!(!guarded(raw), "{raw}");
    }
}

#[test]
fn a_pattern_closes_what_backends_may_take_for_it() {
    let mut rules = Rules::default();
    rules.add(denying(rule(1, Matcher::pattern(Pattern::new(r"^/admin(/|$)").unwrap()), RuleTarget::Files)));
    rules.add(denying(rule(2, Matcher::pattern(Pattern::new(r"\.inc\.php$").unwrap()), RuleTarget::Files)));
    rules.add(suffix(3, ".php", RuleTarget::FastCgi(9)));
    let guarded = |raw| route(&rules, raw).unwrap().guarded;
    for raw in [
        "/admin",
        "/admin/",
        "/admin/x",
        "/admin%2Fx",
        "/admin;x/y",
        "/%61dmin",
        "/a.inc.php",
        "/a.inc.php/more",
        "/x%FF",
    ] {
        assert!(guarded(raw), "{raw}");
    }
    for raw in ["/", "/administration", "/x/admin", "/a.php", "/a.inc.phpx"] {
        assert!(!guarded(raw), "{raw}");
    }
}
