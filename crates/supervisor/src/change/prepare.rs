//! What a changed configuration means for what runs: which processes start, get successors or messages, and go.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. Never: changes anything.
//!
//! INVARIANT: the number of a site is its place in the configuration that runs, for as long as the launcher lives. A site
//! that is changed gets another number, and one that has gone keeps its place.

use std::collections::HashSet;

use config::{Config, Site};
use wire::{Act, LauncherToSite, NO_PARTITION, Role, RouteTarget};

use crate::Supervisor;
use crate::change::{Change, plan::plan_config, restart};
use crate::life::Life;
use crate::setup::opened::Opened;
use crate::setup::process_table::{ProcessTable, signs};
use crate::setup::{Messages, stapler};
use crate::spawn::process_spec::ProcessSpec;

/// What the changes mean for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What is done.
    pub act: Act,
    /// With which process, by its title.
    pub process: String,
    /// For which changes.
    pub why: String,
}

/// A change of the configuration that could be carried out.
#[derive(Debug)]
pub struct Prepared {
    /// What has changed.
    pub changes: Vec<Change>,
    /// What that means.
    pub effects: Vec<Effect>,
    /// What is to run, each site at its number.
    pub config: Config,
    /// The names of the sites in the order of the file.
    pub order: Vec<String>,
    /// The number of the first site that is new, or takes the place of one that has changed.
    pub first: usize,
    /// Sites that go, by number.
    pub gone: Vec<u16>,
    /// The slots of workers that stay, and learn whose other paths are.
    pub updated: Vec<usize>,
    /// Whether gates get successors.
    pub replaces_gates: bool,
    /// What becomes of the signer and of the stapler, if anything.
    pub certificate_roles: Vec<(Role, Act)>,
    /// Whether the filters are others.
    pub replaces_chain: bool,
}

/// What a site's worker is told, as far as the configuration says it.
type Told = Vec<(LauncherToSite, Option<Opened>)>;

/// What becomes of everything that runs if `new` takes the place of its configuration.
///
/// # Errors
/// Why it cannot.
pub fn prepare(supervisor: &Supervisor, new: Config) -> Result<Prepared, String> {
    let old = supervisor.running_config();
    let refused = restart::refusals(&old.server, &new.server);
    if !refused.is_empty() {
        return Err(format!("{}; restart the server", refused.join("; ")));
    }
    let changes = plan_config(&old, &new);
    let numbered = &supervisor.context().config;
    let first = numbered.sites.len();
    let order: Vec<String> = new.sites.iter().map(|site| site.name.clone()).collect();
    let (mut config, mut gone) = merge(&numbered.sites, new);
    let updated = sort_workers(supervisor, &mut config, &mut gone, &order, first);
    if config.sites.len() >= usize::from(NO_PARTITION) {
        return Err(format!(
            "sites have changed {} times since the start, and no more numbers are left; restart the server",
            numbered.sites.len()
        ));
    }
    let gate = |config| Messages { config }.gate_limits();
    let mut prepared = Prepared {
        replaces_gates: gate(&old) != gate(&config),
        replaces_chain: old.conditioning.filters != config.conditioning.filters,
        certificate_roles: certificate_roles(numbered, &config, first, &gone),
        effects: Vec::new(),
        changes,
        config,
        order,
        first,
        gone,
        updated,
    };
    prepared.effects = effects(supervisor, &prepared);
    Ok(prepared)
}

/// Puts new sites behind those that there are, which keep their numbers; also says which go. A site that is as it was
/// stays what it is.
fn merge(old: &[Site], mut new: Config) -> (Config, Vec<u16>) {
    let live = (0u16..).zip(old).filter(|(_, site)| is_live(site));
    let gone = live.filter(|(_, site)| !new.sites.contains(site)).map(|(number, _)| number).collect();
    let added = new.sites.iter().filter(|site| !old.contains(site)).cloned();
    new.sites = old.iter().cloned().chain(added).collect();
    (new, gone)
}

/// Whether this is the place of a site that serves.
pub fn is_live(site: &Site) -> bool {
    !site.hosts.is_empty()
}

/// Makes a place of a site that has gone: no route, no file and no certificate is its. What its processes were started
/// with stays, until they have ended.
pub fn leave_place(site: &mut Site) {
    site.hosts.clear();
    site.tls = None;
    site.terms = config::Terms::default();
    site.routes.clear();
}

/// Which of the sites that are as they were go on: those whose workers are told the same. A worker that need only learn
/// whose other paths are is updated, and returned; other sites are added as new ones.
fn sort_workers(
    supervisor: &Supervisor,
    config: &mut Config,
    gone: &mut Vec<u16>,
    order: &[String],
    first: usize,
) -> Vec<usize> {
    let serving = |slot: &usize| supervisor.slot(*slot).life == Life::Serving;
    let sites = |slot: &usize| supervisor.spec(*slot).role == Role::Site;
    let slots: Vec<usize> = (0..supervisor.specs().len()).filter(serving).collect();
    let old_specs = supervisor.specs_for(Life::Serving);
    let stays = |spec: &ProcessSpec| !gone.contains(&spec.site);
    let added = table(config, None, supervisor, first);
    let new_specs = slots.iter().map(|&slot| supervisor.spec(slot)).filter(|spec| stays(spec)).chain(&added);
    let new_specs = in_order(new_specs.collect(), config, order);
    let (mut updated, mut replaced) = (Vec::new(), Vec::new());
    for slot in slots.into_iter().filter(sites) {
        let spec = supervisor.spec(slot);
        if gone.contains(&spec.site) {
            continue;
        }
        let before: Told = supervisor.context().messages().site_messages(spec, &old_specs);
        let after: Told = Messages { config }.site_messages(spec, &new_specs);
        if before == after {
            continue;
        }
        match own(&before).eq(own(&after)) {
            true => updated.push(slot),
            false => replaced.push(spec.site),
        }
    }
    let again: Vec<Site> = replaced.iter().map(|&site| config.sites[usize::from(site)].clone()).collect();
    config.sites.extend(again);
    gone.extend(replaced);
    updated
}

/// What is said to a worker of its own site: an update can say which paths are others'.
fn own(told: &Told) -> impl Iterator<Item = &(LauncherToSite, Option<Opened>)> {
    let elsewhere = |message: &_| {
        use RouteTarget::{Elsewhere, Relayed};
        matches!(message, LauncherToSite::Route { target: Elsewhere | Relayed, .. })
    };
    told.iter().filter(move |(message, _)| !elsewhere(message))
}

/// The processes of the sites from this number on.
fn table(
    config: &Config,
    identities: Option<&mut crate::spawn::uids::Uids>,
    supervisor: &Supervisor,
    first: usize,
) -> Vec<ProcessSpec> {
    let mut table = ProcessTable::new(config, identities, supervisor.next_partition());
    for site in first..config.sites.len() {
        let partition = table.next_partition();
        // Without a table of uids, nothing fails.
        let _ = table.add_site(site, partition);
    }
    table.specs
}

/// Specs in the order of the file.
fn in_order<'a>(mut specs: Vec<&'a ProcessSpec>, config: &Config, order: &[String]) -> Vec<&'a ProcessSpec> {
    let places: std::collections::HashMap<&str, usize> =
        order.iter().enumerate().map(|(at, name)| (&**name, at)).collect();
    let place = |spec: &&ProcessSpec| {
        config.sites.get(usize::from(spec.site)).and_then(|site| places.get(&*site.name)).copied()
    };
    specs.sort_by_key(place);
    specs
}

/// Certificates are read by a successor of the signer, which never had the keys of a site that has gone.
fn certificate_roles(old: &Config, new: &Config, first: usize, gone: &[u16]) -> Vec<(Role, Act)> {
    let serves = |number: usize| !gone.iter().any(|&site| usize::from(site) == number);
    let has_tls = |site: &Site| site.tls.is_some();
    let others = new.sites[first..].iter().any(has_tls)
        || gone.iter().any(|&site| has_tls(&new.sites[usize::from(site)]));
    let mut after = new.clone();
    let live = |(number, site): (usize, &Site)| serves(number).then(|| site.clone());
    after.sites = new.sites.iter().enumerate().filter_map(live).collect();
    let stapled = old.tls.ocsp_ports != new.tls.ocsp_ports || old.log.flush_ms != new.log.flush_ms;
    let roles = [
        (Role::Signer, signs(old), signs(&after), others),
        (Role::Stapler, stapler::is_wanted(old), stapler::is_wanted(&after), others || stapled),
    ];
    let act = |(role, before, after, differs)| match (before, after) {
        (false, true) => Some((role, Act::Start)),
        (true, false) => Some((role, Act::Stop)),
        (true, true) if differs => Some((role, Act::Replace)),
        _ => None,
    };
    roles.into_iter().filter_map(act).collect()
}

/// What the changes mean for each process, gates last as they are changed last.
fn effects(supervisor: &Supervisor, prepared: &Prepared) -> Vec<Effect> {
    let Prepared { changes, config, first, gone, .. } = prepared;
    let mut effects = Vec::new();
    let mut add = |act, process: String, why: String| effects.push(Effect { act, process, why });
    let serving: Vec<usize> =
        (0..supervisor.specs().len()).filter(|&slot| supervisor.slot(slot).life == Life::Serving).collect();
    if changes.iter().any(|change| matches!(change, Change::Log(..) | Change::Server(..))) {
        add(
            Act::Update,
            Role::Logger.name().into(),
            reasons(changes, |change| matches!(change, Change::Log(..) | Change::Server(..))),
        );
    }
    for &(role, act) in &prepared.certificate_roles {
        let site_or_tls = |change: &Change| change.is_of_a_site() || matches!(change, Change::Tls(..));
        add(act, role.name().into(), reasons(changes, site_or_tls));
    }
    let new = table(config, None, supervisor, *first);
    let is_leaving = |slot: &&usize| gone.contains(&supervisor.spec(**slot).site);
    let leaving: Vec<&ProcessSpec> =
        serving.iter().filter(is_leaving).map(|&slot| supervisor.spec(slot)).collect();
    let titles = |specs: &[&ProcessSpec]| specs.iter().map(|spec| spec.title()).collect::<HashSet<_>>();
    let (old_titles, new_titles) = (titles(&leaving), titles(&new.iter().collect::<Vec<_>>()));
    for spec in &new {
        let title = spec.title();
        let act = if old_titles.contains(&title) { Act::Replace } else { Act::Start };
        add(act, title, site_reasons(changes, &config.sites[usize::from(spec.site)].name));
    }
    for spec in leaving {
        let title = spec.title();
        if !new_titles.contains(&title) {
            add(Act::Stop, title, site_reasons(changes, &config.sites[usize::from(spec.site)].name));
        }
    }
    for &slot in &prepared.updated {
        let others = |change: &Change| change.is_of_a_site() || matches!(change, Change::Listener(_));
        add(Act::Update, supervisor.spec(slot).title(), reasons(changes, others));
    }
    if prepared.replaces_chain {
        let old = serving.iter().filter(|&&slot| supervisor.spec(slot).role == Role::Filter).count();
        let (new, filters) = (config.conditioning.filters.len(), |change: &Change| {
            matches!(change, Change::Filter(_) | Change::Order(crate::change::List::Filters, _))
        });
        for place in 0..old.max(new) {
            let act = match (place < old, place < new) {
                (true, true) => Act::Replace,
                (false, _) => Act::Start,
                (_, false) => Act::Stop,
            };
            add(act, format!("{} {place}", Role::Filter.name()), reasons(changes, filters));
        }
    }
    if changes.iter().any(changes_gates) {
        let act = if prepared.replaces_gates { Act::Replace } else { Act::Update };
        for &slot in serving.iter().filter(|&&slot| supervisor.spec(slot).role == Role::Gate) {
            let why = if prepared.replaces_gates { changes_limits } else { changes_gates };
            add(act, supervisor.spec(slot).title(), reasons(changes, why));
        }
    }
    effects
}

fn changes_gates(change: &Change) -> bool {
    !matches!(change, Change::Restart(..) | Change::Server(..) | Change::Relaunch(_) | Change::File(_))
}

/// Whether a change can be one of what holds for as long as a gate, or a worker, lives.
fn changes_limits(change: &Change) -> bool {
    let tables = matches!(change, Change::Limits(..) | Change::Conditioning(..) | Change::Tls(..));
    tables || matches!(change, Change::Log(old, new) if old.flush_ms != new.flush_ms)
}

/// Why the processes of a site start or end: what has changed of the site itself, or else of all.
fn site_reasons(changes: &[Change], name: &str) -> String {
    if changes.iter().any(|change| change.is_of_site(name)) {
        return reasons(changes, |change| change.is_of_site(name));
    }
    let all =
        |change: &Change| changes_limits(change) || matches!(change, Change::Listener(_) | Change::Filter(_));
    reasons(changes, all)
}

fn reasons(changes: &[Change], which: impl Fn(&Change) -> bool) -> String {
    let text = |change: &Change| match change.keys() {
        keys if keys.is_empty() => format!("{change} {}", change.verb().word()),
        keys => format!("{change}: {}", keys.join(", ")),
    };
    changes.iter().filter(|change| which(change)).map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(parts: &[(&str, &str)]) -> Config {
        let site = |(name, root): &(&str, &str)| {
            format!("[[site]]\nname = \"{name}\"\nhost = [\"{name}.test\"]\nroot = \"{root}\"\n")
        };
        let text = parts.iter().map(site).collect::<String>();
        Config::parse(&format!("[[listen]]\naddress = \"127.0.0.1:80\"\n{text}"), "test", Path::new("/srv"))
            .unwrap()
    }

    #[test]
    fn numbers_stay_when_others_go() {
        let old = config(&[("a", "/a"), ("b", "/b"), ("c", "/c")]);
        let (merged, gone) = merge(&old.sites, config(&[("c", "/c"), ("d", "/d"), ("b", "/other")]));
        let names: Vec<&str> = merged.sites.iter().map(|site| &*site.name).collect();
        assert_eq!((names, &gone[..]), (vec!["a", "b", "c", "d", "b"], &[0, 1][..]));
        let mut sites = merged.sites;
        gone.iter().for_each(|&gone| leave_place(&mut sites[usize::from(gone)]));
        // One that comes back is a new one.
        let new = config(&[("a", "/a"), ("c", "/c"), ("d", "/d"), ("b", "/other")]);
        let (merged, gone) = merge(&sites, new);
        assert_eq!((merged.sites.len(), &gone[..]), (6, &[][..]));
        assert_eq!(&*merged.sites[5].name, "a");
    }
}
