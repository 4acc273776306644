//! The calls that are meant to get past each policy: the tables in `tests/isolation/allowed`, evaluated from the rules
//! over the very calls that the sweep makes, and the part of docs/security/attempts.md that says why.
//!
//! `BLESS=1 cargo test -p probe --test allowed` writes the tables and the page anew; what changes in them is to be read
//! by a person. `tests/isolation/test_sweep.py` compares them with what gets past inside the jails.

#![allow(clippy::unwrap_used, reason = "a test that finds no table should panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use jail::policy::{Allow, Answer, Grants, KINDS, Policy, When};
use probe::names::of_call;
use probe::sweep::{TopicSummary, summary};
use sys::attempt::domain::{self, CallAttempt};

/// Rules that could go without a change, by a part of the name, and the reason why each stays.
const UNSEEN: &[(&str, &str)] = &[
    (
        "of \"code that is made while the program runs",
        "with `jit` every mapping is allowed, and each rule says of what",
    ),
    ("of \"room for code that is made while the program runs", "as above"),
    (
        "connect of \"a connection that is reset rather than ended",
        "the sweep's addresses are longer than a family: those are refused in both cases",
    ),
    ("setitimer of \"the end of a wait for the bytes of a socket", "the sweep has no timer run"),
    ("clone of \"its threads", "the sweep makes processes: a thread needs a stack of its own"),
    (
        "bit 0x4 of argument 1 for socketpair",
        "it tells streams from packets, and another rule allows pairs of these",
    ),
    (
        "bit 0x4 of argument 2 for mmap of \"code of libraries",
        "what is not executable is allowed by another rule",
    ),
];

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blesses() -> bool {
    std::env::var_os("BLESS").is_some()
        || std::env::var_os("BULKHEAD_WRITE_DOCS").is_some_and(|set| set == "1")
}

/// Everything that is swept; of descriptors, none is looked at by a policy.
fn everything() -> Vec<CallAttempt> {
    let mut lines = domain::lines();
    lines.extend(domain::on(-1));
    lines
}

fn answered(lines: &[CallAttempt], policy: Policy, answer: Answer) -> Vec<TopicSummary> {
    summary(lines, |_, line| {
        let (call, arguments) = line.registers();
        policy.answer(call, arguments) == answer
    })
}

fn table(kind: &str, policy: Policy, lines: &[CallAttempt]) -> String {
    let mut text = format!(
        "# What a process of the kind `{kind}` may ask of the kernel, by topics of the sweep; all else is refused.\n\
         # Evaluated from its policy (crates/jail/src/policy) by crates/probe/tests/allowed.rs: BLESS=1 renews it.\n"
    );
    for (topic, words) in answered(lines, policy, Answer::Allowed) {
        write(&mut text, &topic, &words);
    }
    for (topic, words) in answered(lines, policy, Answer::Notified) {
        write(&mut text, &format!("by its broker: {topic}"), &words);
    }
    text
}

/// `topic: word word`, continued on lines that begin with blanks.
fn write(text: &mut String, topic: &str, words: &[String]) {
    let mut line = format!("{topic}:");
    for word in words {
        if line.len() + word.len() > 110 {
            let _ = writeln!(text, "{line}");
            line = "   ".into();
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

#[test]
fn tables_are_what_the_policies_say() {
    let lines = everything();
    let mut stale = Vec::new();
    for (kind, policy) in KINDS {
        let path = top().join(format!("tests/isolation/allowed/{kind}.txt"));
        let text = table(kind, *policy, &lines);
        if fs::read_to_string(&path).unwrap_or_default() != text {
            stale.push(*kind);
            if blesses() {
                fs::write(&path, text).unwrap();
            }
        }
    }
    assert!(stale.is_empty() || blesses(), "tests/isolation/allowed is not what the policies say: {stale:?}");
}

/// Each call of each rule, each condition of it, each value and each bit of these shows in a table: without it
/// something else would get past.
#[test]
fn no_part_of_a_rule_can_be_taken_away_unseen() {
    let lines = everything();
    let mut tried: BTreeMap<i64, Vec<[u64; 6]>> = BTreeMap::new();
    for line in &lines {
        let (call, arguments) = line.registers();
        tried.entry(call).or_default().push(arguments);
    }
    // By what would be taken away: whether a table of any kind that has it would change.
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    for (_, policy) in KINDS {
        let rules: Vec<&Allow> = policy.rules().collect();
        for rule in &rules {
            let changed = changed(rule);
            for &call in rule.calls {
                let others = rules.iter().filter(|other| !std::ptr::eq(**other, *rule));
                let others: Vec<&&Allow> = others.filter(|other| other.calls.contains(&call)).collect();
                let only_by_it =
                    |arguments: &&[u64; 6]| !others.iter().any(|other| other.covers(call, arguments));
                let tried: Vec<&[u64; 6]> =
                    tried.get(&call).into_iter().flatten().filter(only_by_it).collect();
                let name = format!("{} of \"{}\"", of_call(call), rule.why);
                let shows = tried.iter().any(|arguments| rule.covers(call, arguments));
                *seen.entry(name.clone()).or_default() |= shows;
                for (part, other) in &changed {
                    let shows = tried
                        .iter()
                        .any(|arguments| other.covers(call, arguments) != rule.covers(call, arguments));
                    *seen.entry(format!("{part} for {name}")).or_default() |= shows;
                }
            }
        }
    }
    let unseen = seen.iter().filter(|(_, shows)| !**shows).map(|(name, _)| name.as_str());
    let unseen: Vec<&str> =
        unseen.filter(|name| !UNSEEN.iter().any(|(known, _)| name.contains(known))).collect();
    assert!(unseen.is_empty(), "these could go, and no table would change:\n{}", unseen.join("\n"));
}

/// The rule without each of its conditions, without each value of one, and without each bit that one looks at.
fn changed(rule: &Allow) -> Vec<(String, Allow)> {
    let mut changed = Vec::new();
    for (at, when) in rule.when.iter().enumerate() {
        let with = |instead: Option<When>| {
            let others = [&rule.when[..at], instead.as_slice(), &rule.when[at + 1..]].concat();
            Allow { calls: rule.calls, when: others.leak(), why: rule.why }
        };
        changed.push((format!("{when:?}"), with(None)));
        match *when {
            When::In(argument, values) => changed.extend(values.iter().map(|value| {
                let others: Vec<u64> = values.iter().copied().filter(|other| other != value).collect();
                (
                    format!("value {value:#x} of argument {argument}"),
                    with(Some(When::In(argument, others.leak()))),
                )
            })),
            When::Bits(argument, mask, wanted) => {
                let bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
                changed.extend(bits.map(|bit| {
                    let less = When::Bits(argument, mask & !bit, wanted & !bit);
                    (format!("bit {bit:#x} of argument {argument}"), with(Some(less)))
                }));
            }
            When::Is(..) | When::Exactly(..) => {}
        }
    }
    changed
}

/// docs/security/attempts.md has every rule once, with its reason.
#[test]
fn the_page_says_why() {
    const BEGIN: &str = "<!-- allowed -->\n";
    const END: &str = "<!-- end -->";
    let path = top().join("docs/security/attempts.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (part, after) = rest.split_once(END).unwrap();
    let text = reasons();
    if part != text && blesses() {
        fs::write(&path, [before, BEGIN, &text, END, after].concat()).unwrap();
    }
    assert!(
        part == text || blesses(),
        "docs/security/attempts.md is not what the policies say; BLESS=1 renews it"
    );
}

fn reasons() -> String {
    let lines = everything();
    let roles: Vec<&(&str, Policy)> =
        KINDS.iter().filter(|(_, policy)| !matches!(policy, Policy::Service(_))).collect();
    let of_all: Vec<&Allow> =
        roles[0].1.rules().filter(|rule| roles.iter().all(|of| has(of.1, rule))).collect();
    let mut sections: Vec<(String, Vec<&Allow>)> = vec![("Every role".into(), of_all)];
    for (kind, policy) in KINDS {
        let summary: Vec<*const Allow> =
            sections[..1].iter().flat_map(|(_, rules)| rules).map(|rule| std::ptr::from_ref(*rule)).collect();
        let plain = Policy::Service(Grants::NONE);
        let more = matches!(policy, Policy::Service(_)) && *policy != plain;
        let new = policy.rules().filter(|rule| !summary.contains(&std::ptr::from_ref(*rule)));
        let new: Vec<&Allow> = new.filter(|rule| !(more && has(plain, rule))).collect();
        let title = match *kind {
            "signer" => continue,
            "service" => "Every service and filter".into(),
            "service-network" => "A service with `network`, besides".into(),
            "service-jit" => "A service or filter with `jit`, besides".into(),
            "connector" => "A site's connector, besides".into(),
            "connector-names" => "A site's connector, if a server has a name, besides".into(),
            "connector-of-service" => "A service's connector, besides".into(),
            role => format!("The {role}, besides"),
        };
        sections.push((title, new));
    }
    let mut text = String::new();
    for (title, rules) in sections {
        let _ = write!(text, "#### {title}\n\n| calls | why |\n| --- | --- |\n");
        for rule in rules {
            let _ = writeln!(text, "| {} | {} |", words(rule, &lines), rule.why);
        }
        text.push('\n');
    }
    text
}

fn has(policy: Policy, rule: &Allow) -> bool {
    policy.rules().any(|other| std::ptr::eq(other, rule))
}

/// The calls, and with which arguments, in the words of the sweep.
fn words(rule: &Allow, lines: &[CallAttempt]) -> String {
    if rule.when.is_empty() {
        let calls: Vec<String> = rule.calls.iter().map(|call| format!("`{}`", of_call(*call))).collect();
        return calls.join(" ");
    }
    let summary = summary(lines, |_, line| {
        let (call, arguments) = line.registers();
        !line.topic.starts_with("calls") && line.topic != "on a descriptor" && rule.covers(call, &arguments)
    });
    let summary: Vec<String> =
        summary.iter().map(|(topic, words)| format!("`{topic}`: {}", words.join(" "))).collect();
    summary.join("; ").replace('|', "\\|")
}
