//! Servers behind a site: the keys of a route that go with `upstream` and `fastcgi`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: tables of the operator's file. Must never: take a
//! key that means nothing to the kind of server that the route has.

use crate::decode::Table;
use crate::diagnostic::Problems;
use crate::parse::{KeyFault, names, one_of};
use crate::rules;
use crate::schema::{Limits, Site};
use crate::statics_schema::{Action, Backend, ProxyHeader, Speech, Talk};

impl Default for Talk {
    fn default() -> Self {
        let answer_timeout_ms = rules::ANSWER_TIMEOUT_MS.default.unwrap_or_default() as u32;
        Self {
            proxy_header: ProxyHeader::None,
            answer_timeout_ms,
            requests: None,
            buffer: true,
            script: None,
        }
    }
}

impl Site {
    /// Bytes of bodies that each of its workers keeps in a file; none where no server waits for a whole body.
    pub fn spool_bytes(&self, general: &Limits) -> Option<u64> {
        let longest = self.limits.over(general, &self.routes).body_bytes;
        let buffers = self.backends().any(|(_, backend)| backend.talk.buffer);
        buffers.then(|| self.limits.spool_bytes(longest, self.workers.max))
    }

    /// The servers behind it, each with the number of its rule, which stands for it everywhere: the site's own rule is
    /// 0, its routes follow in the order of the file.
    pub fn backends(&self) -> impl Iterator<Item = (u16, Backend<'_>)> {
        self.routes.iter().zip(1..).filter_map(|(route, number)| {
            let (servers, speech) = match &route.action {
                Action::Upstream(servers) => (servers, Speech::Http),
                Action::Fastcgi(servers) => (servers, Speech::FastCgi),
                _ => return None,
            };
            Some((number, Backend { servers, speech, talk: &route.talk }))
        })
    }
}

/// The keys of a route that say how its servers are talked to.
pub(crate) fn talk(table: &Table<'_>, problems: &mut Problems) -> Talk {
    for (key, with) in KEYS {
        if let Some(entry) = table.get(key)
            && with.iter().all(|action| table.get(action).is_none())
        {
            let message = format!("`{key}` goes with {}, which this route does not have", named(with));
            problems.report_help(entry.offset, message, "remove it");
        }
    }
    let proxy_header = table.get("proxy_protocol").and_then(|entry| entry.parsed(proxy_header, problems));
    let script = table.get("script").and_then(|entry| entry.string(names::url_path, problems));
    Talk {
        proxy_header: proxy_header.map_or(ProxyHeader::None, |header| header.value),
        answer_timeout_ms: table.duration_ms("answer_timeout", &rules::ANSWER_TIMEOUT_MS, problems),
        requests: table.optional_count("requests", &rules::REQUESTS, problems),
        buffer: table.get("buffer").and_then(|entry| entry.boolean(problems)).unwrap_or(true),
        script: script.map(|script| script.value),
    }
}

/// Which keys go with which actions.
const KEYS: [(&str, &[&str]); 5] = [
    ("proxy_protocol", &["upstream"]),
    ("script", &["fastcgi"]),
    ("answer_timeout", &["upstream", "fastcgi"]),
    ("requests", &["upstream", "fastcgi"]),
    ("buffer", &["upstream", "fastcgi"]),
];

fn named(actions: &[&str]) -> String {
    actions.iter().map(|action| format!("`{action}`")).collect::<Vec<_>>().join(" or ")
}

fn proxy_header(text: &str) -> Result<ProxyHeader, KeyFault> {
    match text {
        "v1" => Ok(ProxyHeader::Version1),
        "v2" => Ok(ProxyHeader::Version2),
        _ => Err(one_of("the versions of the PROXY protocol are", text, &["v1", "v2"])),
    }
}
