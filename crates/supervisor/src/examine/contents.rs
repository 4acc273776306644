//! Has the program `signer` read files, in the signer's jail (`readers`), and says what is wrong with them.
//!
//! Runs in: the launcher, as root, which waits here, and the commands `check` and `run`. Sees: a few short lines.
//! Never: reads a file itself: certificates and lists come from authorities, keys are read by a library in C, and both
//! would be read as root. Files with keys and others are read by two processes, so that no mistake in a file of users
//! leads to a key.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use config::{Content, Finding, Opener, Setting, Severity, Subject};
use wire::tls::{Holding, Verdict};

use super::Examiner;
use super::answers::Answer;
use super::finding::{Depth, error, warning};
use super::hosts::unnamed_hosts;
use super::identities::Identities;
use super::readers::{Answered, Question, Readers};

impl Examiner<'_> {
    /// What is wrong in files with certificates, keys, authorities, lists and users.
    pub(super) fn of_contents(
        &self,
        setting: &Setting<'_>,
        identities: &Identities<'_>,
        subjects: &[Subject<'_>],
    ) -> Vec<(usize, Finding)> {
        let opener = Opener::of(setting.dir);
        let mut versions = opener.versions();
        let (mut secret, mut others) = (Vec::new(), Vec::new());
        let mut is_unread = self.known.unread(&mut versions);
        for (number, subject) in subjects.iter().enumerate() {
            let Some((line, paths)) = question(subject) else { continue };
            let kind = match subject.content {
                Content::Certificate { key, .. } if !is_unread(subject.path, key) => continue,
                Content::Certificate { .. } => &mut secret,
                _ => &mut others,
            };
            kind.push(Question { subject: number, line, paths });
        }
        let mut readers = Readers::of(self, setting, identities);
        readers.ask(secret);
        readers.ask(others);
        let Answered { answers, findings: mut found } = readers.finish();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for (number, answer) in &answers {
            let Some(subject) = subjects.get(*number) else { continue };
            let mut findings = findings(subject, answer, now);
            // What clients have against a certificate, the launcher says by itself when its signer has read it.
            findings.retain(|one| {
                let of_certificate = matches!(answer, Answer::Certificate { .. });
                self.depth == Depth::Check || one.severity == Severity::Error || !of_certificate
            });
            found.extend(findings.into_iter().map(|finding| (*number, finding)));
        }
        found.extend(unnamed_hosts(subjects, &answers));
        found
    }

    /// Somebody else may be able to read what this user cannot.
    pub(super) fn unread(&self, fault: &io::Error) -> Finding {
        let (what, help) = (
            format!("cannot be read by this user, so what is in it is not checked: {fault}"),
            "check as the user who starts bulkhead",
        );
        match self.depth {
            Depth::Check if !self.is_root => warning(what, help),
            _ => error(format!("cannot be read: {fault}"), "let the user who starts bulkhead read it"),
        }
    }
}

/// What is asked of a subject, and its files.
fn question<'s>(subject: &Subject<'s>) -> Option<(String, Vec<&'s Path>)> {
    let line = match &subject.content {
        Content::Certificate { key, hosts, .. } => {
            let files = if key.is_some() { 2 } else { 1 };
            let line = std::iter::once(format!("certificate {files}"))
                .chain(hosts.iter().map(|host| (*host).to_owned()));
            let line = line.collect::<Vec<_>>().join(" ");
            return Some((line, std::iter::once(subject.path).chain(*key).collect()));
        }
        Content::Authorities => "authorities",
        Content::RevocationLists => "lists",
        Content::Users => "users",
        _ => return None,
    };
    Some((line.to_owned(), vec![subject.path]))
}

/// What is to be said of the certificates above a site's own, and of those that have nothing to do with it.
fn of_chain(out_of_date: u16, left_out: u16) -> impl Iterator<Item = Finding> {
    let old = (out_of_date > 0).then(|| {
        let message = format!("has {} of authorities out of date, sent last", certificates(out_of_date));
        warning(
            message,
            "take the chain from the authority again, and put it behind the site's own certificate",
        )
    });
    let others = (left_out > 0).then(|| {
        let message = format!("has {} outside of its chain, not sent", certificates(left_out));
        warning(message, "take them out, or put the certificates between into the file")
    });
    old.into_iter().chain(others)
}

fn certificates(count: u16) -> String {
    if count == 1 { "1 certificate".to_owned() } else { format!("{count} certificates") }
}

fn findings(subject: &Subject<'_>, answer: &Answer, now: u64) -> Vec<Finding> {
    match answer {
        Answer::Good => Vec::new(),
        Answer::Odd(what) => {
            vec![warning(format!(": {what}"), "nobody can log in until there is one: `htpasswd -B`")]
        }
        Answer::Bad(what) => {
            let path = subject.path.display();
            let help = match &subject.content {
                Content::Users => format!("write such lines with `htpasswd -B {path} NAME`"),
                Content::Authorities => "put the certificates of the authorities into it, as PEM".to_owned(),
                _ => "have the authority write the whole list anew".to_owned(),
            };
            vec![error(format!("cannot be used: {what}"), help)]
        }
        Answer::Certificate { verdict: Verdict::Good, validity, named, out_of_date, left_out, .. } => {
            let (not_before, not_after) = validity;
            let holding = Holding {
                not_before: *not_before,
                not_after: *not_after,
                named: !named.is_empty(),
                ..Holding::NOTHING
            };
            let objections = holding.objections(now);
            let objections = objections.map(|one| warning(one.words(), one.remedy()));
            objections.chain(of_chain(*out_of_date, *left_out)).collect()
        }
        Answer::Certificate { verdict, .. } => {
            let key = match &subject.content {
                Content::Certificate { key: Some(key), .. } => format!(" (`key` is {})", key.display()),
                _ => String::new(),
            };
            vec![error(format!("{}{key}", verdict.words()), verdict.remedy())]
        }
    }
}
