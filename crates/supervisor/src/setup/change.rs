//! What a changed configuration means for what runs: which sites go on, which get successors, and what is refused.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. Never: changes anything.
//!
//! INVARIANT: the number of a site is its place in the configuration that runs, for as long as the launcher lives. A site
//! that is changed gets another number, and one that has gone keeps its place.

use std::time::Instant;

use config::{Config, Site};
use wire::{LauncherToGate, LauncherToSite, NO_PARTITION, RouteTarget};

use crate::change::Running;
use crate::setup::Opened;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// What a change of its configuration asks of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Messages.
    Update,
    /// A successor: what differs is said before it serves, or is part of its jail.
    Replace,
}

/// What a process is told, as far as the configuration says it.
pub enum Told {
    /// A gate: what holds for as long as it lives. The listeners and routes of a gate can always be updated.
    Gate(Vec<LauncherToGate>),
    /// A site's worker.
    Site(Vec<(LauncherToSite, Option<Opened>)>),
}

impl Told {
    /// What a gate is told.
    pub fn gate(context: &SpawnContext) -> Self {
        Self::Gate(context.gate_limits())
    }

    /// What the worker of a site is told.
    pub fn site(context: &SpawnContext, spec: &ProcessSpec, specs: &[&ProcessSpec]) -> Self {
        Self::Site(context.site_messages(spec, specs))
    }
}

/// What is asked of a process that was told `old` and is to know `new`.
pub fn change(old: &Told, new: &Told) -> Change {
    match (old, new) {
        (Told::Gate(old), Told::Gate(new)) if old == new => Change::Update,
        (Told::Site(old), Told::Site(new)) if old == new => Change::None,
        (Told::Site(old), Told::Site(new)) if own(old).eq(own(new)) => Change::Update,
        _ => Change::Replace,
    }
}

/// What is said to a worker of its own site: an update can say which paths are others'.
fn own(told: &[(LauncherToSite, Option<Opened>)]) -> impl Iterator<Item = &(LauncherToSite, Option<Opened>)> {
    let elsewhere =
        |message: &_| matches!(message, LauncherToSite::Route { target: RouteTarget::Elsewhere, .. });
    told.iter().filter(move |(message, _)| !elsewhere(message))
}

/// The keys that differ and that nothing but a restart of the server changes.
pub fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let differ = [
        ("[server]", old.server != new.server),
        ("[log]", old.log != new.log),
        ("[[conditioning.filter]]", old.conditioning.filters != new.conditioning.filters),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

/// A change of the configuration that is under way.
#[derive(Debug)]
pub struct Reload {
    /// The process whose client has asked.
    pub admin: u64,
    /// The number of the question.
    pub ticket: u32,
    /// When it was asked.
    pub begun: Instant,
    /// How many processes have yet to come up.
    pub left: usize,
    /// What has failed.
    pub failures: Vec<String>,
    /// What holds again if one does not come up; nothing, once all have.
    pub before: Option<Running>,
    /// Whether the new configuration holds.
    pub committed: bool,
    /// What gates are asked for besides new listeners and routes.
    pub gates: Change,
    /// Sites that go, by number.
    pub gone: Vec<u16>,
    /// The slots of workers that stay, and learn whose other paths are.
    pub updated: Vec<usize>,
}

/// Sites of two configurations, each at its number.
#[derive(Debug)]
pub struct Merged {
    /// Those that there were, at their places, then those that are new.
    pub sites: Vec<Site>,
    /// Those that go.
    pub gone: Vec<u16>,
}

/// Puts new sites behind those that there are. A site that is as it was stays what it is.
///
/// # Errors
/// No number is left.
pub fn merge(old: &[Site], new: &[Site]) -> Result<Merged, String> {
    let (mut sites, mut gone) = (old.to_vec(), Vec::new());
    let is_live = |site: &&Site| !site.hosts.is_empty();
    for (number, site) in (0u16..).zip(old).filter(|(_, site)| is_live(site)) {
        if !new.contains(site) {
            gone.push(number);
        }
    }
    sites.extend(new.iter().filter(|site| !old.contains(site)).cloned());
    if sites.len() >= usize::from(NO_PARTITION) {
        return Err(format!(
            "sites have changed {} times since the start, and no more numbers are left",
            old.len()
        ));
    }
    Ok(Merged { sites, gone })
}

/// Makes a place of a site that has gone: no route, no file and no certificate is its. What its processes were started
/// with stays, until they have ended.
pub fn leave_place(site: &mut Site) {
    site.hosts.clear();
    site.tls = None;
    site.terms = config::Terms::default();
    site.routes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn sites(text: &str) -> Config {
        let text =
            format!("[server]\nuser_range = \"50000-50100\"\n[[listen]]\naddress = \"127.0.0.1:80\"\n{text}");
        Config::parse(&text, "test", Path::new("/srv")).expect("a good configuration")
    }

    fn site(name: &str, root: &str) -> String {
        format!("[[site]]\nname = \"{name}\"\nhost = [\"{name}.test\"]\nroot = \"{root}\"\n")
    }

    #[test]
    fn numbers_stay_when_others_go() {
        let config = |parts: &[(&str, &str)]| {
            sites(&parts.iter().map(|(name, root)| site(name, root)).collect::<String>()).sites
        };
        let old = config(&[("a", "/a"), ("b", "/b"), ("c", "/c")]);
        let merged = merge(&old, &config(&[("c", "/c"), ("d", "/d"), ("b", "/other")])).expect("numbers");
        let names: Vec<&str> = merged.sites.iter().map(|site| &*site.name).collect();
        assert_eq!((names, &merged.gone[..]), (vec!["a", "b", "c", "d", "b"], &[0, 1][..]));
        let mut sites = merged.sites;
        merged.gone.iter().for_each(|&gone| leave_place(&mut sites[usize::from(gone)]));
        // One that comes back is a new one.
        let merged = merge(&sites, &config(&[("a", "/a"), ("c", "/c"), ("d", "/d"), ("b", "/other")]))
            .expect("numbers");
        assert_eq!((merged.sites.len(), &merged.gone[..]), (6, &[][..]));
        assert_eq!(&*merged.sites[5].name, "a");
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let old = sites(&site("a", "/a"));
        assert_eq!(needs_restart(&old, &sites(&site("b", "/b"))), [""; 0]);
        let mut new = old.clone();
        new.log.flush_ms += 1;
        new.server.gates = Some(3);
        assert_eq!(needs_restart(&old, &new), ["[server]", "[log]"]);
    }
}
