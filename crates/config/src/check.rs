//! Rules that span tables: what must be unique, what must contain or not contain what.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values, each right by itself.
//! Must never: report a conflict without both places.

mod site_routes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use suggest::closest;

use crate::diagnostic::{Problems, quote, show_path};
use crate::needs::Needs;
use crate::place::{At, Origin};
use crate::raw::site::{HasRoot, RawService, RawSite};
use crate::raw::{ListedSite, RawConfig};
use crate::rules::{ROLES, SOCKET_PATH_MAX};
use crate::seen::FirstSeen;
use crate::{data, remote, worker};

/// Every rule that needs no file system.
pub(crate) fn all(raw: &RawConfig, problems: &mut Problems) {
    user_range(raw, Needs::of(&raw.sites), problems);
    socket_path(raw, problems);
    listeners(raw, problems);
    site_names(&raw.sites, problems);
    routes(raw, problems);
    worker::check(&raw.sites, problems);
    crate::tls::check(raw, problems);
    filters_see_requests(raw, problems);
    for site in &raw.sites {
        site_routes::spool(site, &raw.limits, problems);
    }
    for site in raw.sites.iter().filter(|site| site.is_new()) {
        listen(raw, site, problems);
        purpose(site, problems);
        services(site, problems);
        data::check(site, problems);
        remote::check(site, problems);
        templates(site, problems);
        site_routes::all(site, problems);
    }
}

/// Filters read requests of HTTP/1.1 in the gate, which has no keys: what comes under TLS or as HTTP/2 passes none of
/// them. That somebody relies on filters which are never asked is found out too late, so it must be said.
fn filters_see_requests(raw: &RawConfig, problems: &mut Problems) {
    let filter = raw.conditioning.filters.first().map(|filter| problems.place(filter.program.offset));
    for listener in &raw.listeners {
        let address = &listener.address;
        let passes = match (listener.tls, listener.h2c) {
            (true, _) => "come under TLS",
            (false, true) => "may come as HTTP/2 (`h2c`)",
            (false, false) if listener.unfiltered => {
                let message = format!(
                    "`unfiltered` on {}, which has neither `tls` nor `h2c`: filters see its requests",
                    address.value
                );
                problems.report_help(address.offset, message, "remove `unfiltered`");
                continue;
            }
            (false, false) => continue,
        };
        let Some(place) = filter.as_ref().filter(|_| !listener.unfiltered) else {
            continue;
        };
        let message = format!(
            "requests on {} {passes}, where none of the `filters` (first at {place}) can see them",
            address.value
        );
        let help = "add `unfiltered = true` if they may pass the filters by; or let a proxy in front of this server do \
                    TLS and HTTP/2 (`proxy_protocol` keeps clients' addresses), or say in the sites what the filters \
                    check: `allow`, `deny`, `auth`, or a `hook` of a worker of your own";
        problems.report_help(address.offset, message, help);
    }
}

/// Each partition has a uid of its own: the roles, the sites, the services, what works for them, and the filters.
pub(crate) fn user_range(raw: &RawConfig, needs: Needs, problems: &mut Problems) {
    let Some(range) = &raw.server.user_range else {
        return;
    };
    let Needs { sites, services, connectors, proxies, publishers, certified } = needs;
    let filters = raw.conditioning.filters.len();
    // The signer, where there is something to sign with, and the stapler.
    let roles = ROLES + if certified > 0 { 1 + usize::from(raw.tls.ocsp) } else { 0 };
    let needed = roles + sites + services + filters + connectors + proxies + publishers;
    let (first, last) = (*range.value.start(), *range.value.end());
    let has = u64::from(last - first) + 1;
    if has < needed as u64 {
        let others = [
            (filters, "filters"),
            (connectors, "connectors"),
            (proxies, "data proxies"),
            (publishers, "publishers"),
        ];
        let others = others.into_iter().filter(|(count, _)| *count > 0);
        let others: String = others.map(|(count, what)| format!(", {count} {what}")).collect();
        let message = format!(
            "`user_range` {first}-{last} has {has} uids, and {needed} are needed: one each for {roles} roles, \
             {sites} sites, {services} services{others}"
        );
        let help = format!("write at least `\"{first}-{}\"`", u64::from(first) + needed as u64 - 1);
        problems.report_help(range.offset, message, help);
    }
}

fn socket_path(raw: &RawConfig, problems: &mut Problems) {
    let Some(run_dir) = &raw.server.run_dir else {
        return;
    };
    let bytes = run_dir.value.join("admin.sock").as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        let message = format!(
            "`run_dir` makes the path of `admin.sock` {bytes} bytes; a Unix socket path has at most \
             {SOCKET_PATH_MAX}"
        );
        problems.report_help(
            run_dir.offset,
            message,
            "choose a shorter one, for example `\"/run/bulkhead\"`",
        );
    }
}

fn listeners(raw: &RawConfig, problems: &mut Problems) {
    let mut seen = FirstSeen::new();
    for listener in &raw.listeners {
        let address = &listener.address;
        if let Some(first) = seen.first(address.value, address.offset) {
            let place = problems.place(first);
            let message = format!("`address` \"{}\" is listened at twice (first at {place})", address.value);
            problems.report_help(address.offset, message, "remove one of the two");
        }
    }
}

fn site_names(sites: &[ListedSite], problems: &mut Problems) {
    let mut seen = FirstSeen::new();
    for site in sites {
        let name = site.name.as_ref();
        if let Some(first) = name.and_then(|name| seen.first(name, site.offset)) {
            let message = format!("{} is defined twice (first at {})", site.label, problems.place(first));
            let help = "give one of the two another name";
            problems.report_conflict((site.offset, first), name.map_or("", |name| name), message, help);
        }
    }
}

/// A request finds its site by listener, host and path, so no two sites may have the same.
fn routes(raw: &RawConfig, problems: &mut Problems) {
    let mut seen: HashMap<(&str, &str), Vec<(usize, &RawSite)>> = HashMap::new();
    for site in raw.sites.iter().map(|site| &**site) {
        let Some(path) = &site.path else { continue };
        for host in &site.hosts {
            let earlier = seen.entry((&host.value, path)).or_default();
            let first = earlier.iter().find(|(_, owner)| owner.shares_listener(site));
            let twice = earlier.iter().find(|(_, owner)| std::ptr::eq(*owner, site));
            let what = || quote(&host.value);
            if let Some((first, owner)) = first.filter(|(_, owner)| !std::ptr::eq(*owner, site)) {
                let place = problems.place(*first);
                let message = format!(
                    "`host` {} with `path` {} is already {} (at {place})",
                    what(),
                    quote(path),
                    owner.label
                );
                let help = match raw.listeners.len() {
                    0 | 1 => "give one of the two sites another `host` or `path`",
                    _ => "give one of the two sites another `host` or `path`, or each its own `listen`",
                };
                problems.report_conflict((host.offset, *first), &host.value, message, help);
            } else if let Some((first, _)) = twice {
                let place = problems.place(*first);
                let message = format!("`host` {} is twice in {} (first at {place})", what(), site.label);
                problems.report_help(host.offset, message, "remove one of the two");
            }
            earlier.push((host.offset, site));
        }
    }
}

/// What a site answers on are listeners that the file has, each once.
fn listen(raw: &RawConfig, site: &RawSite, problems: &mut Problems) {
    let mut seen = FirstSeen::new();
    for address in site.listen.iter().flatten() {
        if let Some(first) = seen.first(address.value, address.offset) {
            let (label, place) = (&site.label, problems.place(first));
            let message = format!("`listen` \"{}\" is twice in {label} (first at {place})", address.value);
            problems.report_help(address.offset, message, "remove one of the two");
        } else if raw.listeners_known
            && raw.listeners.iter().all(|known| known.address.value != address.value)
        {
            let text = address.value.to_string();
            let known: Vec<_> = raw.listeners.iter().map(|known| known.address.value.to_string()).collect();
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let message = format!("`listen` \"{text}\" of {} is the `address` of no [[listen]]", site.label);
            let help = match closest(&text, &known) {
                Some(near) => format!("did you mean `\"{near}\"`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            problems.report_help(address.offset, message, help);
        }
    }
}

fn purpose(site: &RawSite, problems: &mut Problems) {
    let nothing = matches!(site.has_root, HasRoot::No) && site.services.is_empty() && site.routes.is_empty();
    if nothing && !site.has_purpose {
        let message =
            format!("{} has neither a `root` nor a service, and so nothing to answer with", site.label);
        problems.report_help(site.offset, message, "add `root = \"public\"` or a `[[site.service]]`");
    }
}

fn services(site: &RawSite, problems: &mut Problems) {
    let (mut names, mut paths) = (FirstSeen::new(), FirstSeen::new());
    for service in &site.services {
        let name = service.name.as_ref();
        if let Some(first) = name.and_then(|name| names.first(name, service.offset)) {
            let place = problems.place(first);
            let message = format!("{} is defined twice (first at {place})", service.label);
            problems.report_help(service.offset, message, "give one of the two another name");
        }
        let Some(path) = &service.path else { continue };
        if let Some(first) = paths.first(&path.value, path.offset) {
            let place = problems.place(first);
            let message = format!(
                "`path` {} is given to two services of {} (first at {place})",
                quote(&path.value),
                site.label
            );
            problems.report_help(path.offset, message, "give one of the two another path");
        }
        inside_site(site, service, problems);
    }
}

/// A service has templates only where its site does.
fn templates(site: &RawSite, problems: &mut Problems) {
    let wants = |service: &&RawService| service.templates.is_some();
    match &site.templates {
        None => {
            for service in site.services.iter().filter(wants) {
                let message = format!("`templates` of {}: its site has none", service.label);
                let help = "add `[site.templates]` with `folder = \"templates\"` to the site";
                problems.report_help(service.templates.unwrap_or_default(), message, help);
            }
        }
        Some(templates) if !site.services.iter().any(|service| wants(&service)) => {
            let message =
                format!("no service of {} has `templates = true`: nobody gets its templates", site.label);
            problems.warn(templates.offset, message, "add `templates = true` to a [[site.service]]");
        }
        Some(_) => {}
    }
}

fn inside_site(site: &RawSite, service: &RawService, problems: &mut Problems) {
    if let (Some(prefix), Some(path)) = (&site.path, &service.path)
        && !path.value.starts_with(prefix.as_str())
    {
        let (shown, within) = (quote(&path.value), quote(prefix));
        let message = format!("`path` {shown} of {} is outside its site's `path` {within}", service.label);
        let help = format!("write `\"{prefix}{}\"`", path.value.trim_start_matches('/'));
        problems.report_help(path.offset, message, help);
    }
}

/// The server's own folders are three different ones, and no site publishes any of them.
///
/// `resolve` brings paths into the form that is compared: as written, or as the file system has it.
pub(crate) fn folders(raw: &RawConfig, resolve: &dyn Fn(&Path) -> PathBuf, problems: &mut Problems) {
    let folders: Vec<_> = raw.server.folders().map(|(key, at)| (key, at, resolve(&at.value))).collect();
    for (number, (key, at, path)) in folders.iter().enumerate() {
        let same = folders.iter().take(number).find(|(_, _, earlier)| earlier == path);
        if let Some((earlier, first, _)) = same {
            let (source, path) = (source(first, problems), show_path(path));
            let message = format!("`{key}` is the same folder as `{earlier}` ({source}): {path}");
            problems.report_help(at.offset, message, "give each its own folder");
        }
    }
    let error_file = raw.error_file.as_ref().map(|at| ("error_file", at, resolve(&at.value)));
    let own: Vec<_> = folders.into_iter().chain(error_file).collect();
    // What two sites have between them that have not changed was looked at before.
    let [all_keys, new_keys] = [true, false].map(|old| keys_of(raw, old, resolve));
    for site in &raw.sites {
        let resolved = site.resolved(resolve);
        let keys = if site.is_new() { &all_keys } else { &new_keys };
        for ((published_by, root), published) in site.opened().zip(&resolved.opened) {
            if site.is_new() {
                publishes(site, (published_by, root), published, &own, problems);
            }
            for (_, file) in &keys[below(keys, published)] {
                let (path, place) = (show_path(&file.value), problems.place(root.offset));
                let message = format!(
                    "`{published_by}` of {} (at {place}) would publish the key in {path}",
                    site.label
                );
                let help = "move the file out of every folder that is published";
                problems.report_conflict(
                    (file.offset, root.offset),
                    &file.value.to_string_lossy(),
                    message,
                    help,
                );
            }
        }
    }
}

/// What a folder of a site must not have in it: `own` are files and folders of the server, with what is compared.
fn publishes(
    site: &RawSite,
    (published_by, root): (&str, &At<PathBuf>),
    published: &Path,
    own: &[(&str, &At<PathBuf>, PathBuf)],
    problems: &mut Problems,
) {
    if matches!(published_by, "alias" | "follow_links") {
        kernels_own(published_by, root, published, problems);
    }
    let inside = own.iter().filter(|(_, _, path)| path.starts_with(published));
    let inside: Vec<_> = inside.map(|(key, at, _)| format!("`{key}` ({})", source(at, problems))).collect();
    if !inside.is_empty() {
        let message = format!("`{published_by}` of {} would publish {}", site.label, inside.join(", "));
        problems.report_help(root.offset, message, "move one out of the other");
    }
    let paths = site.resolved.get().into_iter().flat_map(|resolved| &resolved.private);
    for ((key, file), _) in site.private().zip(paths).filter(|(_, path)| path.starts_with(published)) {
        let place = problems.place(root.offset);
        let message = match key {
            "users" => format!("`{published_by}` (at {place}) would publish this file of users"),
            _ => format!("`{published_by}` (at {place}) would publish this file of `{key}`"),
        };
        problems.report_help(file.offset, message, "move the file out of the folder");
    }
}

/// The files that have private keys, sorted by their paths: all that are in one folder are neighbours.
fn keys_of<'r>(
    raw: &'r RawConfig,
    old: bool,
    resolve: &dyn Fn(&Path) -> PathBuf,
) -> Vec<(&'r Path, &'r At<PathBuf>)> {
    let sites = raw.sites.iter().filter(|site| old || site.is_new());
    let files =
        sites.flat_map(|site| site.resolved(resolve).keys.iter().map(PathBuf::as_path).zip(site.keys()));
    let mut keys: Vec<_> = files.collect();
    keys.sort_by_key(|(path, _)| *path);
    keys
}

/// Which of sorted paths are a folder, or in the folder: what is opened may be a file, too.
fn below<T>(sorted: &[(&Path, T)], folder: &Path) -> std::ops::Range<usize> {
    let first = sorted.partition_point(|(path, _)| *path < folder);
    let count = sorted[first..].partition_point(|(path, _)| path.starts_with(folder));
    first..first + count
}

/// The kernel's folders say of processes and devices what is nobody's to read, the worker's own descriptors above all.
fn kernels_own(key: &str, at: &At<PathBuf>, path: &Path, problems: &mut Problems) {
    if let Some(own) = ["/proc", "/sys", "/dev"].into_iter().find(|own| path.starts_with(own)) {
        let message = format!("`{key}` {} is in {own}, which has no documents", show_path(&at.value));
        problems.report_help(at.offset, message, "name a folder of files");
    }
}

/// Where a value comes from.
fn source<T>(at: &At<T>, problems: &Problems) -> String {
    match at.origin {
        Origin::Written => format!("at {}", problems.place(at.offset)),
        Origin::Default => "by default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_is_found_itself_and_in_its_folder() {
        // In the order of bytes, `/srv/a-b` would stand between `/srv/a` and what is in it.
        let mut sorted =
            ["/srv/a", "/srv/a-b", "/srv/a/key", "/srv/a/x/key", "/srv/b"].map(|path| (Path::new(path), ()));
        sorted.sort();
        let found = |folder: &str| {
            let range = below(&sorted, Path::new(folder));
            sorted[range].iter().map(|(path, ())| path.to_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(found("/srv/a"), ["/srv/a", "/srv/a/key", "/srv/a/x/key"]);
        assert_eq!(found("/srv/a-b"), ["/srv/a-b"]);
        assert_eq!(found("/"), ["/srv/a", "/srv/a/key", "/srv/a/x/key", "/srv/a-b", "/srv/b"]);
        assert!(found("/srv/a/k").is_empty());
    }
}
