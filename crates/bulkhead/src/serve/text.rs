//! The words after `bulkhead serve` as a configuration file.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: that person's words, and which folders there are. Never:
//! leaves out something that was asked for without a word.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::serve::options::Serve;

/// LIMIT: bytes of a site's name, less what makes it different from others.
const NAME_BYTES: usize = 56;

/// A configuration file, and what is to be said of it.
#[derive(Debug)]
pub struct ConfigText {
    /// The file.
    pub text: String,
    /// Its listeners, and whether they speak TLS.
    pub listeners: Vec<(SocketAddr, bool)>,
    /// What somebody might not expect.
    pub notes: Vec<String>,
}

/// Writes the configuration that is meant.
///
/// # Errors
/// When the words contradict each other, or a folder is none.
pub fn write(options: &Serve) -> Result<ConfigText, Fault> {
    let mut notes = Vec::new();
    let listeners: Vec<(SocketAddr, bool)> = options.all().flat_map(Serve::listeners).collect();
    let mut seen = HashSet::new();
    if let Some((twice, _)) = listeners.iter().find(|(address, _)| !seen.insert(address)) {
        return usage(format!("{twice} is listened at twice; give each configuration its own --bind"));
    }
    let mut sites = Vec::new();
    for one in options.all() {
        sites.extend(sites_of(one, options, &mut notes)?);
    }
    distinguish(&mut sites);
    share_users(&mut sites, &mut notes);
    let mut out = Toml::default();
    server(&mut out, options)?;
    for (address, tls) in &listeners {
        out.table("[[listen]]");
        out.line("address", &quoted(&address.to_string()));
        if *tls {
            out.line("tls", "true");
        }
    }
    let alone = (sites.len() == 1 && options.all().any(|one| one.log_dir.is_some())).then_some("access.log");
    for site in sites {
        site.put(&mut out, alone);
    }
    Ok(ConfigText { text: out.0, listeners, notes })
}

/// `[server]` and `[log]`: what all configurations have in common, so that it can be said only once.
fn server(out: &mut Toml, options: &Serve) -> Result<(), Fault> {
    let log_dir = common(options, "--log-dir", |one| one.log_dir.clone())?;
    let error_log = common(options, "--error-log", |one| one.error_log.clone())?;
    let cpu = common(options, "--cpu", |one| one.cpu)?;
    let syslog = options.all().any(|one| one.error_syslog);
    if log_dir.is_some() || cpu.is_some() {
        out.table("[server]");
        if let Some(dir) = &log_dir {
            out.line("log_dir", &quoted(path(dir)?.as_str()));
        }
        if let Some(cpu) = cpu {
            out.line("gates", &cpu.to_string());
        }
    }
    if log_dir.is_some() || error_log.is_some() || syslog {
        out.table("[log]");
        if log_dir.is_some() {
            out.line("daily", "true");
        }
        if let Some(file) = &error_log {
            out.line("error_file", &quoted(path(file)?.as_str()));
        }
        if syslog {
            out.line("error_syslog", "true");
        }
    }
    Ok(())
}

/// A value of the server as a whole: whoever says it twice says the same.
fn common<T: PartialEq>(
    options: &Serve,
    name: &str,
    value: impl Fn(&Serve) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let mut values = options.all().filter_map(value);
    let first = values.next();
    if values.any(|other| Some(other) != first) {
        return usage(format!("{name} is about the whole server, and is given twice, not the same"));
    }
    Ok(first)
}

/// A site on its way into the file.
#[derive(Debug)]
struct ServedSite {
    name: String,
    host: Option<String>,
    lines: Vec<(&'static str, String)>,
    routes: Vec<Vec<(&'static str, String)>>,
    user: Option<String>,
    shares_user: bool,
}

impl ServedSite {
    fn put(&self, out: &mut Toml, access_log: Option<&str>) {
        out.table("[[site]]");
        out.line("name", &quoted(&self.name));
        if let Some(host) = &self.host {
            out.line("host", &format!("[{}]", quoted(host)));
        }
        self.lines.iter().for_each(|(key, value)| out.line(key, value));
        if let Some(access_log) = access_log {
            out.line("access_log", &quoted(access_log));
        }
        if let Some(user) = &self.user {
            out.line("user", &quoted(user));
        }
        if self.shares_user {
            out.line("danger_shared_user", "true");
        }
        for route in &self.routes {
            out.table("[[site.route]]");
            route.iter().for_each(|(key, value)| out.line(key, value));
        }
    }
}

fn sites_of(one: &Serve, options: &Serve, notes: &mut Vec<String>) -> Result<Vec<ServedSite>, Fault> {
    let user = one.run_as.clone().or_else(|| options.all().find_map(|other| other.run_as.clone()));
    let site = |name: &str, host: Option<&str>| ServedSite {
        name: name.to_owned(),
        host: host.map(str::to_owned),
        lines: Vec::new(),
        routes: Vec::new(),
        user: user.clone(),
        shares_user: false,
    };
    let every = Some("*");
    let mut sites = Vec::new();
    if let Some(url) = &one.redirect {
        let pairs = [&one.host_sandbox, &one.fastcgi, &one.backpath];
        if one.folder().is_some() || one.vhost.is_some() || pairs.iter().any(|words| !words.is_empty()) {
            notes.push(format!(
                "everything is redirected to {url}; what stands beside --redirect is not served"
            ));
        }
        let mut redirect = site("redirect", every);
        redirect.lines.push(("redirect", quoted(url)));
        sites.push(redirect);
    } else {
        for pair in one.host_sandbox.chunks(2) {
            let [host, dir] = pair else { continue };
            let mut own = site(&name_of(host), Some(host));
            own.lines.push(("root", folder(Path::new(dir))?));
            sites.push(own);
        }
        if let Some(dir) = &one.vhost {
            let mut vhosts = site("vhosts", None);
            vhosts.lines.push(("vhosts", folder(dir)?));
            sites.push(vhosts);
        } else if let Some(dir) = one.folder() {
            let mut files = site("files", every);
            files.lines.push(("root", folder(dir)?));
            sites.push(files);
        } else if sites.is_empty() && !(one.backpath.is_empty() && one.fastcgi.is_empty()) {
            sites.push(site("upstream", every));
        }
        if sites.is_empty() {
            return usage(
                "nothing to serve: name a folder, or --sandbox, --vhost, --host-sandbox, --backpath or \
                          --redirect"
                    .to_owned(),
            );
        }
    }
    for site in &mut sites {
        details(site, one, options.more.is_empty())?;
    }
    Ok(sites)
}

/// What is said of all sites of a configuration.
fn details(site: &mut ServedSite, one: &Serve, alone: bool) -> Result<(), Fault> {
    let mut add = |key, value| site.lines.push((key, value));
    if !alone {
        let listeners: Vec<String> =
            one.listeners().iter().map(|(address, _)| quoted(&address.to_string())).collect();
        add("listen", format!("[{}]", listeners.join(", ")));
    }
    if !one.tls.is_empty() {
        let files = one.tls.iter().map(|file| Ok(quoted(&path(file)?))).collect::<Result<Vec<_>, Fault>>()?;
        add("certificates", format!("[{}]", files.join(", ")));
    }
    if one.redirect.is_some() {
        return Ok(());
    }
    if !one.index.is_empty() {
        let names: Vec<String> = one.index.iter().map(|name| quoted(name)).collect();
        add("index", format!("[{}]", names.join(", ")));
    }
    if let Some(seconds) = one.cache_control {
        add("cache_control", format!("\"{seconds}s\""));
    }
    if let Some(seconds) = one.stat_interval {
        add("stat_interval", format!("\"{seconds}s\""));
    }
    let has_files = site.lines.iter().any(|(key, _)| matches!(*key, "root" | "vhosts"));
    for pair in one.fastcgi.chunks(2) {
        let [suffix, address] = pair else { continue };
        site.routes.push(vec![("suffix", quoted(suffix)), ("fastcgi", target("--fastcgi", address)?)]);
    }
    let targets: Vec<String> =
        one.backpath.iter().map(|address| target("--backpath", address)).collect::<Result<_, _>>()?;
    let upstream = match &targets[..] {
        [] => return Ok(()),
        [single] => single.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let mut route = vec![("path", quoted("/")), ("upstream", upstream)];
    if has_files {
        route.push(("fallback", "true".to_owned()));
    }
    site.routes.push(route);
    Ok(())
}

/// Where requests are passed on to: a socket, if it begins with a slash.
fn target(option: &str, text: &str) -> Result<String, Fault> {
    if text.starts_with('/') {
        return Ok(quoted(&format!("unix:{text}")));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) => Ok(quoted(&address.to_string())),
        Err(_) => usage(format!("{option} {text:?}: write IP:PORT, or the path of a socket, from / on")),
    }
}

/// Gives each site a name of its own.
fn distinguish(sites: &mut [ServedSite]) {
    let mut taken = HashSet::new();
    for site in sites {
        let plain = site.name.clone();
        let mut number = 1;
        while !taken.insert(site.name.clone()) {
            number += 1;
            site.name = format!("{plain}-{number}");
        }
    }
}

/// Says of sites that have one user that this is meant.
fn share_users(sites: &mut [ServedSite], notes: &mut Vec<String>) {
    let users: Vec<Option<String>> = sites.iter().map(|site| site.user.clone()).collect();
    for (index, site) in sites.iter_mut().enumerate() {
        let others = users.iter().enumerate().filter(|(other, user)| *other != index && **user == site.user);
        site.shares_user = site.user.is_some() && others.count() > 0;
    }
    let shared: Vec<&str> =
        sites.iter().filter(|site| site.shares_user).map(|site| site.name.as_str()).collect();
    if !shared.is_empty() {
        notes.push(format!(
            "the sites {} run under one uid, which does not keep them apart; without --run-as, each has its own",
            shared.join(", ")
        ));
    }
}

/// A site's name, from its host.
fn name_of(host: &str) -> String {
    let plain: String = host
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' })
        .take(NAME_BYTES)
        .collect();
    let plain = plain.trim_matches(['.', '-', '_']);
    // Without a dot it may be the name of a process of our own.
    if plain.contains('.') { plain.to_owned() } else { format!("host-{plain}") }
}

/// A folder that exists, as a TOML string of its real path.
fn folder(dir: &Path) -> Result<String, Fault> {
    let problem = |problem: &str| Fault::Usage(format!("{}: {problem}", dir.display()));
    let root = fs::canonicalize(dir).map_err(|error| problem(&error.to_string()))?;
    if !root.is_dir() {
        return Err(problem("is not a folder"));
    }
    Ok(quoted(&utf8(root)?))
}

/// An absolute path, whether there is something or not.
pub fn path(path: &Path) -> Result<String, Fault> {
    let absolute = std::path::absolute(path).map_err(Fault::io(path.display()))?;
    utf8(absolute)
}

fn utf8(path: PathBuf) -> Result<String, Fault> {
    path.into_os_string()
        .into_string()
        .map_err(|path| Fault::Usage(format!("{}: is not UTF-8", path.display())))
}

fn usage<T>(problem: String) -> Result<T, Fault> {
    Err(Fault::Usage(problem))
}

/// A file as it grows.
#[derive(Debug, Default)]
pub struct Toml(String);

impl Toml {
    /// Begins a table.
    pub fn table(&mut self, header: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(header);
        self.0.push('\n');
    }

    /// Adds a key.
    pub fn line(&mut self, key: &str, value: &str) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    /// The file.
    pub fn text(self) -> String {
        self.0
    }
}

/// A TOML string.
pub fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
