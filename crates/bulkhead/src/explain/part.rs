//! What one site has to do with, of a configuration that may have thousands of others.
//!
//! Runs in: the `bulkhead` command. Sees: the operator's configuration, and answers of the admin role. Never: says less
//! of a process than is said of it where everything is read, or that something is wrong: of that, who reads everything
//! says more.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use config::Config;
use wire::Role;

use super::ExplainInput;
use super::contacts::posts;
use super::running::{self, RunningProcesses, site_of};

/// What there is to know of the process called `partition`; nothing if that is none of a site, or not one that can be
/// told from what its site has to do with.
pub(super) fn of(path: &Path, partition: &str) -> Option<ExplainInput> {
    if Role::ALL.iter().any(|role| role.name() == partition) {
        return None;
    }
    of_site(path, partition, |run_dir| {
        running::ask_of(run_dir, site_of(partition), partition).map_err(|fault| fault.to_string())
    })
}

fn of_site(
    path: &Path,
    partition: &str,
    ask: impl Fn(&Path) -> Result<RunningProcesses, String>,
) -> Option<ExplainInput> {
    let (site, asked) = (site_of(partition), RefCell::new(None));
    // By the uids that the server reports, sites fall together that have nothing to do with each other in the
    // configuration.
    let mut alike = |run_dir: &Path| -> Option<BTreeSet<String>> {
        let server = ask(run_dir);
        let names = server.as_ref().map_or_else(|_| Some(BTreeSet::new()), |running| running.alike(site));
        asked.replace(Some(server));
        names
    };
    let config = Config::load_part(path, site, &mut alike).ok()??;
    let posts = posts(&config);
    let chosen = posts.iter().position(|post| post.name == partition)?;
    Some(ExplainInput { config, posts, server: asked.take()?, chosen: Some(chosen) })
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
