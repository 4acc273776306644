//! What is in the files and folders that a configuration names: whom to ask, and where the answers belong.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: findings about files, in words. Must never: open one
//! of these files; who examines them does, in a process for it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::data_schema::Engine;
use crate::diagnostic::{Problems, Severity, show_path};
use crate::paths::{Neighbours, Opener, class_of};
use crate::place::At;
use crate::raw::RawConfig;
use crate::raw::site::RawSite;
use crate::schema::Isolation;
use crate::statics_schema::{Action, Target};

/// What is to be looked at, and how the file calls it.
#[derive(Debug)]
pub struct Subject<'c> {
    /// The key that names it.
    pub key: &'static str,
    /// The file or folder; absolute.
    pub path: &'c Path,
    /// What it is to be.
    pub content: Content<'c>,
    offset: usize,
}

/// What a file or folder is to be.
#[derive(Debug)]
pub enum Content<'c> {
    /// The certificate of a site.
    Certificate {
        /// The site's number, in the order of the file.
        site: usize,
        /// The file of its key, if that is another one.
        key: Option<&'c Path>,
        /// The site's hosts.
        hosts: Vec<&'c str>,
    },
    /// Authorities of clients' certificates.
    Authorities,
    /// Lists of revoked certificates of clients.
    RevocationLists,
    /// Users and the hashes of their passwords.
    Users,
    /// Statements of a data source.
    Statements {
        /// The services of the site that may have the source.
        services: Vec<&'c str>,
        /// The server that the source is at, if it is at one.
        engine: Option<Engine>,
    },
    /// A program of the operator's.
    Program {
        /// Whose it is.
        kind: ProgramKind,
    },
    /// The socket of a server behind a site.
    Socket,
    /// A folder of the server's own.
    Own,
    /// The state folder, whose table says which uids were given out.
    Uids {
        /// Out of which range more are to be given.
        range: RangeInclusive<u32>,
        /// Whether the configuration says so; if not, the server may have chosen another one.
        is_written: bool,
    },
    /// The state folder, which may have something of a site of this name.
    Named {
        /// The name of the site.
        site: &'c str,
        /// The account as which the site's worker runs, if one is named.
        user: Option<&'c str>,
        /// Its `root`, or its `vhosts`.
        root: Option<&'c Path>,
    },
    /// The folder of a site's files.
    Published {
        /// The name of the site.
        site: &'c str,
        /// The account as which the site's worker runs, if one is named.
        user: Option<&'c str>,
        /// Suffixes that a route has something to say of.
        routed: Vec<&'c str>,
        /// Names with a dot in front that are sent all the same.
        send_hidden: &'c [String],
    },
    /// A folder that links of a site may lead into.
    Linked {
        /// The name of the site.
        site: &'c str,
        /// The account as which the site's worker runs, if one is named.
        user: Option<&'c str>,
    },
    /// A folder that a service reads.
    Read {
        /// The names of the site and the service, with `/` between them.
        service: String,
    },
    /// A folder of templates.
    Templates {
        /// The name of the site.
        site: &'c str,
    },
    /// A folder from which a service loads code.
    Libraries {
        /// The names of the site and the service, with `/` between them.
        service: String,
    },
}

/// Whose a program is, which says where it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A service's or a site's worker's: its own, and nobody else's.
    Own,
    /// That of a service with `libraries`, which may be an interpreter of the machine's.
    Interpreter,
    /// A filter's, which may be the same.
    Filter,
}

impl ProgramKind {
    /// That of a service with these `libraries`.
    pub fn of_service<F>(libraries: &[F]) -> Self {
        if libraries.is_empty() { Self::Own } else { Self::Interpreter }
    }
}

/// What is wrong with a subject, or perhaps not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter, behind the key and the path.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// What the configuration says of the machine, for whoever examines it.
#[derive(Debug)]
pub struct Setting<'c> {
    /// The folder of the file.
    pub dir: &'c Path,
    /// Where the table of uids is.
    pub state_dir: Option<&'c Path>,
    /// The uids of partitions.
    pub user_range: Option<RangeInclusive<u32>>,
    /// What to do without a layer of the jail.
    pub isolation: Isolation,
    /// The layers that are left out.
    pub danger_without: &'c [String],
}

/// Somebody who looks at files.
pub trait Examine {
    /// What is to be said of `subjects`, each with its number.
    fn examine(&self, setting: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)>;

    /// Whether what is said was found by a process that waits for file systems of others: one that does not leaves out
    /// what lies there.
    fn has_waited(&self) -> bool {
        false
    }
}

/// Has everything examined that is there, and reports what is found.
pub(crate) fn all(raw: &RawConfig, dir: &Path, examine: &dyn Examine, problems: &mut Problems) {
    let setting = Setting {
        dir,
        state_dir: raw.server.state_dir.as_ref().map(|at| at.value.as_path()),
        user_range: raw.server.user_range.as_ref().map(|at| at.value.clone()),
        isolation: raw.server.isolation,
        danger_without: &raw.server.danger_without,
    };
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    let own = raw.server.folders().map(|(key, at)| subject(key, at, Content::Own));
    subjects.extend(own);
    subjects.extend(uids(raw));
    let filters = raw.conditioning.filters.iter();
    subjects.extend(
        filters.map(|one| subject("filters", &one.program, Content::Program { kind: ProgramKind::Filter })),
    );
    for (number, site) in raw.sites.iter().enumerate().filter(|(_, site)| site.is_new()) {
        of_site(number, site, &mut subjects);
        subjects.extend(setting.state_dir.and_then(|state| named(state, site)));
    }
    // Of what is not there, or not to be opened, something has been said.
    let opener = Opener::of(dir);
    let neighbours = opener.neighbours();
    let found = |key: &str, path: &Path| neighbours.look_by_key(key, path).ok();
    subjects.retain(|subject| match subject.content {
        _ if would_wait(&neighbours, subject) => examine.has_waited(),
        Content::Own | Content::Uids { .. } | Content::Socket | Content::Named { .. } => true,
        Content::Published { .. }
        | Content::Linked { .. }
        | Content::Read { .. }
        | Content::Libraries { .. }
        | Content::Templates { .. } => found(subject.key, subject.path).is_some_and(|one| one.is_folder()),
        Content::Certificate { key, .. } => {
            let is_file = |path| found("key", path).is_some_and(|one| one.is_readable_file());
            is_file(subject.path) && key.is_none_or(is_file)
        }
        Content::Program { .. } => {
            found(subject.key, subject.path).is_some_and(|one| one.is_file() && one.stat.st_mode & 0o111 != 0)
        }
        _ => found(subject.key, subject.path).is_some_and(|one| one.is_readable_file()),
    });
    for (number, finding) in examine.examine(&setting, &subjects) {
        let Some(subject) = subjects.get(number) else { continue };
        let message = match subject.content {
            Content::Named { site, .. } => format!("site \"{site}\" {}", finding.message),
            Content::Uids { ref range, .. } => {
                format!("`user_range` {}-{} {}", range.start(), range.end(), finding.message)
            }
            _ => format!("`{}` {} {}", subject.key, show_path(subject.path), finding.message),
        };
        match finding.severity {
            Severity::Error => problems.report_help(subject.offset, message, finding.help),
            Severity::Warning => problems.warn(subject.offset, message, finding.help),
        }
    }
}

/// Whether this process would have to wait for somebody to look at a subject.
fn would_wait(neighbours: &Neighbours<'_>, subject: &Subject<'_>) -> bool {
    let waits = |key: &str, path: &Path| neighbours.would_wait(class_of(key), path);
    match &subject.content {
        Content::Own | Content::Uids { .. } | Content::Named { .. } => false,
        Content::Socket => waits(subject.key, subject.path.parent().unwrap_or(Path::new("/"))),
        Content::Certificate { key: Some(key), .. } if waits("key", key) => true,
        _ => waits(subject.key, subject.path),
    }
}

fn subject<'c>(key: &'static str, at: &'c At<PathBuf>, content: Content<'c>) -> Subject<'c> {
    Subject { key, path: &at.value, content, offset: at.offset }
}

/// The range of uids, and where those are that were given out.
fn uids(raw: &RawConfig) -> Option<Subject<'_>> {
    let (range, state) = (raw.server.user_range.as_ref()?, raw.server.state_dir.as_ref()?);
    let content = Content::Uids { range: range.value.clone(), is_written: raw.server.user_range_given };
    Some(Subject { key: "user_range", path: &state.value, content, offset: range.offset })
}

/// What there may be of the name of a site.
fn named<'c>(state: &'c Path, site: &'c RawSite) -> Option<Subject<'c>> {
    let user = site.worker.user.as_ref().map(|user| user.value.as_str());
    let root = site.root().or(site.vhosts.as_ref()).map(|root| root.value.as_path());
    let content = Content::Named { site: site.name.as_deref()?, user, root };
    Some(Subject { key: "name", path: state, content, offset: site.offset })
}

fn of_site<'c>(number: usize, site: &'c RawSite, subjects: &mut Vec<Subject<'c>>) {
    let hosts: Vec<&str> = site.hosts.iter().map(|host| host.value.as_str()).collect();
    if let Some(tls) = &site.tls {
        subjects.extend(tls.certificates.iter().map(|one| {
            let key = one.key.as_ref().map(|key| key.value.as_path());
            let content = Content::Certificate { site: number, key, hosts: hosts.clone() };
            subject(one.named_by, &one.certificate, content)
        }));
        subjects.extend(tls.client_ca.iter().map(|at| subject("client_ca", at, Content::Authorities)));
        subjects.extend(tls.client_crl.iter().map(|at| subject("client_crl", at, Content::RevocationLists)));
    }
    subjects.extend(site.users().map(|at| subject("users", at, Content::Users)));
    for data in &site.data {
        let services: Vec<&str> =
            site.services_with(data).filter_map(|service| service.name.as_deref()).collect();
        let content = |at| subject("statements", at, Content::Statements { services, engine: data.engine() });
        subjects.extend(data.statements.as_ref().map(content));
        let authorities = |at| subject("server_ca", at, Content::Authorities);
        subjects.extend(data.server_ca.as_ref().map(authorities));
    }
    let program = |key, at, kind| subject(key, at, Content::Program { kind });
    subjects.extend(site.worker.program.iter().map(|(_, at)| program("worker", at, ProgramKind::Own)));
    let name = site.name.as_deref().unwrap_or_default();
    let user = site.worker.user.as_ref().map(|user| user.value.as_str());
    let folder = site.templates.iter().filter_map(|templates| templates.folder.as_ref());
    subjects.extend(folder.map(|at| subject("folder", at, Content::Templates { site: name })));
    let linked = site.follow_links.iter();
    subjects.extend(linked.map(|at| subject("follow_links", at, Content::Linked { site: name, user })));
    for (key, at) in site.published() {
        let matchers = site.routes.iter().filter_map(|route| route.matcher.as_ref());
        let suffixes = matchers.filter(|matcher| matcher.value.path.is_none());
        let suffixes = suffixes.filter_map(|matcher| matcher.value.suffix.as_deref());
        let content = Content::Published {
            site: name,
            user,
            routed: suffixes.collect(),
            send_hidden: &site.statics.send_hidden,
        };
        subjects.push(subject(key, at, content));
    }
    for route in &site.routes {
        let (key, targets) = match &route.action {
            Some(Action::Upstream(targets)) => ("upstream", targets),
            Some(Action::Fastcgi(targets)) => ("fastcgi", targets),
            _ => continue,
        };
        subjects.extend(targets.iter().filter_map(|target| match target {
            Target::Unix(path) => Some(Subject { key, path, content: Content::Socket, offset: route.offset }),
            Target::Tcp(_) | Target::Name(..) => None,
        }));
    }
    for service in &site.services {
        let named = format!("{name}/{}", service.name.as_deref().unwrap_or_default());
        let kind = ProgramKind::of_service(&service.libraries);
        subjects.extend(service.command.program.iter().map(|at| program("command", at, kind)));
        subjects.extend(service.libraries.iter().map(|at| {
            let content = Content::Libraries { service: named.clone() };
            subject("libraries", at, content)
        }));
        subjects.extend(service.read.iter().map(|at| {
            let content = Content::Read { service: named.clone() };
            subject("read", at, content)
        }));
    }
}
