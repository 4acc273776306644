//! Having publishers read their templates again: one site after the other, and what each publisher says.
//!
//! Runs in: the admin role. Sees: reports of publishers, which may be compromised. Never: hands a name on; it finds the
//! number that the launcher gave it.

use std::os::fd::OwnedFd;

use crate::admin::{Admin, read_output};
use crate::command::Command;
use crate::reply::{OrderReply, RepublishedSite};
use crate::targets::TEMPLATES_OF;

impl Admin {
    /// Has the publishers of a site, or of all, read their templates again, one after the other.
    pub(crate) async fn republish(&self, site: Option<String>) -> OrderReply {
        let known = self.sites_with_templates();
        let sites = match &site {
            None => known.clone(),
            Some(site) if known.contains(site) => vec![site.clone()],
            Some(site) => return OrderReply::wrong(without_templates(site, &known)),
        };
        let mut republished = Vec::new();
        for site in sites {
            let (report, error) = match self.give(Command::Republish { site: Some(site.clone()) }).await.0 {
                OrderReply::Reported { report, .. } => (report, None),
                // There is no such publisher any more.
                OrderReply::Done { .. } => continue,
                OrderReply::Failed { error, .. } => (serde_json::Value::Null, Some(error)),
                _ => (serde_json::Value::Null, Some("no answer".to_owned())),
            };
            republished.push(RepublishedSite { site, report, error });
        }
        match (republished.is_empty(), site) {
            (false, _) => OrderReply::Republished { ok: true, sites: republished },
            (true, None) => OrderReply::wrong("no site has templates; `[site.templates]` gives it some"),
            (true, Some(site)) => OrderReply::wrong(without_templates(&site, &[])),
        }
    }

    /// The sites of which a publisher is known.
    fn sites_with_templates(&self) -> Vec<String> {
        let targets = self.targets.borrow();
        let mut sites: Vec<String> =
            targets.names().filter_map(|name| name.strip_suffix(TEMPLATES_OF)).map(str::to_owned).collect();
        sites.sort_unstable();
        sites.dedup();
        sites
    }

    /// Takes what a publisher says, to its end.
    pub(crate) async fn publisher_output(&self, ticket: u32, output: OwnedFd) {
        let (text, read) = read_output(output).await;
        self.finish(
            ticket,
            match read {
                Ok(_) => OrderReply::reported(&text),
                Err(error) => {
                    OrderReply::failed(format!("the publisher's report could not be read: {error}"))
                }
            },
        );
    }
}

/// Why the templates of a site cannot be published.
fn without_templates(site: &str, known: &[String]) -> String {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let meant = suggest::did_you_mean(site, &names);
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("there is no site {site:?} with templates; {meant}those with templates are: {known}")
}
