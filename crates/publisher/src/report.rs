//! The report to the administrator: JSON, which goes to the admin role on a socket of its own, and so past the
//! launcher.

use std::os::fd::OwnedFd;

use serde::Serialize;
use templates::TemplateMistake;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

/// LIMIT: mistakes that are told.
const MISTAKES_MAX: usize = 50;

/// How publishing has ended.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PublishReport {
    /// Whether the version holds in every process.
    pub(crate) published: bool,
    /// Which version: 16 hexadecimal digits.
    pub(crate) version: String,
    /// How many templates it has.
    pub(crate) templates: usize,
    /// In how many processes it holds.
    pub(crate) processes: usize,
    /// The mistakes in the templates.
    pub(crate) mistakes: Vec<FoundMistake>,
    /// Other reasons that have kept it from being published, or may keep it from holding everywhere.
    pub(crate) reasons: Vec<String>,
}

/// A mistake in a template.
#[derive(Debug, Serialize)]
pub(crate) struct FoundMistake {
    file: String,
    line: usize,
    rule: String,
    excerpt: String,
}

impl PublishReport {
    /// Nothing has changed, as the templates have mistakes.
    pub(crate) fn wrong(mistakes: &[TemplateMistake]) -> Self {
        let found = mistakes.iter().take(MISTAKES_MAX).cloned();
        let found = found.map(|TemplateMistake { file, line, rule, excerpt }| FoundMistake {
            file,
            line,
            rule,
            excerpt,
        });
        Self { mistakes: found.collect(), ..Self::default() }
    }

    /// Writes it to the admin role, which may have gone.
    pub(crate) async fn send(&self, socket: OwnedFd) {
        let stream = std::os::unix::net::UnixStream::from(socket);
        let ready = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        if let (Ok(mut stream), Ok(text)) = (ready, serde_json::to_vec(self)) {
            let _ = stream.write_all(&text).await;
        }
    }
}
