//! Every kind of rule, kind of name and spelling of it against a model of which names a rule guards.
//!
//! The model knows names and rules alone. No spelling of a name reaches a file that it guards; and a file that it
//! leaves open is open where it is written plainly.

#![allow(clippy::unwrap_used)]

use super::*;

const CASES: usize = 20_000;

/// Folders and names, of each kind that has been taken for another once.
const NAMES: [&str; 14] = [
    "admin",
    "a",
    ".env",
    ".json",
    ".a.json",
    "a.json",
    "x.php",
    ".php",
    ".x.php",
    "x.phpx",
    "php",
    "uploads",
    ".well-known",
    "a b",
];
const PREFIXES: [&str; 4] = ["/", "/admin/", "/uploads/", "/a"];
const SUFFIXES: [&str; 4] = [".env", ".json", ".php", "php"];
const PATTERNS: [&str; 4] = [r"\.env$", r"^/admin(/|$)", r"/\.[^/]*$", r"\.php$"];
const TARGETS: [RuleTarget; 5] = [
    RuleTarget::Files,
    RuleTarget::Upstream(9),
    RuleTarget::FastCgi(9),
    RuleTarget::Service(9),
    RuleTarget::Alias,
];

/// Knuth's constants: the order is the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// A rule that guards, of each kind.
fn matcher(seeded: &mut SeededRandom) -> Matcher {
    let path = seeded.one(&PREFIXES);
    let suffix = seeded.one(&SUFFIXES);
    match seeded.below(4) {
        0 => Matcher::path(path),
        1 => Matcher::suffix(suffix),
        2 => Matcher { suffix: Some(suffix.into()), ..Matcher::path(path) },
        _ => Matcher::pattern(Pattern::new(seeded.one(&PATTERNS)).unwrap()),
    }
}

/// Whether the rule guards the name: names below a path, and names that end with a suffix, be they hidden or nothing
/// but it.
fn guards(matcher: &Matcher, name: &str) -> bool {
    let is_below = |prefix: &str| match prefix.strip_suffix('/') {
        Some(folder) => name.starts_with(prefix) || name == folder,
        None => name == prefix || name.starts_with(&format!("{prefix}/")),
    };
    let pattern = |pattern: &Pattern| pattern.find(name.as_bytes()).is_some();
    matcher.path.as_deref().is_none_or(is_below)
        && matcher.suffix.as_deref().is_none_or(|suffix| name.split('/').any(|part| part.ends_with(suffix)))
        && matcher.pattern.as_ref().is_none_or(pattern)
}

/// A spelling of the name: one that this server, or a backend that is careless, takes for it.
fn spelling(seeded: &mut SeededRandom, name: &str) -> String {
    let mut out = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let escape = |text: &mut String, often: usize| {
            text.push('%');
            (1..often).for_each(|_| text.push_str("25"));
            text.push_str(&format!("{byte:02x}"));
        };
        match (byte, seeded.below(12)) {
            (b'/', 0) => out.push_str("//"),
            (b'/', 1) if at > 0 => out.push_str("%2F"),
            (b'/', 2) if at > 0 => out.push_str("%5c"),
            (b'/', 3) if at > 0 => out.push_str(";v=1/"),
            (b'/', 4) if at > 0 => out.push_str(";v%2Fw/"),
            (b'/', 5) if at > 0 => out.push_str("%3bv%2F"),
            (b'/', _) => out.push('/'),
            (_, 0) => escape(&mut out, 1),
            (_, 1) => escape(&mut out, 2),
            (b' ', _) => escape(&mut out, 1),
            _ => out.push(char::from(byte)),
        }
    }
    out.push_str(seeded.one(&[
        "",
        "",
        "",
        ";",
        ";x",
        "%3b",
        "%3fx",
        "%23x",
        "%253Fx",
        ";x%2Fy",
        "%3F/x%23/y",
    ]));
    out
}

fn rules(matcher: &Matcher, target: &RuleTarget) -> Rules {
    let mut rules = Rules::default();
    let mut guarding = Rule::new(Some(1), matcher.clone(), RuleTarget::Files);
    guarding.policy.network("0.0.0.0/0", false).unwrap();
    rules.add(guarding);
    rules.add(Rule::new(Some(2), Matcher::path("/"), target.clone()));
    rules.add(Rule::new(Some(3), Matcher::suffix(".php"), RuleTarget::FastCgi(8)));
    rules
}

#[test]
fn no_spelling_of_a_name_that_a_rule_guards_is_open() {
    let (mut seeded, mut guarded, mut open) = (SeededRandom(1), 0, 0);
    for _ in 0..CASES {
        let matcher = matcher(&mut seeded);
        let target = &TARGETS[seeded.below(TARGETS.len())];
        let name: String = (0..=seeded.below(3)).map(|_| format!("/{}", seeded.one(&NAMES))).collect();
        let rules = rules(&matcher, target);
        let written = spelling(&mut seeded, &name);
        let found = |raw: &str| NormalPath::parse(raw).and_then(|path| Ok(rules.find(&path)?.guarded));
        if guards(&matcher, &name) {
            guarded += 1;
            assert!(
                found(&written).unwrap_or(true),
                "{written} is {name}, which {matcher:?} guards before {target:?}"
            );
        } else {
            open += 1;
            let plain = name.replace(' ', "%20");
            let is_script_below = name.split_inclusive('/').scan(String::new(), |path, part| {
                path.push_str(part);
                Some(guards(&matcher, path.trim_end_matches('/')) || guards(&matcher, path))
            });
            let may_be_meant =
                is_script_below.into_iter().any(|is| is) || guards(&matcher, &format!("{name}/"));
            assert!(may_be_meant || found(&plain) == Ok(false), "{plain}: {matcher:?} before {target:?}");
        }
    }
    assert!(guarded > CASES / 5 && open > CASES / 5, "{guarded} {open}");
}
