//! Publishing a version in two phases: staged by all, then activated in all.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use templates::{Sources, TemplateMistake, TemplateSet};
use tokio::time::{Instant, timeout_at};

use crate::kept::Memory;
use crate::members::{Members, PublishProgress, Version};
use crate::report::PublishReport;

/// LIMIT: how long all processes may take to compile a version, and how long to say that it holds. A process answers
/// between two requests, so this is how long one may keep its thread.
const PHASE: Duration = Duration::from_secs(10);

/// Reads a version from the folder and compiles it, so that mistakes are found before anybody is sent it.
pub(crate) fn read(folder: &OwnedFd, values: &Sources) -> Result<Version, Vec<TemplateMistake>> {
    let mut sources = templates::read(folder)?;
    sources.values.clone_from(&values.values);
    compile(sources)
}

/// Compiles a version.
pub(crate) fn compile(sources: Sources) -> Result<Version, Vec<TemplateMistake>> {
    let number = TemplateSet::compile(sources.clone())?.version();
    Ok(Version { number, sources })
}

/// Publishes a version. Its outcome is decided at one moment, between the two phases: that at which it is kept.
pub(crate) async fn publish(members: &Members, memory: &RefCell<Memory>, version: Version) -> PublishReport {
    let version = Rc::new(version);
    let (number, templates) = (version.number, version.sources.templates.len());
    members.stage(version.clone());
    let PublishProgress { missing, refused, .. } = wait(members, |members| members.staging(number)).await;
    let silent = missing.iter().map(|service| late(service, "compiled it"));
    let mut reasons: Vec<String> = refused.into_iter().chain(silent).collect();
    if reasons.is_empty() {
        reasons.extend(
            memory.borrow_mut().keep(&version).err().map(|error| format!("no memory keeps it: {error}")),
        );
    }
    members.end_staging(reasons.is_empty());
    if !reasons.is_empty() {
        return PublishReport { reasons, ..PublishReport::default() };
    }
    let PublishProgress { done, missing, .. } = wait(members, |members| members.activation(number)).await;
    PublishReport {
        published: missing.is_empty(),
        version: format!("{number:016x}"),
        templates,
        processes: done,
        mistakes: Vec::new(),
        reasons: missing.iter().map(|service| late(service, "said that it holds there")).collect(),
    }
}

fn late(service: &str, what: &str) -> String {
    format!("a process of service {service} has not {what} within {} s", PHASE.as_secs())
}

/// Waits until nobody is missing, somebody refuses, or the time is over.
async fn wait(members: &Members, progress: impl Fn(&Members) -> PublishProgress) -> PublishProgress {
    let until = Instant::now() + PHASE;
    loop {
        let found = progress(members);
        let is_over = found.missing.is_empty() || !found.refused.is_empty();
        if is_over || timeout_at(until, members.changed.notified()).await.is_err() {
            return found;
        }
    }
}
