//! What a site worker is sent of its files and routes.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: opens a file of users;
//! `reread` does, and the worker parses it.

use std::path::Path;

use config::{Action, Compress, Encoding, Limits, Matcher, Route, Site, Statics, Target, Terms};
use wire::{HeaderOf, LauncherToSite, RuleAction, Text};

use crate::setup::opened::Opened;

/// How files are answered with, and the rules: the site's own, then its routes.
pub fn messages(site: &Site, limits: &Limits) -> Vec<LauncherToSite> {
    let statics = &site.statics;
    let mut messages = vec![settings(statics)];
    messages.extend(statics.error_page.iter().map(|(status, page)| {
        let (status, page) = (*status, Text::new(page));
        LauncherToSite::ErrorPage { status, page }
    }));
    let hidden = statics.send_hidden.iter().map(|name| LauncherToSite::SendHidden { name: Text::new(name) });
    messages.extend(hidden);
    messages.extend(
        statics.send_sources.iter().map(|suffix| LauncherToSite::SendSource { suffix: Text::new(suffix) }),
    );
    let action = site.redirect.clone().map_or(Action::Terms, Action::Redirect);
    messages.extend(statics.media_types.iter().map(|(suffix, media)| {
        let (suffix, media) = (Text::new(suffix), Text::new(media));
        LauncherToSite::MediaType { suffix, media }
    }));
    let own = Route {
        matcher: Matcher::path(&site.path),
        action,
        fallback: false,
        terms: site.terms.clone(),
        strip_prefix: false,
        alias: None,
        // What the site says holds for every process of it; a route says less or more.
        body_bytes: Some(site.limits.over(limits, &[]).body_bytes),
        talk: config::Talk::default(),
    };
    for (number, route) in std::iter::once(&own).chain(&site.routes).enumerate() {
        let number = number as u16;
        messages.push(rule(number, route));
        if let Action::TryFiles(paths) = &route.action {
            let tried = paths.iter().map(|to| LauncherToSite::RuleTry { rule: number, to: Text::new(to) });
            messages.extend(tried);
        }
        terms(number, &route.terms, &mut messages);
    }
    messages
}

/// The folders beside the root: those at paths, and those that links may lead into.
pub fn folders(site: &Site) -> impl Iterator<Item = (LauncherToSite, Option<Opened>)> {
    let text = |path: &Path| Text::new(config::lexical(path).to_string_lossy());
    // The site's own rule is the first.
    let routes = site.routes.iter().zip(1u16..);
    let aliases = routes.filter_map(move |(route, rule)| {
        let path = route.alias.as_ref()?;
        Some((LauncherToSite::RuleFolder { rule, folder: text(path) }, path))
    });
    let links = site.follow_links.iter();
    let links = links.map(move |path| (LauncherToSite::LinkFolder { folder: text(path) }, path));
    aliases.chain(links).map(|(message, path)| (message, Some(Opened::View(path.clone()))))
}

fn settings(statics: &Statics) -> LauncherToSite {
    let Compress { encodings, static_level, dynamic_level, max_bytes } = &statics.compress;
    let place = |encoding| encodings.iter().position(|one| *one == encoding).map_or(0, |at| at as u8 + 1);
    LauncherToSite::Statics {
        cache_control: statics.cache_control.unwrap_or(u32::MAX),
        stat_interval_ms: statics.stat_interval_ms.unwrap_or(0),
        listing: statics.listing,
        br: place(Encoding::Br),
        zstd: place(Encoding::Zstd),
        gzip: place(Encoding::Gzip),
        static_level: *static_level,
        dynamic_level: *dynamic_level,
        max_bytes: *max_bytes,
    }
}

fn rule(rule: u16, route: &Route) -> LauncherToSite {
    let servers;
    let (action, status, to) = match &route.action {
        Action::Terms => (RuleAction::Terms, 0, ""),
        Action::Redirect(redirect) => (RuleAction::Redirect, redirect.status, redirect.to.as_str()),
        Action::Rewrite(to) => (RuleAction::Rewrite, 0, to.as_str()),
        Action::TryFiles(_) => (RuleAction::TryFiles, 0, ""),
        Action::Upstream(targets) => {
            servers = list(targets);
            (RuleAction::Upstream, 0, servers.as_str())
        }
        Action::Fastcgi(targets) => {
            servers = list(targets);
            (RuleAction::Fastcgi, 0, servers.as_str())
        }
        Action::Hook(name) => (RuleAction::Hook, 0, name.as_str()),
    };
    let Matcher { path, suffix, pattern } = &route.matcher;
    LauncherToSite::Rule {
        rule,
        path: Text::new(path.as_deref().unwrap_or_default()),
        suffix: Text::new(suffix.as_deref().unwrap_or_default()),
        pattern: Text::new(pattern.as_ref().map_or("", |pattern| pattern.text())),
        action,
        status,
        to: Text::new(to),
        fallback: route.fallback,
        internal: route.terms.internal,
        strip_prefix: route.strip_prefix,
        body_bytes: route.body_bytes.unwrap_or(u64::MAX),
    }
}

/// Where servers listen, as the configuration says it.
fn list(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

fn terms(rule: u16, terms: &Terms, messages: &mut Vec<LauncherToSite>) {
    let header = |of, name: &str, value: &str| LauncherToSite::RuleHeader {
        rule,
        of,
        name: Text::new(name),
        value: Text::new(value),
    };
    messages.extend(terms.headers.iter().map(|(name, value)| header(HeaderOf::Answer, name, value)));
    messages.extend(terms.request_headers.iter().map(|(name, value)| header(HeaderOf::Request, name, value)));
    messages.extend(terms.hide_headers.iter().map(|name| header(HeaderOf::Backend, name, "")));
    for (networks, allow) in [(&terms.allow, true), (&terms.deny, false)] {
        messages.extend(networks.iter().map(|network| LauncherToSite::RuleNetwork {
            rule,
            network: Text::new(network),
            allow,
        }));
    }
}
