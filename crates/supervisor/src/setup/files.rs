//! What a site worker is sent of its files and routes.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: opens a file of users;
//! `reread` does, and the worker parses it.

use config::{Action, Compress, Encoding, Matcher, Route, Site, Statics, Terms};
use wire::{LauncherToSite, RuleAction, Text};

/// How files are answered with, and the rules: the site's own, then its routes.
pub fn messages(site: &Site) -> Vec<LauncherToSite> {
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
    let matcher = Matcher::Path(site.path.clone());
    let own =
        Route { matcher, action, fallback: false, terms: site.terms.clone(), talk: config::Talk::default() };
    for (number, route) in std::iter::once(&own).chain(&site.routes).enumerate() {
        let number = number as u16;
        messages.push(rule(number, route));
        terms(number, &route.terms, &mut messages);
    }
    messages
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
    let (suffix, at) = match &route.matcher {
        Matcher::Path(path) => (false, path),
        Matcher::Suffix(suffix) => (true, suffix),
    };
    let (action, status, to) = match &route.action {
        Action::Terms => (RuleAction::Terms, 0, ""),
        Action::Redirect(redirect) => (RuleAction::Redirect, redirect.status, redirect.to.as_str()),
        Action::Rewrite(to) => (RuleAction::Rewrite, 0, to.as_str()),
        Action::Upstream(_) => (RuleAction::Upstream, 0, ""),
        Action::Fastcgi(_) => (RuleAction::Fastcgi, 0, ""),
        Action::Hook(name) => (RuleAction::Hook, 0, name.as_str()),
    };
    let (at, to) = (Text::new(at), Text::new(to));
    LauncherToSite::Rule {
        rule,
        suffix,
        at,
        action,
        status,
        to,
        fallback: route.fallback,
        internal: route.terms.internal,
    }
}

fn terms(rule: u16, terms: &Terms, messages: &mut Vec<LauncherToSite>) {
    for (name, value) in &terms.headers {
        messages.push(LauncherToSite::RuleHeader { rule, name: Text::new(name), value: Text::new(value) });
    }
    for (networks, allow) in [(&terms.allow, true), (&terms.deny, false)] {
        messages.extend(networks.iter().map(|network| LauncherToSite::RuleNetwork {
            rule,
            network: Text::new(network),
            allow,
        }));
    }
}
