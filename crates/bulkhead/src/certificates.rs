//! `bulkhead status --certificates`: the certificates of all sites, until when they are valid, and their staples.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised: its words are printed with control characters escaped. Never: opens a certificate.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use wire::tls::Holding;

use crate::admin::{self, printable};
use crate::fault::Fault;
use crate::table::{age, align};

const HEADER: [&str; 7] = ["SITE", "CERTIFICATE", "KEY", "DAYS LEFT", "STAPLE", "FOR", "ASKED"];
const NUMBERS: [usize; 3] = [3, 5, 6];
const DAY: u64 = 24 * 3600;

/// What the server says why nothing, or nothing newer, is stapled; in words.
const TROUBLES: [(&str, &str); 8] = [
    ("no_responder", "names no responder"),
    ("unaskable", "cannot be asked for, see error.log"),
    ("awaited", "first answer awaited"),
    ("unanswered", "responder does not answer, see error.log"),
    ("refused", "answer of no use, see error.log"),
    ("unknown", "responder does not know it"),
    ("off", "`ocsp` is false"),
    ("unsaid", "stapler does not say"),
];

/// A certificate; times are in seconds since 1970.
#[derive(Debug, Deserialize)]
struct Certificate {
    site: String,
    file: String,
    fault: Option<String>,
    key: Option<String>,
    not_before: Option<u64>,
    not_after: Option<u64>,
    named: Option<bool>,
    staple: Staple,
}

#[derive(Debug, Deserialize)]
struct Staple {
    state: Option<String>,
    trouble: Option<String>,
    until: Option<u64>,
    asked: Option<u64>,
}

/// Asks the server at `run_dir` and prints what it says.
pub fn certificates(run_dir: &Path, json: bool) -> Result<ExitCode, Fault> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    admin::list(run_dir, "certificates", "certificates", json, |certificates| render(certificates, now))
}

fn render(certificates: &[Certificate], now: u64) -> String {
    if certificates.is_empty() {
        return "no site has a certificate".to_owned();
    }
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(certificates.iter().map(|one| one.row(now)));
    let mut text = align(&rows, &NUMBERS);
    for one in certificates {
        one.warnings(now).iter().for_each(|warning| {
            text +=
                &format!("\nwarning: {} of site {}: {warning}", printable(&one.file), printable(&one.site));
        });
    }
    text
}

impl Certificate {
    fn row(&self, now: u64) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let span = |from: u64, to: u64| age(to.saturating_sub(from).saturating_mul(1000));
        let left = self.not_after.map(|end| (end.saturating_sub(now) / DAY).to_string());
        vec![
            printable(&self.site),
            printable(&self.file),
            or_dash(self.key.as_deref().map(printable)),
            or_dash(left),
            self.staple.words(),
            or_dash(self.staple.until.map(|until| span(now, until))),
            or_dash(self.staple.asked.map(|asked| format!("{} ago", span(asked, now)))),
        ]
    }

    fn warnings(&self, now: u64) -> Vec<String> {
        let holding = Holding {
            not_before: self.not_before.unwrap_or(0),
            not_after: self.not_after.unwrap_or(0),
            named: self.named.unwrap_or(true),
            ..Holding::NOTHING
        };
        let objections = holding.objections(now);
        let objections = objections.map(|one| format!("it {}; {}", one.words(), one.remedy()));
        let revoked = self.staple.state.as_deref() == Some("revoked");
        let revoked = revoked.then(|| "its authority says that it is revoked: replace it".to_owned());
        let fault = self.fault.as_deref().map(printable).map(|fault| match self.key {
            Some(_) => format!("the file {fault}; what it said before is in use"),
            None => format!("the file {fault}; the site goes on without it"),
        });
        fault.into_iter().chain(objections).chain(revoked).collect()
    }
}

impl Staple {
    fn words(&self) -> String {
        let words = |trouble: &String| {
            let known = TROUBLES.iter().find(|(name, _)| name == trouble);
            known.map_or_else(|| printable(trouble), |(_, words)| (*words).to_owned())
        };
        let parts = [self.state.as_deref().map(printable), self.trouble.as_ref().map(words)];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        if text.is_empty() { "-".into() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Vec<Certificate> {
        let staple = |state, trouble, until, asked| json!({ "state": state, "trouble": trouble, "until": until, "asked": asked });
        let (none, nothing) = (None::<&str>, None::<u64>);
        let list = json!([
            { "site": "a", "file": "/a.pem", "fault": none, "key": "RSA", "not_after": 1000 + 90 * DAY,
              "staple": staple(Some("good"), none, Some(1000 + DAY), Some(940)) },
            { "site": "b", "file": "/b.pem", "fault": "has no\u{1b} key", "key": "Ed25519", "not_after": 1000 + 14 * DAY - 1,
              "staple": staple(Some("revoked"), Some("unanswered"), Some(u64::MAX), Some(2000)) },
            { "site": "c", "file": "/c.pem", "fault": "has no key", "key": none, "not_after": nothing,
              "staple": staple(none, Some("off"), nothing, nothing) },
            { "site": "d", "file": "/d.pem", "fault": none, "key": "RSA", "not_after": 1000,
              "staple": staple(none, Some("odd\u{1b}"), nothing, nothing) },
        ]);
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn the_last_days_are_counted_in_words_that_fit() {
        let says = |left: u64| {
            let mut one = list().remove(0);
            one.not_after = Some(1000 + left);
            one.warnings(1000)
        };
        assert_eq!(says(0), ["it has expired: clients refuse it; renew it"]);
        assert_eq!(says(DAY - 1), ["it ends within a day; renew it"]);
        assert_eq!(says(2 * DAY - 1), ["it ends in 1 day; renew it"]);
        assert_eq!(says(2 * DAY), ["it ends in 2 days; renew it"]);
        assert!(says(14 * DAY).is_empty());
    }

    #[test]
    fn what_clients_refuse_is_said() {
        let mut one = list().remove(0);
        (one.not_before, one.named) = (Some(1001), Some(false));
        let expected = [
            "it is not valid yet: clients refuse it; wait for its first day, or set this machine's clock right",
            "it names none of the site's hosts: clients refuse it; use a certificate whose subject alternative names \
             have one of them",
        ];
        assert_eq!(one.warnings(1000), expected);
        assert_eq!(one.warnings(1001), expected[1..]);
    }

    #[test]
    fn the_table_and_what_to_do() {
        let text = render(&list(), 1000);
        let (table, warnings) = text.split_once("\nwarning: ").unwrap();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[1], ["a", "/a.pem", "RSA", "90", "good", "1d00h", "1m00s ago"]);
        assert_eq!(
            lines[2][..5],
            ["b", "/b.pem", "Ed25519", "13", "revoked; responder does not answer, see error.log"]
        );
        assert_eq!(lines[3], ["c", "/c.pem", "-", "-", "`ocsp` is false", "-", "-"]);
        assert_eq!(lines[4][3..5], ["0", "odd\\u{1b}"]);
        let expected = [
            "/b.pem of site b: the file has no\\u{1b} key; what it said before is in use",
            "/b.pem of site b: it ends in 13 days; renew it",
            "/b.pem of site b: its authority says that it is revoked: replace it",
            "/c.pem of site c: the file has no key; the site goes on without it",
            "/d.pem of site d: it has expired: clients refuse it; renew it",
        ];
        assert_eq!(warnings.split("\nwarning: ").collect::<Vec<_>>(), expected);
        assert_eq!(render(&[], 1000), "no site has a certificate");
    }
}
