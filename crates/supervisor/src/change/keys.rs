//! Which keys differ between two values of a table of the configuration.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. A field that is in no list here is not compiled.

use config::{
    CertificateFiles, Conditioning, Filter, Listener, Log, Matcher, Recycle, Route, Server, Site, SiteLimits,
    SiteTls, Statics, Talk, Terms, Tls, Worker,
};

/// The keys of those fields that differ, in the order of the list; `_` is for fields that others make up.
macro_rules! differing {
    ($old:expr, $new:expr, $type:ident { $($field:ident: $key:tt),* $(,)? }) => {{
        let ($type { $($field: _),* }, mut keys) = ($old, Vec::new());
        $(differing!(@ $old, $new, keys, $field, $key);)*
        keys
    }};
    (@ $old:expr, $new:expr, $keys:ident, $field:ident, _) => {};
    (@ $old:expr, $new:expr, $keys:ident, $field:ident, $key:literal) => {
        if $old.$field != $new.$field {
            $keys.push($key);
        }
    };
}

/// What a route is for, as its `path`, `suffix` and `pattern` say it.
pub(super) fn at(route: &Route) -> String {
    let Matcher { path, suffix, pattern } = &route.matcher;
    let pattern = pattern.as_ref().map(|pattern| pattern.text().to_owned());
    let parts: Vec<String> = [path.clone(), suffix.clone(), pattern].into_iter().flatten().collect();
    if parts.is_empty() { "for all".into() } else { parts.join(" ") }
}

pub(super) fn listener(old: &Listener, new: &Listener) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Listener {
            address: "address",
            shared_connections: "shared_connections",
            tls: "tls",
            redirect_to_https: "redirect_to_https",
            h2c: "h2c",
            proxies: "trusted",
            unfiltered: "unfiltered",
        }
    )
}

pub(super) fn site(old: &Site, new: &Site) -> Vec<&'static str> {
    let mut keys = differing!(
        old,
        new,
        Site {
            name: "name",
            hosts: "host",
            listen: "listen",
            path: "path",
            root: "root",
            vhosts: "vhosts",
            follow_links: "follow_links",
            index: "index",
            redirect: "redirect",
            tls: _,
            services: _,
            data: "data",
            templates: "templates",
            routes: _,
            limits: _,
            statics: _,
            terms: _,
            worker: _,
            start: "start",
            idle_stop_ms: "idle_stop",
            recycle: _,
            workers: "workers",
        }
    );
    keys.extend(statics(&old.statics, &new.statics));
    keys.extend(terms(&old.terms, &new.terms));
    keys.extend(differing!(
        &old.limits,
        &new.limits,
        SiteLimits {
            body_bytes: "body_bytes",
            idle_timeout_ms: "idle_timeout",
            connections: "connections",
            spool_bytes: "spool_bytes",
        }
    ));
    keys.extend(worker(&old.worker, &new.worker));
    keys.extend(recycle(&old.recycle, &new.recycle));
    match (&old.tls, &new.tls) {
        (Some(old), Some(new)) => keys.extend(site_tls(old, new)),
        (None, None) => {}
        _ => keys.push("certificates"),
    }
    keys
}

fn site_tls(old: &SiteTls, new: &SiteTls) -> Vec<&'static str> {
    differing!(
        old,
        new,
        SiteTls {
            certificates: "certificates",
            client_ca: "client_ca",
            client_crl: "client_crl",
            client_certificates: "client_certificates",
        }
    )
}

fn statics(old: &Statics, new: &Statics) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Statics {
            cache_control: "cache_control",
            stat_interval_ms: "stat_interval",
            compress: "compress",
            error_page: "error_page",
            listing: "listing",
            send_hidden: "send_hidden",
            send_sources: "send_sources",
            media_types: "media_types",
        }
    )
}

fn terms(old: &Terms, new: &Terms) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Terms {
            headers: "headers",
            request_headers: "request_headers",
            hide_headers: "hide_headers",
            allow: "allow",
            deny: "deny",
            auth: "auth",
            internal: "internal"
        }
    )
}

fn worker(old: &Worker, new: &Worker) -> Vec<&'static str> {
    differing!(old, new, Worker { access_log: "access_log", user: "user", program: "worker" })
}

pub(super) fn certificate(old: &CertificateFiles, new: &CertificateFiles) -> Vec<&'static str> {
    differing!(old, new, CertificateFiles { certificate: "certificate", key: "key" })
}

fn recycle(old: &Recycle, new: &Recycle) -> Vec<&'static str> {
    differing!(old, new, Recycle { requests: "max_requests", age_ms: "max_age", memory: "recycle_memory" })
}

pub(super) fn route(old: &Route, new: &Route) -> Vec<&'static str> {
    let mut keys = differing!(
        old,
        new,
        Route {
            matcher: "path",
            action: _,
            fallback: "fallback",
            body_bytes: "body_bytes",
            strip_prefix: "strip_prefix",
            alias: "alias",
            terms: _,
            talk: _
        }
    );
    if old.action != new.action {
        keys.push(action(new));
    }
    keys.extend(terms(&old.terms, &new.terms));
    keys.extend(differing!(
        &old.talk,
        &new.talk,
        Talk {
            proxy_header: "proxy_header",
            answer_timeout_ms: "answer_timeout",
            requests: "requests",
            buffer: "buffer",
            script: "script",
        }
    ));
    keys
}

/// The key that says what a route does.
fn action(route: &Route) -> &'static str {
    match route.action {
        config::Action::Terms => "action",
        config::Action::Redirect(_) => "redirect",
        config::Action::Rewrite(_) => "rewrite",
        config::Action::TryFiles(_) => "try_files",
        config::Action::Upstream(_) => "upstream",
        config::Action::Fastcgi(_) => "fastcgi",
        config::Action::Hook(_) => "hook",
    }
}

pub(super) fn filter(old: &Filter, new: &Filter) -> Vec<&'static str> {
    differing!(old, new, Filter { command: "command", program: _, read: "read", jit: "jit" })
}

pub(super) fn log(old: &Log, new: &Log) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Log {
            access_format: "access_format",
            flush_ms: "flush",
            daily: "daily",
            error_file: "error_file",
            error_syslog: "error_syslog",
            access_bytes: "access_bytes",
        }
    )
}

pub(super) fn tls(old: &Tls, new: &Tls) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Tls {
            min_version: "min_version",
            tamper_ban_ms: "tamper_ban",
            tamper_exempt: "tamper_exempt",
            hsts: "hsts",
            reread_ms: "reread",
            resumption: "resumption",
            ocsp: "ocsp",
            ocsp_ports: "ocsp_ports",
        }
    )
}

pub(super) fn conditioning(old: &Conditioning, new: &Conditioning) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Conditioning {
            first_byte_timeout_ms: "first_byte_timeout",
            body_min_rate: "body_min_rate",
            response_min_rate: "response_min_rate",
            priority: "priority",
            share_max: "share_max",
            share_max_v6: "share_max_v6",
            checks: "checks",
            exempt: "exempt",
            rate_max: "rate_max",
            rate_burst: "rate_burst",
            ban_after: "ban_after",
            ban_time_ms: "ban_time",
            filters: _,
        }
    )
}

pub(super) fn server(old: &Server, new: &Server) -> Vec<&'static str> {
    differing!(
        old,
        new,
        Server {
            user_range: "user_range",
            user_range_given: _,
            state_dir: "state_dir",
            run_dir: "run_dir",
            log_dir: "log_dir",
            gates: "gates",
            isolation: "isolation",
            danger_without: "danger_without",
            start: "start",
            idle_stop_ms: "idle_stop",
        }
    )
}
