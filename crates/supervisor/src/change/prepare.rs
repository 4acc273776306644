//! What a changed configuration means for what runs: which processes start, get successors or messages, and go.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. Never: changes anything.
//!
//! INVARIANT: the number of a site is its place in the configuration that runs, for as long as anybody knows the site
//! by it. A site that is changed gets another number, and one that has gone keeps its place until it is forgotten.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use config::{Config, SharedList, Site};
use wire::{Act, LauncherToSite, NO_PARTITION, Role, RouteTarget};

use crate::Supervisor;
use crate::change::{Change, plan::plan_config, restart};
use crate::life::Life;
use crate::lookup::is_pattern;
use crate::numbers::{NumberSet, Places};
use crate::setup::links::signs;
use crate::setup::opened::Opened;
use crate::setup::process_table::ProcessTable;
use crate::setup::route_table::RouteTable;
use crate::setup::{Messages, stapler};
use crate::site_order::SiteOrder;
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
    /// The sites that serve, in the order of the file.
    pub order: SiteOrder,
    /// Sites that are new, or take the place of one that has changed, by number.
    pub added: Vec<u16>,
    /// Sites that go, by number.
    pub gone: Vec<u16>,
    /// The slots of workers that stay, and learn whose other paths are.
    pub updated: Vec<usize>,
    /// The hosts of which gates must be told anew, if nothing else has changed for them; without it, all.
    pub hosts: Option<BTreeSet<String>>,
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
    let (old, old_order) = (supervisor.running_config(), supervisor.site_order());
    let refused = restart::refusals(&old.server, &new.server);
    if !refused.is_empty() {
        return Err(format!("{}; restart the server", refused.join("; ")));
    }
    let changes = plan_config(&old, &new);
    let numbered = &supervisor.context().config;
    let mut places = Places::new(numbered.sites.clone(), supervisor.numbers());
    let mut merged = merge(&mut places, (&old.sites, &old_order), &new.sites);
    let listed = new.sites;
    let config = Config { sites: places.sites.clone(), ..new };
    let is_same = numbered.is_same_but_for_sites(&config);
    let updated = sort_workers(supervisor, &config, (&mut places, &mut merged), is_same);
    let Places { sites, added, partitions, .. } = places;
    let Merged { gone, order } = merged;
    let config = Config { sites, ..config };
    let more = added.iter().map(|&site| 1 + config.sites[usize::from(site)].services.len());
    let count = partitions.len() + more.sum::<usize>();
    if config.sites.len().max(count) >= usize::from(NO_PARTITION) {
        return Err(
            "no more numbers are left for so many sites and services: those that have gone have processes \
                    yet; try again when these have ended"
                .into(),
        );
    }
    let gate = |config| Messages { config }.gate_limits();
    let is_same = is_same && first_sites(numbered, &old_order) == first_sites(&config, &order);
    let hosts = is_same.then(|| hosts_of_changes(&config, &gone, &added));
    let mut prepared = Prepared {
        hosts,
        replaces_gates: gate(&old) != gate(&config),
        replaces_chain: old.conditioning.filters != config.conditioning.filters,
        certificate_roles: certificate_roles(numbered, &config, &added, &gone),
        effects: Vec::new(),
        changes,
        config,
        order: SiteOrder { numbers: order, sites: listed },
        added,
        gone,
        updated,
    };
    prepared.effects = effects(supervisor, &prepared, partitions);
    Ok(prepared)
}

/// What becomes of the sites that there are, by number.
#[derive(Debug, PartialEq, Eq)]
struct Merged {
    /// Those that go.
    gone: Vec<u16>,
    /// Those that are to serve, in the order of the file.
    order: Vec<u16>,
}

/// Gives new sites places beside those that there are, which keep their numbers. A site that is as it was stays what it
/// is. `old` are the sites that serve, with their numbers.
fn merge(places: &mut Places, old: (&SharedList<Arc<Site>>, &[u16]), new: &SharedList<Arc<Site>>) -> Merged {
    let (old, numbers) = old;
    // Most of thousands are as they were, and are only looked at.
    let (first, last) = old.common_ends(new);
    let (old_end, new_end) = (old.len() - last, new.len() - last);
    let serving = || (first..old_end).map(|at| (&old[at], numbers[at]));
    let old_names: HashMap<&str, (&Arc<Site>, u16)> =
        serving().map(|(site, number)| (&*site.name, (site, number))).collect();
    let new_names: HashMap<&str, &Arc<Site>> =
        new.range(first..new_end).map(|site| (&*site.name, site)).collect();
    let stays = |site: &Arc<Site>| new_names.get(&*site.name).is_some_and(|new| *new == site);
    let gone = serving().filter(|(site, _)| !stays(site)).map(|(_, number)| number).collect();
    let mut order = numbers[..first].to_vec();
    for site in new.range(first..new_end) {
        let known = old_names.get(&*site.name).filter(|(old, _)| *old == site);
        order.push(known.map_or_else(|| places.add(site.clone()), |(_, number)| *number));
    }
    order.extend(&numbers[old_end..]);
    // The object that was read last: what is one object the next time need not be compared.
    order.iter().zip(new).for_each(|(&number, site)| places.put(number, site));
    Merged { gone, order }
}

/// Which of the sites that are as they were go on: those whose workers are told the same. A worker that need only learn
/// whose other paths are is updated, and returned; other sites are added as new ones.
fn sort_workers(
    supervisor: &Supervisor,
    config: &Config,
    (places, merged): (&mut Places, &mut Merged),
    is_same: bool,
) -> Vec<usize> {
    let going: NumberSet = merged.gone.iter().copied().collect();
    let serving = |slot: &usize| supervisor.slot(*slot).life == Life::Serving;
    let stays = |spec: &ProcessSpec| !going.contains(spec.site);
    let met = met_workers(supervisor, config, (&merged.gone, &places.added), is_same);
    let met: Vec<usize> =
        met.into_iter().filter(|slot| serving(slot) && stays(supervisor.spec(*slot))).collect();
    if met.is_empty() {
        return Vec::new();
    }
    let hosts: Vec<&String> =
        met.iter().flat_map(|&slot| &config.sites[usize::from(supervisor.spec(slot).site)].hosts).collect();
    // A worker is told of the hosts of its site, and one with a pattern of all.
    let old_specs = match is_same && !hosts.iter().any(|host| is_pattern(host)) {
        true => supervisor.specs_of_hosts(hosts, Life::Serving),
        false => supervisor.specs_for(Life::Serving),
    };
    let added = table(config, places.partitions.clone(), &places.added);
    let new_specs = old_specs.iter().copied().filter(|spec| stays(spec)).chain(&added);
    let new_specs = in_order(new_specs.filter(|spec| spec.is_first()).collect(), config, &merged.order);
    let (mut updated, mut replaced) = (Vec::new(), Vec::new());
    let (old, new) = (supervisor.context().messages(), Messages { config });
    let (old_table, new_table) =
        (RouteTable::new(old.config, &old_specs), RouteTable::new(new.config, &new_specs));
    for slot in met {
        let spec = supervisor.spec(slot);
        let before: Told = old.site_messages(spec, &old_table);
        let after: Told = new.site_messages(spec, &new_table);
        if before == after {
            continue;
        }
        match own(&before).eq(own(&after)) {
            true => updated.push(slot),
            false if spec.is_first() => replaced.push(spec.site),
            false => {}
        }
    }
    for site in replaced {
        let number = places.add(config.sites[usize::from(site)].clone());
        merged.order.iter_mut().filter(|place| **place == site).for_each(|place| *place = number);
        merged.gone.push(site);
    }
    updated
}

/// The slots of the workers who may be told something else than before, now that these sites go and come: what has
/// changed of a host is told to no worker that does not have the host, unless more than sites has changed.
fn met_workers(
    supervisor: &Supervisor,
    config: &Config,
    (gone, added): (&[u16], &[u16]),
    is_same: bool,
) -> Vec<usize> {
    let hosts = hosts_of_changes(config, gone, added);
    if is_same && !hosts.iter().any(|host| is_pattern(host)) {
        return match hosts.is_empty() {
            true => Vec::new(),
            false => supervisor.workers_meeting(&hosts).into_iter().collect(),
        };
    }
    let is_site = |slot: &usize| supervisor.spec(*slot).role == Role::Site;
    (0..supervisor.specs().len()).filter(is_site).collect()
}

/// The hosts of sites that go, and of those that come.
fn hosts_of_changes(config: &Config, gone: &[u16], added: &[u16]) -> BTreeSet<String> {
    let changed = gone.iter().chain(added).map(|&site| &config.sites[usize::from(site)]);
    changed.flat_map(|site| &site.hosts).cloned().collect()
}

/// For each listener the first site, in this order, that has all of a host there: it gets those who name none.
fn first_sites(config: &Config, order: &[u16]) -> Vec<Option<u16>> {
    let listeners = config.listeners.iter().map(|listener| {
        let answers = |number: &u16| {
            let site = &config.sites[usize::from(*number)];
            site.path == "/" && site.answers_on(listener) && (!listener.tls || site.tls.is_some())
        };
        order.iter().copied().find(answers)
    });
    listeners.collect()
}

/// What is said to a worker of its own site: an update can say which paths are others'.
fn own(told: &Told) -> impl Iterator<Item = &(LauncherToSite, Option<Opened>)> {
    let elsewhere = |message: &_| {
        use RouteTarget::{Elsewhere, Relayed};
        matches!(message, LauncherToSite::Route { target: Elsewhere | Relayed, .. })
    };
    told.iter().filter(move |(message, _)| !elsewhere(message))
}

/// The processes of these sites, which get none of the numbers in `partitions`.
fn table(config: &Config, partitions: NumberSet, sites: &[u16]) -> Vec<ProcessSpec> {
    let mut table = ProcessTable::new(config, None, partitions);
    for &site in sites {
        let partition = table.next_partition();
        // Without a table of uids, nothing fails.
        let _ = table.add_site(usize::from(site), partition);
    }
    table.specs
}

/// Specs in the order of the file.
fn in_order<'a>(mut specs: Vec<&'a ProcessSpec>, config: &Config, order: &[u16]) -> Vec<&'a ProcessSpec> {
    let mut places: Vec<Option<usize>> = vec![None; config.sites.len()];
    order.iter().enumerate().for_each(|(at, &number)| places[usize::from(number)] = Some(at));
    specs.sort_by_key(|spec| places.get(usize::from(spec.site)).copied().flatten());
    specs
}

/// The signer and the stapler are told which sites come and go, and keep what they know of the others. The stapler has
/// a successor where it may ask others.
fn certificate_roles(old: &Config, new: &Config, added: &[u16], gone: &[u16]) -> Vec<(Role, Act)> {
    let has_tls = |number: &u16| new.sites[usize::from(*number)].tls.is_some();
    let others = added.iter().chain(gone).any(has_tls);
    let stapled = old.tls.ocsp_ports != new.tls.ocsp_ports || old.log.flush_ms != new.log.flush_ms;
    if !others && !stapled && old.tls.ocsp == new.tls.ocsp {
        return Vec::new();
    }
    let going: NumberSet = gone.iter().copied().collect();
    let mut numbered = (0u16..).zip(&new.sites);
    let signs_after = numbered.any(|(number, site)| site.tls.is_some() && !going.contains(number));
    let roles = [
        (Role::Signer, signs(old), signs_after, false),
        (Role::Stapler, stapler::is_wanted(old), new.tls.ocsp && signs_after, stapled),
    ];
    let act = |(role, before, after, is_another)| match (before, after) {
        (false, true) => Some((role, Act::Start)),
        (true, false) => Some((role, Act::Stop)),
        (true, true) if is_another => Some((role, Act::Replace)),
        (true, true) if others => Some((role, Act::Update)),
        _ => None,
    };
    roles.into_iter().filter_map(act).collect()
}

/// What the changes mean for each process, gates last as they are changed last.
fn effects(supervisor: &Supervisor, prepared: &Prepared, partitions: NumberSet) -> Vec<Effect> {
    let Prepared { changes, config, added, gone, .. } = prepared;
    let mut effects = Vec::new();
    let mut add = |act, process: String, why: String| effects.push(Effect { act, process, why });
    let serves =
        |&slot: &usize| supervisor.slot(slot).life == Life::Serving && supervisor.spec(slot).is_first();
    let serving: Vec<usize> = (0..supervisor.specs().len()).filter(serves).collect();
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
    let mut new = table(config, partitions, added);
    new.retain(ProcessSpec::is_first);
    let going: NumberSet = gone.iter().copied().collect();
    let is_leaving = |slot: &&usize| going.contains(supervisor.spec(**slot).site);
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
    for &slot in prepared.updated.iter().filter(|&&slot| supervisor.spec(slot).is_first()) {
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
    use crate::numbers::{Numbers, leave_place};
    use std::path::Path;

    fn config(parts: &[(&str, &str)]) -> Config {
        let site = |(name, root): &(&str, &str)| {
            format!("[[site]]\nname = \"{name}\"\nhost = [\"{name}.test\"]\nroot = \"{root}\"\n")
        };
        let text = parts.iter().map(site).collect::<String>();
        Config::parse(&format!("[[listen]]\naddress = \"127.0.0.1:80\"\n{text}"), "test", Path::new("/srv"))
            .unwrap()
    }

    /// What is to run, by names, and the numbers of what goes and comes.
    fn merged(
        old: (&SharedList<Arc<Site>>, &[u16]),
        places: &mut Places,
        new: &Config,
    ) -> (Vec<String>, Merged) {
        let merged = merge(places, old, &new.sites);
        let named = |number: &u16| places.sites[usize::from(*number)].name.clone();
        let names: Vec<String> = merged.order.iter().map(named).collect();
        let wanted: Vec<String> = new.sites.iter().map(|site| site.name.clone()).collect();
        assert_eq!(names, wanted);
        (places.sites.iter().map(|site| site.name.clone()).collect(), merged)
    }

    #[test]
    fn numbers_stay_when_others_go_and_are_used_again_when_they_are_free() {
        let old = config(&[("a", "/a"), ("b", "/b"), ("c", "/c")]);
        let mut places = Places::new(old.sites.clone(), Numbers::default());
        let new = config(&[("c", "/c"), ("d", "/d"), ("b", "/other")]);
        let (names, Merged { gone, order }) = merged((&old.sites, &[0, 1, 2]), &mut places, &new);
        assert_eq!((names, &gone[..]), (["a", "b", "c", "d", "b"].map(str::to_owned).to_vec(), &[0, 1][..]));
        let mut sites = places.sites;
        gone.iter().for_each(|&gone| leave_place(sites.get_mut(gone.into()).unwrap()));
        let serving: SharedList<_> = order.iter().map(|&number| sites[usize::from(number)].clone()).collect();
        // One that comes back is a new one.
        let new = config(&[("a", "/a"), ("c", "/c"), ("d", "/d"), ("b", "/other"), ("e", "/e")]);
        let mut places = Places::new(sites.clone(), Numbers::default());
        let (names, Merged { gone, .. }) = merged((&serving, &order), &mut places, &new);
        assert_eq!((names.len(), &gone[..], &places.added[..]), (7, &[][..], &[5, 6][..]));
        assert_eq!(names[5], "a");
        // One of the two places is known to nobody.
        let mut places = Places::new(sites, Numbers { sites: vec![1], ..Numbers::default() });
        let (names, Merged { gone, .. }) = merged((&serving, &order), &mut places, &new);
        assert_eq!((names.len(), &gone[..], &places.added[..]), (6, &[][..], &[1, 5][..]));
        assert_eq!((&*names[1], &*names[5]), ("a", "e"));
    }
}
