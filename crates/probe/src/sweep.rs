//! The sweep: not what is known to be a way out, but every value of every argument that a policy might look at.
//!
//! Runs in: the probe, and in programs of the tests that got a client's connection. Sees: nothing. Never: says more
//! of a call than whether it gets past the policy.
//!
//! A test tells from the tables of the policies, in the same words, which calls are *meant* to get past
//! (`tests/allowed.rs`), for the same domain; the two are compared.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use serde_json::{Value, json};
use sys::attempt::domain::{self, CallAttempt, CallOutcome, Form, ValueNames};
use sys::attempt::{child, odd};

use crate::look;
use crate::names::of_call;

/// How long the whole sweep may take.
///
/// LIMIT: some 25,000 calls of which hardly any does anything take well below a second; the launcher waits for 60 s.
const TIME: Duration = Duration::from_secs(40);

/// A topic with those of its values for which something holds, as they are read.
pub type TopicSummary = (String, Vec<String>);

/// Makes every call of the domain, and every operation on one descriptor of each kind that the process holds; gives
/// what got past the policy.
///
/// In a child, where there can be one, as what gets past might change the process.
pub fn run() -> Value {
    let mut held = held();
    let (made, _own) = stand_ins();
    for (kind, descriptor) in &made {
        held.entry(kind).or_insert(descriptor.as_raw_fd());
    }
    match child::isolated(TIME, || sweep(&held, true).to_string().into_bytes()) {
        Ok(ended) => serde_json::from_slice(&ended.bytes).unwrap_or_else(
            |_| json!({"error": format!("the child that swept has not reported: {ended:?}")}),
        ),
        Err(_) => sweep(&held, false),
    }
}

fn sweep(held: &BTreeMap<&'static str, i32>, child: bool) -> Value {
    let lines = domain::lines();
    let outcomes: Vec<CallOutcome> = lines.iter().map(CallAttempt::make).collect();
    let with = |wanted| json(summary(&lines, |at, _| outcomes[at] == wanted));
    let on: BTreeMap<&str, Vec<String>> =
        held.iter().map(|(kind, number)| (*kind, done_on(*number))).collect();
    json!({
        "format": 1,
        "children": child,
        "tried": outcomes.iter().filter(|outcome| **outcome != CallOutcome::LeftOut).count(),
        "reached": with(CallOutcome::Reached),
        "missing": with(CallOutcome::Missing),
        "on": on,
    })
}

fn json(summary: Vec<TopicSummary>) -> Value {
    json!(summary.into_iter().collect::<BTreeMap<_, _>>())
}

fn done_on(number: i32) -> Vec<String> {
    let lines = domain::on(number);
    let summary = summary(&lines, |_, line| line.make() == CallOutcome::Reached);
    summary.into_iter().flat_map(|(_, words)| words).collect()
}

/// One descriptor of each kind.
fn held() -> BTreeMap<&'static str, i32> {
    let mut held = BTreeMap::new();
    for number in look::open_descriptors() {
        held.entry(kind_of(number)).or_insert(number);
    }
    held
}

/// The descriptors that a process may hold later, as far as it can make them now; and the folder that the file is in.
fn stand_ins() -> (Vec<(&'static str, OwnedFd)>, Option<look::Own>) {
    let socket = |kind| socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).ok();
    let own = look::Own::new().ok();
    let file = own.as_ref().and_then(|own| own.file("file").ok());
    let made = [
        ("TCP-socket", socket(SocketType::STREAM)),
        ("UDP-socket", socket(SocketType::DGRAM)),
        ("directory", look::open(".", false).ok().map(OwnedFd::from)),
        ("file", file.map(|(_, file)| file.into())),
    ];
    (made.into_iter().filter_map(|(kind, made)| Some((kind, made?))).collect(), own)
}

/// The kind of a descriptor. Policies leave a role few questions: a descriptor that is no socket is then nothing more.
fn kind_of(number: i32) -> &'static str {
    let Some(copy) = odd::duplicate(number) else { return "descriptor" };
    match (sockopt::socket_domain(&copy), sockopt::socket_type(&copy)) {
        (Ok(AddressFamily::INET | AddressFamily::INET6), Ok(SocketType::STREAM)) => return "connection",
        (_, Ok(SocketType::SEQPACKET)) => return "channel",
        (_, Ok(SocketType::STREAM)) => return "stream",
        (_, Ok(_)) => return "socket",
        (_, Err(_)) => {}
    }
    match fstat(&copy).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Directory) => "directory",
        Ok(FileType::RegularFile) => "file",
        Ok(FileType::CharacterDevice) => "device",
        Ok(FileType::Fifo) => "pipe",
        Ok(_) => "event",
        Err(_) => "descriptor",
    }
}

/// Those lines for which `is` holds, as a person reads them: a topic once, its values joined, and topics joined that
/// are alike and have the same values.
pub fn summary(lines: &[CallAttempt], is: impl Fn(usize, &CallAttempt) -> bool) -> Vec<TopicSummary> {
    let mut at = 0;
    let mut summary: Vec<TopicSummary> = Vec::new();
    for topic in lines.chunk_by(|one, other| one.topic == other.topic) {
        let (first, all) = (at, topic.len());
        at += all;
        let numbered = topic.iter().enumerate();
        let (found, rest): (Vec<_>, Vec<_>) = numbered.partition(|(within, line)| is(first + within, line));
        let found: Vec<&CallAttempt> = found.into_iter().map(|(_, line)| line).collect();
        let rest: Vec<&CallAttempt> = rest.into_iter().map(|(_, line)| line).collect();
        let words = match topic[0].form {
            Form::Number(_) | Form::Bit(_) if rest.is_empty() => vec!["any".into()],
            Form::Number(_) | Form::Bit(_) if found.len() > rest.len() => {
                [vec!["any-but".into()], words(rest)].concat()
            }
            _ => words(found),
        };
        if !words.is_empty() {
            add(&mut summary, &topic[0].topic, words);
        }
    }
    summary
}

fn add(summary: &mut Vec<TopicSummary>, topic: &str, words: Vec<String>) {
    for (known, _) in summary.iter_mut().filter(|(_, its)| *its == words) {
        if let Some(joined) = join(known, topic) {
            *known = joined;
            return;
        }
    }
    summary.push((topic.into(), words));
}

/// `mmap <r> flags` and `mmap <w> flags` are `mmap <r, w> flags`.
fn join(known: &str, topic: &str) -> Option<String> {
    let (before, (members, after)) =
        known.split_once('<').and_then(|(b, rest)| Some((b, rest.split_once('>')?)))?;
    let member = topic.strip_prefix(before)?.strip_prefix('<')?.strip_suffix(after)?.strip_suffix('>')?;
    Some(format!("{before}<{members}, {member}>{after}"))
}

fn words(mut lines: Vec<&CallAttempt>) -> Vec<String> {
    lines.sort_by_key(|line| line.value);
    let mut words = Vec::new();
    let mut run: Option<(u64, u64)> = None;
    for line in lines {
        let word = match line.form {
            Form::Word(word) => Some(word.to_owned()),
            Form::Call => i64::try_from(line.value).ok().map(of_call),
            Form::Bit(names) => named(names, line.value).or_else(|| Some(format!("{:#x}", line.value))),
            Form::Number(names) => named(names, line.value),
        };
        run = match (word, run) {
            (None, Some((first, last))) if last + 1 == line.value => Some((first, line.value)),
            (None, before) => {
                words.extend(before.map(range));
                Some((line.value, line.value))
            }
            (Some(word), before) => {
                words.extend(before.map(range));
                words.push(word);
                None
            }
        };
    }
    words.extend(run.map(range));
    words
}

fn named(names: ValueNames, value: u64) -> Option<String> {
    names.iter().find(|(known, _)| *known == value).map(|(_, name)| (*name).to_owned())
}

fn range((first, last): (u64, u64)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(topic: &str, is: impl Fn(u64) -> bool) -> String {
        let lines: Vec<CallAttempt> =
            domain::lines().into_iter().filter(|line| line.topic == topic).collect();
        let summary = summary(&lines, |_, line| is(line.value));
        summary.into_iter().map(|(topic, words)| format!("{topic}: {}", words.join(" "))).collect()
    }

    #[test]
    fn values_are_joined() {
        assert_eq!(of("madvise", |value| [0, 1, 2, 7, 9].contains(&value)), "madvise: 0-2 7 9");
        assert_eq!(of("madvise", |_| true), "madvise: any");
        assert_eq!(of("madvise", |value| value != 5), "madvise: any-but 5");
        assert_eq!(of("madvise", |_| false), "");
        assert_eq!(
            of("setsockopt tcp", |value| (1..=5).contains(&value)),
            "setsockopt tcp: TCP_NODELAY \
            TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL"
        );
        assert_eq!(
            of("sendto flags", |value| value == 0x40 || value == 1 << 31),
            "sendto flags: MSG_DONTWAIT \
            0x80000000"
        );
        assert_eq!(of("calls with arguments -1", |value| value < 2), "calls with arguments -1: read write");
        let alike = ["mmap <r> flags", "mmap <x> flags"];
        let lines: Vec<CallAttempt> =
            domain::lines().into_iter().filter(|line| alike.contains(&&*line.topic)).collect();
        assert_eq!(super::summary(&lines, |_, _| true), [("mmap <r, x> flags".into(), vec!["any".into()])]);
        assert_eq!(super::summary(&lines, |_, line| line.value == 1 || line.topic == alike[0]).len(), 2);
    }

    #[test]
    fn what_it_holds_is_known() {
        let (_one, _other) = sys::seqpacket::pair().unwrap();
        assert!(held().contains_key("channel"));
    }
}
