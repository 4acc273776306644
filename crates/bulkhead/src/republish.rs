//! `bulkhead republish`: the templates of a site, or of all, as they are now.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: reports of publishers, which may be
//! compromised, by way of the admin role. Never: prints a control character of theirs.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::admin::{give_for, printable};
use crate::fault::Fault;
use crate::table::print;

/// How long it may take; above the 600 s after which the admin role gives up.
const WAIT: Duration = Duration::from_secs(610);

/// What is said of a site.
#[derive(Debug, Deserialize)]
struct PublishedSite {
    site: String,
    report: Option<PublisherReport>,
    error: Option<String>,
}

/// What its publisher says.
#[derive(Debug, Deserialize)]
struct PublisherReport {
    published: bool,
    version: String,
    templates: usize,
    processes: usize,
    mistakes: Vec<Mistake>,
    reasons: Vec<String>,
}

/// A mistake in a template.
#[derive(Debug, Deserialize)]
struct Mistake {
    file: String,
    line: usize,
    rule: String,
    excerpt: String,
}

/// Publishes the templates of a site, or of all, and says how it went.
pub fn republish(run_dir: &Path, site: Option<&str>, json: bool) -> Result<ExitCode, Fault> {
    let command = json!({ "command": "republish", "site": site });
    let found = give_for(run_dir, &command, WAIT)?["sites"].take();
    let sites: Vec<PublishedSite> = serde_json::from_value(found.clone())
        .map_err(|error| Fault::Failed(format!("the answer is not a list of sites: {error}")))?;
    if json {
        print(&format!("{:#}", json!({ "sites": found })))?;
    } else {
        sites.iter().try_for_each(|site| print(&site.text()))?;
    }
    Ok(if sites.iter().all(PublishedSite::is_published) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl PublishedSite {
    fn is_published(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.published)
    }

    fn text(&self) -> String {
        let site = printable(&self.site);
        let Some(report) = &self.report else {
            let error = self.error.as_deref().unwrap_or("its publisher gave no reason");
            return format!("{site}: not published: {}", printable(error));
        };
        let PublisherReport { published, version, templates, processes, mistakes, reasons } = report;
        if *published {
            let (of, holds) = (plural(*templates, "template"), plural(*processes, "process"));
            return format!("{site}: version {} with {of} holds in {holds}", printable(version));
        }
        let mistakes = mistakes.iter().map(Mistake::text);
        let lines: String =
            mistakes.chain(reasons.iter().map(|reason| format!("\n  {}", printable(reason)))).collect();
        match version.is_empty() {
            true => format!("{site}: not published, what held before holds:{lines}"),
            false => format!(
                "{site}: version {} is published, but perhaps not everywhere yet:{lines}",
                printable(version)
            ),
        }
    }
}

impl Mistake {
    fn text(&self) -> String {
        let (file, rule) = (printable(&self.file), printable(&self.rule));
        match self.line {
            0 => format!("\n  {file}: {rule}"),
            line => format!("\n  {file}:{line}: {rule}\n      {}", printable(&self.excerpt)),
        }
    }
}

fn plural(count: usize, what: &str) -> String {
    let ending = match (count, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: serde_json::Value) -> String {
        let site: PublishedSite =
            serde_json::from_value(json!({ "site": "a", "report": report, "error": null })).unwrap();
        site.text()
    }

    #[test]
    fn what_has_become_of_a_site_is_said_in_its_own_words() {
        let good = json!({ "published": true, "version": "0f", "templates": 1, "processes": 2, "mistakes": [], "reasons": [] });
        assert_eq!(text(good), "a: version 0f with 1 template holds in 2 processes");
        let mistake = json!({ "file": "b\u{1b}.html", "line": 3, "rule": "no", "excerpt": "{% x" });
        let wrong = json!({ "published": false, "version": "", "templates": 0, "processes": 0, "mistakes": [mistake], "reasons": ["late"] });
        assert_eq!(
            text(wrong),
            "a: not published, what held before holds:\n  b\\u{1b}.html:3: no\n      {% x\n  late"
        );
    }
}
