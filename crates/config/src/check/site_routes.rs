//! What the routes of a site must be to each other, to its services and to its files.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: decoded values, each right by itself. Must never:
//! let two routes claim the same requests.

use crate::diagnostic::{Problems, quote};
use crate::parse::units;
use crate::raw::parts::RawRoute;
use crate::raw::site::{HasRoot, RawSite};
use crate::schema::Limits;
use crate::seen::FirstSeen;
use crate::statics_schema::Action;
use rewrite::Matcher;

/// What waits in files has room for the longest body, or that could never come.
pub(crate) fn spool(site: &RawSite, general: &Limits, problems: &mut Problems) {
    let buffers = site.routes.iter().any(|route| route.has_servers() && route.talk.buffer);
    let Some(all) = site.limits.spool_bytes.filter(|_| buffers) else { return };
    let own = site.limits.body_bytes.unwrap_or(general.body_bytes);
    let longest = site.routes.iter().filter_map(|route| route.body_bytes).fold(own, u64::max);
    let (most, workers) = (site.workers.max.max(1), u64::from(site.workers.max.max(1)));
    if site.limits.spool_bytes(longest, most) >= longest {
        return;
    }
    let (bytes, body) = (units::show_size(all), units::show_size(longest));
    let message = match workers {
        1 => format!(
            "`spool_bytes` of {} is {bytes}, in which a body of {body} (`body_bytes`) has no room",
            site.label
        ),
        _ => format!(
            "`spool_bytes` of {} is {bytes} for {workers} workers, in the part of one of which a body of {body} \
             (`body_bytes`) has no room",
            site.label
        ),
    };
    let help = format!(
        "write `spool_bytes = \"{}\"` or more, or less for `body_bytes`",
        units::show_size(longest * workers)
    );
    problems.report_help(site.offset, message, help);
}

/// Every rule of one site's routes and files.
pub(crate) fn all(site: &RawSite, problems: &mut Problems) {
    let has_aliases = site.routes.iter().any(|route| route.alias.is_some());
    let has_files = !matches!(site.has_root, HasRoot::No) || site.vhosts.is_some() || has_aliases;
    if let (HasRoot::Yes(root), Some(vhosts)) = (&site.has_root, &site.vhosts) {
        let place = problems.place(root.offset);
        let message = format!("{} has both `vhosts` and a `root` (at {place})", site.label);
        problems.report_help(vhosts.offset, message, "remove one, or make two sites of it");
    }
    if !site.statics.error_page.is_empty() && !has_files {
        let message = format!("`error_page` of {} names files, and there is no `root`", site.label);
        problems.report_help(site.offset, message, "add `root = \"public\"`, or remove it");
    }
    if let Some(php) = site.php.filter(|_| !has_files) {
        let message = format!("`php` of {} runs the scripts in a folder, and there is no `root`", site.label);
        problems.report_help(php, message, "add `root = \"public\"`");
    }
    direct_services(site, problems);
    aliases(site, problems);
    let mut seen = FirstSeen::new();
    for route in &site.routes {
        let Some(matcher) = &route.matcher else { continue };
        if let Some(first) = seen.first(matcher.value.clone(), matcher.offset) {
            let place = problems.place(first);
            let message = format!(
                "{} is given to two routes of {} (first at {place})",
                shown(&matcher.value),
                site.label
            );
            problems.report_help(matcher.offset, message, "make one route of the two");
        }
        place(site, route, problems);
        let looks = |tried: &[String]| tried.iter().any(|one| !one.starts_with('='));
        if matches!(&route.action, Some(Action::TryFiles(tried)) if !has_files && looks(tried)) {
            let message = format!("`try_files` looks for files, and {} has no `root`", site.label);
            problems.report_help(route.offset, message, "add `root = \"public\"`");
        }
        if let Some(fallback) = route.fallback.as_ref().filter(|fallback| fallback.value) {
            if !has_files && site.php == Some(fallback.offset) {
                // Told of `php` already.
            } else if !has_files {
                let message =
                    format!("`fallback` is for when a file is missing, and {} has no `root`", site.label);
                problems.report_help(fallback.offset, message, "add `root = \"public\"`, or remove it");
            } else if matches!(route.action, Some(Action::Terms)) {
                let message = "`fallback` is without anything to do after a miss";
                problems.report_help(fallback.offset, message, "remove it, or add for example `upstream`");
            }
        }
    }
}

fn shown(matcher: &Matcher) -> String {
    let pattern = matcher.pattern.as_ref().map(|pattern| pattern.text());
    let keys =
        [("path", matcher.path.as_deref()), ("suffix", matcher.suffix.as_deref()), ("pattern", pattern)];
    let keys = keys.into_iter().filter_map(|(key, value)| Some(format!("`{key}` {}", quote(value?))));
    keys.collect::<Vec<_>>().join(" with ")
}

/// A folder stands at one path, and requests come to it.
fn aliases(site: &RawSite, problems: &mut Problems) {
    let mut seen = FirstSeen::new();
    for route in &site.routes {
        let (Some(alias), Some(matcher)) = (&route.alias, &route.matcher) else { continue };
        let (Some(path), None) = (&matcher.value.path, &matcher.value.suffix) else {
            let message =
                "`alias` is the folder of what is below a `path`, and this route has something else";
            let help = "write a `path` alone, and for its scripts a route of their own";
            problems.report_help(alias.offset, message, help);
            continue;
        };
        if path == "/" {
            let message = "`alias` has the place of the whole site, whose folder is its `root`";
            problems.report_help(alias.offset, message, "write it as `root` of the site");
        }
        let is_served = |name: &str| {
            !name.starts_with('.')
                || name == ".well-known"
                || site.statics.send_hidden.iter().any(|hidden| hidden == name)
        };
        if let Some(name) = path.split('/').find(|name| !is_served(name)) {
            let message =
                format!("`alias` is at the path {}, and {} is never served", quote(path), quote(name));
            problems.report_help(alias.offset, message, format!("add {} to `send_hidden`", quote(name)));
        }
        let acts_always = matches!(route.action, Some(Action::Redirect(_) | Action::Rewrite(_)))
            && !route.fallback.as_ref().is_some_and(|fallback| fallback.value);
        if acts_always {
            let message = "`alias` is of no use where each request is redirected or rewritten";
            problems.report_help(alias.offset, message, "add `fallback = true`, or remove it");
        }
        if let Some(first) = seen.first(path.trim_matches('/').to_owned(), matcher.offset) {
            let place = problems.place(first);
            let message =
                format!("two folders have the place {} of {} (first at {place})", quote(path), site.label);
            problems.report_help(alias.offset, message, "remove one of the two");
        }
    }
}

/// A route's path is inside its site's, and no service has it.
fn place(site: &RawSite, route: &RawRoute, problems: &mut Problems) {
    let Some(matcher) = &route.matcher else { return };
    let Some(path) = &matcher.value.path else { return };
    if let Some(prefix) = site.path.as_ref().filter(|prefix| !path.starts_with(prefix.as_str())) {
        let message =
            format!("`path` {} of a route is outside its site's `path` {}", quote(path), quote(prefix));
        let help = format!("write `\"{prefix}{}\"`", path.trim_start_matches('/'));
        problems.report_help(matcher.offset, message, help);
    }
    let mut services = site.services.iter().filter_map(|service| Some((service, service.path.as_ref()?)));
    let same = services.find(|(_, other)| other.value == *path && matcher.value.suffix.is_none());
    if let Some((service, first)) =
        same.filter(|_| route.alias.is_some() || !matches!(route.action, Some(Action::Terms)))
    {
        let place = problems.place(first.offset);
        let message =
            format!("`path` {} of this route is {}'s already (at {place})", quote(path), service.label);
        problems.report_help(matcher.offset, message, "give one of the two another path");
    }
}

/// SECURITY: a service that takes connections itself is reached past the site's worker, which asks who it is.
fn direct_services(site: &RawSite, problems: &mut Problems) {
    for service in site.services.iter().filter(|service| service.takes_connections) {
        let Some(path) = &service.path else { continue };
        let covers = |route: &&RawRoute| {
            route.matcher.as_ref().is_some_and(|matcher| match &matcher.value.path {
                Some(prefix) => path.value.starts_with(prefix.as_str()) || prefix.starts_with(&path.value),
                None => true,
            })
        };
        let guarded_by = match site.terms.terms.guards() {
            true => Some(site.offset),
            false => {
                site.routes.iter().filter(|route| route.terms.terms.guards()).find(covers).map(|r| r.offset)
            }
        };
        if let Some(guard) = guarded_by {
            let place = problems.place(guard);
            let message = format!(
                "{} takes connections itself, past `allow`, `deny` and `auth` (of the table at {place})",
                service.label
            );
            problems.report_help(service.offset, message, "remove `takes_connections`, or these");
        }
    }
}
