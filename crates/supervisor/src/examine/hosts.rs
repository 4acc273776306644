//! Hosts of a site that none of its certificates names.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Sees: numbers and names that the reader of
//! certificates has printed. Never: speaks of a site whose certificates name no host at all: that is said of each
//! certificate.

use std::collections::BTreeMap;

use config::{Content, Finding, Subject};
use wire::tls::Verdict;

use super::answers::Answer;
use super::finding::warning;

/// What the certificates of one site name.
struct Site<'a> {
    /// The subject that a warning is about: the first certificate.
    subject: usize,
    hosts: &'a [&'a str],
    named: Vec<usize>,
    names: Vec<&'a str>,
}

/// Warns of hosts that none of the certificates of their site names, where one names others.
pub(super) fn unnamed_hosts<'a>(
    subjects: &'a [Subject<'a>],
    answers: &'a [(usize, Answer)],
) -> Vec<(usize, Finding)> {
    let mut sites: BTreeMap<usize, Site<'a>> = BTreeMap::new();
    for (number, answer) in answers {
        let Some(Subject { content: Content::Certificate { site, hosts, .. }, .. }) = subjects.get(*number)
        else {
            continue;
        };
        let Answer::Certificate { verdict: Verdict::Good, named, names, .. } = answer else { continue };
        let known = sites.entry(*site).or_insert_with(|| Site {
            subject: *number,
            hosts,
            named: Vec::new(),
            names: Vec::new(),
        });
        known.named.extend(named);
        known.names.extend(names.iter().map(String::as_str));
    }
    sites.into_values().filter_map(|site| Some((site.subject, site.finding()?))).collect()
}

impl Site<'_> {
    fn finding(&self) -> Option<Finding> {
        let hosts = self.hosts.iter().enumerate();
        let missing: Vec<&str> =
            hosts.filter(|(at, _)| !self.named.contains(at)).map(|(_, host)| *host).collect();
        if missing.is_empty() || self.named.is_empty() {
            return None;
        }
        let names = if self.names.is_empty() { "addresses alone".to_owned() } else { self.names.join(", ") };
        let (missing, these) =
            (missing.join(", "), if missing.len() == 1 { "this name" } else { "these names" });
        Some(warning(
            format!(
                "leaves out {missing} of the site's hosts (it names {names}): clients refuse the site under {these}"
            ),
            format!("have {missing} added to the certificate's subject alternative names"),
        ))
    }
}
