//! What makes one configuration of another: the planner, and its opposite.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations, and when files were written. Never: changes what
//! runs.
//!
//! INVARIANT: the plan from `old` to `new`, applied to `old`, gives `new`; a plan from a model to itself is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{CertificateFiles, Conditioning, Config, SharedList, Site};
use sys::file_version::FileVersion;

use crate::change::edits::{apply as apply_edit, edits, edits_of_unique, reorder};
use crate::change::{Change, Edit, FileId, List};

/// The version of a file, and of that of its key.
pub type Stamp = (FileVersion, Option<FileVersion>);

/// What runs, or is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The configuration, with the sites that serve in the order of the file.
    pub config: Config,
    /// The files that processes read again, and how each was when they last read it.
    pub files: BTreeMap<FileId, Stamp>,
    /// How often each name was relaunched by a command.
    pub relaunches: BTreeMap<String, u32>,
}

impl Model {
    /// A configuration alone.
    pub fn of(config: Config) -> Self {
        Self { config, files: BTreeMap::new(), relaunches: BTreeMap::new() }
    }
}

/// Every change that makes `new` of `old`, in the order in which they are to be read.
pub fn plan(old: &Model, new: &Model) -> Vec<Change> {
    let mut changes = plan_config(&old.config, &new.config);
    changes.extend(plan_files(&old.files, &new.files));
    let relaunched = new.relaunches.iter().filter(|(name, count)| old.relaunches.get(*name) != Some(*count));
    changes.extend(relaunched.map(|(name, _)| Change::Relaunch(name.clone())));
    changes
}

/// The files that were written since they were read. Those that are new or gone go with the site that names them.
pub fn plan_files(old: &BTreeMap<FileId, Stamp>, new: &BTreeMap<FileId, Stamp>) -> Vec<Change> {
    let written = new.iter().filter(|(file, stamp)| old.get(*file).is_some_and(|before| before != *stamp));
    written.map(|(file, _)| Change::File(file.clone())).collect()
}

/// The changes of a configuration.
pub fn plan_config(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    plan_tables(old, new, &mut changes);
    let (listeners, order) = edits(&old.listeners, &new.listeners, |listener| listener.address);
    changes.extend(listeners.into_iter().map(Change::Listener));
    changes.extend(order.map(|from| Change::Order(List::Listeners, from)));
    let (old_filters, new_filters) = (&old.conditioning.filters, &new.conditioning.filters);
    let (filters, order) = edits(old_filters, new_filters, |filter| filter.program.clone());
    changes.extend(filters.into_iter().map(Change::Filter));
    changes.extend(order.map(|from| Change::Order(List::Filters, from)));
    let (sites, order) = edits_of_unique(&old.sites, &new.sites, |site| site.name.clone());
    for edit in sites {
        match edit {
            Edit::Change(old, new) => plan_site(&old, &new, &mut changes),
            edit => changes.push(Change::Site(edit)),
        }
    }
    changes.extend(order.map(|from| Change::Order(List::Sites, from)));
    changes
}

fn plan_tables(old: &Config, new: &Config, changes: &mut Vec<Change>) {
    let without_filters =
        |of: &Config| Box::new(Conditioning { filters: Vec::new(), ..of.conditioning.clone() });
    let policies = (without_filters(old), without_filters(new));
    let server = (Box::new(old.server.clone()), Box::new(new.server.clone()));
    let tables = [
        differs(server).map(|(old, new)| Change::Server(old, new)),
        differs((old.log.clone(), new.log.clone())).map(|(old, new)| Change::Log(old, new)),
        differs((old.tls.clone(), new.tls.clone())).map(|(old, new)| Change::Tls(old, new)),
        differs((old.limits.clone(), new.limits.clone())).map(|(old, new)| Change::Limits(old, new)),
        differs(policies).map(|(old, new)| Change::Conditioning(old, new)),
        differs((old.restart.clone(), new.restart.clone())).map(|(old, new)| Change::Restart(old, new)),
    ];
    changes.extend(tables.into_iter().flatten());
}

fn differs<T: PartialEq>((old, new): (T, T)) -> Option<(T, T)> {
    (old != new).then_some((old, new))
}

fn plan_site(old: &Site, new: &Site, changes: &mut Vec<Change>) {
    let name = || new.name.clone();
    let (own_old, own_new) = (own(old, new), own(new, old));
    if own_old != own_new {
        changes.push(Change::Site(Edit::Change(Arc::new(own_old), Arc::new(own_new))));
    }
    let mut add = |list_edits: Vec<Change>, order: Option<Vec<usize>>, list: List| {
        changes.extend(list_edits);
        changes.extend(order.map(|from| Change::Order(list, from)));
    };
    let (list, order) = edits(&old.services, &new.services, |service| service.name.clone());
    let list = list.into_iter().map(|edit| Change::Service(name(), edit.map(Box::new)));
    add(list.collect(), order, List::Services(name()));
    let (list, order) = edits(&old.routes, &new.routes, |route| route.matcher.clone());
    let list = list.into_iter().map(|edit| Change::Route(name(), edit.map(Box::new)));
    add(list.collect(), order, List::Routes(name()));
    if let (Some(old), Some(new)) = (&old.tls, &new.tls) {
        let (list, order) = edits(&old.certificates, &new.certificates, |files| files.certificate.clone());
        let list = list.into_iter().map(|edit| Change::Certificate(name(), edit));
        add(list.collect(), order, List::Certificates(name()));
    }
}

/// A site without what has changes of its own: its services, its routes, and its certificates if `other` has some too.
fn own(site: &Site, other: &Site) -> Site {
    let mut own = Site { services: Vec::new(), routes: Vec::new(), ..site.clone() };
    if let (Some(tls), Some(_)) = (&mut own.tls, &other.tls) {
        tls.certificates.clear();
    }
    own
}

/// Does what the changes say to a model. A change that does not fit the model does nothing.
pub fn apply(model: &mut Model, changes: &[Change], written: &BTreeMap<FileId, Stamp>) {
    for change in changes {
        match change {
            Change::File(file) => {
                if let Some(stamp) = written.get(file) {
                    model.files.insert(file.clone(), *stamp);
                }
            }
            Change::Relaunch(name) => *model.relaunches.entry(name.clone()).or_default() += 1,
            change => apply_to_config(&mut model.config, change),
        }
    }
}

fn apply_to_config(config: &mut Config, change: &Change) {
    match change {
        Change::Listener(edit) => apply_edit(&mut config.listeners, edit),
        Change::Filter(edit) => apply_edit(&mut config.conditioning.filters, edit),
        Change::Site(Edit::Change(old, new)) => {
            let at = config.sites.iter().position(|site| own(site, new) == **old);
            let site = at.and_then(|at| config.sites.get_mut(at));
            site.into_iter().for_each(|site| change_site(Arc::make_mut(site), new));
        }
        Change::Site(edit) => with_list(&mut config.sites, |sites| apply_edit(sites, edit)),
        Change::Log(_, new) => config.log = new.clone(),
        Change::Tls(_, new) => config.tls = new.clone(),
        Change::Limits(_, new) => config.limits = new.clone(),
        Change::Restart(_, new) => config.restart = new.clone(),
        Change::Server(_, new) => config.server = (**new).clone(),
        Change::Conditioning(_, new) => {
            let filters = std::mem::take(&mut config.conditioning.filters);
            config.conditioning = Conditioning { filters, ..(**new).clone() };
        }
        Change::Order(List::Listeners, from) => reorder(&mut config.listeners, from),
        Change::Order(List::Sites, from) => with_list(&mut config.sites, |sites| reorder(sites, from)),
        Change::Order(List::Filters, from) => reorder(&mut config.conditioning.filters, from),
        Change::Service(name, _) | Change::Route(name, _) | Change::Certificate(name, _) => {
            with_site(config, name, change);
        }
        Change::Order(List::Services(name) | List::Routes(name) | List::Certificates(name), _) => {
            with_site(config, name, change);
        }
        Change::File(_) | Change::Relaunch(_) => {}
    }
}

/// Makes a site that of a change of its own keys.
fn change_site(site: &mut Site, new: &Site) {
    let before = std::mem::replace(site, new.clone());
    (site.services, site.routes) = (before.services, before.routes);
    if let (Some(old), Some(new)) = (before.tls, &mut site.tls) {
        new.certificates = old.certificates;
    }
}

/// Changes a list as a vector.
fn with_list(list: &mut SharedList<Arc<Site>>, change: impl FnOnce(&mut Vec<Arc<Site>>)) {
    let mut vector: Vec<Arc<Site>> = list.iter().cloned().collect();
    change(&mut vector);
    *list = vector.into_iter().collect();
}

fn with_site(config: &mut Config, name: &str, change: &Change) {
    let at = config.sites.iter().position(|site| site.name == name);
    let Some(site) = at.and_then(|at| config.sites.get_mut(at)).map(Arc::make_mut) else { return };
    let mut none: Vec<CertificateFiles> = Vec::new();
    let certificates = site.tls.as_mut().map_or(&mut none, |tls| &mut tls.certificates);
    match change {
        Change::Service(_, edit) => {
            apply_edit(&mut site.services, &edit.clone().map(|service| *service));
        }
        Change::Route(_, edit) => apply_edit(&mut site.routes, &edit.clone().map(|route| *route)),
        Change::Certificate(_, edit) => apply_edit(certificates, edit),
        Change::Order(List::Services(_), from) => reorder(&mut site.services, from),
        Change::Order(List::Routes(_), from) => reorder(&mut site.routes, from),
        Change::Order(List::Certificates(_), from) => reorder(certificates, from),
        _ => {}
    }
}
