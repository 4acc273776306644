//! Reading the file, and looking whether what it names exists.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the file system below the paths the
//! operator named. Must never: change, execute or read anything but the configuration files themselves.
//!
//! SECURITY: this is help for the operator, not a guarantee: what is checked here may be replaced before it
//! is used. The processes that open these paths check again what they opened.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::check;
use crate::diagnostic::{Diagnostics, Problems, show_path};
use crate::lexical::lexical;
use crate::paths::{self, Class, Found, Neighbours, Opener, PathFault};
use crate::place::At;
use crate::raw::RawConfig;
use crate::raw::parts::RawCertificate;
use crate::raw::site::RawSite;
use crate::rules::FILE_BYTES_MAX;
use crate::statics_schema::{Action, Target};

/// The file's text and its absolute folder.
pub(crate) fn read(path: &Path, name: &str) -> Result<(String, PathBuf), Diagnostics> {
    let refused = |why: FileFault| match why {
        FileFault::NotUtf8(error) => not_utf8(name, error),
        FileFault::TooLarge => {
            Diagnostics::of_file(name, why.to_string(), "check that this is the right file")
        }
        FileFault::Io(_) | FileFault::NotAFile => {
            let help = "give the path of a configuration file that this user may read";
            Diagnostics::of_file(name, why.to_string(), help)
        }
    };
    let absolute = std::path::absolute(path).map_err(FileFault::Io).map_err(refused)?;
    let dir = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    Ok((text(path).map_err(refused)?, dir))
}

/// Why a file has no text.
#[derive(Debug)]
pub(crate) enum FileFault {
    Io(std::io::Error),
    NotAFile,
    TooLarge,
    NotUtf8(std::string::FromUtf8Error),
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read it: {error}"),
            Self::NotAFile => write!(f, "cannot read it: it is not a file"),
            Self::TooLarge => {
                write!(f, "it is larger than {FILE_BYTES_MAX} bytes, the most a configuration file may have")
            }
            Self::NotUtf8(error) => {
                write!(f, "byte {} is not UTF-8, which TOML is written in", error.utf8_error().valid_up_to())
            }
        }
    }
}

/// The text of a file that was named on the command line. Nothing but a file: what else there is would keep the
/// launcher waiting.
pub(crate) fn text(path: &Path) -> Result<String, FileFault> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(FileFault::Io)?;
    match file.metadata().map_err(FileFault::Io)? {
        // A folder has always been one that cannot be read.
        found if found.is_file() || found.is_dir() => text_of(&file, found.len()),
        _ => Err(FileFault::NotAFile),
    }
}

/// The text of a regular file that is open, and has about this size: it is read in one go.
pub(crate) fn text_of(file: &File, size: u64) -> Result<String, FileFault> {
    let mut bytes = Vec::with_capacity(size.min(FILE_BYTES_MAX) as usize + 1);
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(FileFault::Io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileFault::TooLarge);
    }
    String::from_utf8(bytes).map_err(FileFault::NotUtf8)
}

fn not_utf8(name: &str, error: std::string::FromUtf8Error) -> Diagnostics {
    let offset = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
    let mut problems = Problems::new(name, &text);
    problems.report_help(
        offset,
        "this byte is not UTF-8, which TOML is written in",
        "save the file as UTF-8",
    );
    problems.into_diagnostics()
}

/// Whether it is a mistake that a certificate or its key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificates {
    /// It is.
    Needed,
    /// It is not: the signer finds out, and goes on without it.
    LeftToSigner,
}

/// Every root, read folder and program exists and is what it should be; folders are kept apart, links and
/// all. `dir` is the folder of the file.
pub(crate) fn check(raw: &RawConfig, dir: &Path, problems: &mut Problems) {
    look(raw, dir, Certificates::Needed, problems);
}

/// The same of a configuration that runs: of a certificate that has gone since, its own site alone hears.
pub(crate) fn check_running(raw: &RawConfig, dir: &Path, problems: &mut Problems) {
    look(raw, dir, Certificates::LeftToSigner, problems);
}

fn look(raw: &RawConfig, dir: &Path, certificates: Certificates, problems: &mut Problems) {
    let opener = Opener::of(Path::new("/"));
    let neighbours = opener.neighbours();
    check::folders(raw, &|path| resolved(path, &neighbours), problems);
    let opener = Opener::of(dir);
    let mut looker = Looker { neighbours: opener.neighbours(), certificates, problems };
    looker.own(raw);
    for filter in &raw.conditioning.filters {
        filter.read.iter().for_each(|read| looker.folder("read", read));
        looker.program("filters", &filter.command, &filter.program);
    }
    for site in raw.sites.iter().filter(|site| site.is_new()) {
        looker.site(site);
    }
}

/// Looks at what a configuration names.
struct Looker<'l> {
    neighbours: Neighbours<'l>,
    certificates: Certificates,
    problems: &'l mut Problems,
}

impl Looker<'_> {
    /// What is made or kept by the server itself: nobody else can change a name on the way there.
    fn own(&mut self, raw: &RawConfig) {
        let folders = raw.server.folders().map(|(key, at)| (key, at.value.as_path(), at.offset));
        let error_file = raw.error_file.iter().map(|at| ("error_file", at.value.as_path(), at.offset));
        for (key, path, offset) in folders.chain(error_file).collect::<Vec<_>>() {
            // Of the last name, who makes it says more.
            let above = path.parent().unwrap_or(Path::new("/"));
            match self.neighbours.look_by_key(key, above) {
                Err(PathFault::Io { .. }) | Ok(_) => {}
                Err(fault) => self.refuse(key, path, offset, &fault),
            }
        }
    }

    fn site(&mut self, site: &RawSite) {
        site.opened().for_each(|(key, at)| self.folder(key, at));
        let templates = site.templates.iter().filter_map(|templates| templates.folder.as_ref());
        templates.for_each(|at| self.folder("folder", at));
        site.private().for_each(|(key, at)| match key {
            "key" => self.file(key, at, true),
            _ => self.regular(key, at),
        });
        if let Some((command, at)) = &site.worker.program {
            self.program("worker", command, at);
        }
        if let Some(tls) = &site.tls {
            let certificates = tls.certificates.iter().flat_map(RawCertificate::files);
            let certificates = certificates.filter(|_| self.certificates == Certificates::Needed);
            let certificates: Vec<_> = certificates.collect();
            certificates.into_iter().for_each(|(key, at, is_secret)| self.file(key, at, is_secret));
            tls.client_ca.iter().for_each(|at| self.file("client_ca", at, false));
            tls.client_crl.iter().for_each(|at| self.file("client_crl", at, false));
        }
        self.sockets(site);
        for service in &site.services {
            service.read.iter().for_each(|read| self.folder("read", read));
            service.libraries.iter().for_each(|at| self.folder("libraries", at));
            if let Some(at) = &service.command.program {
                self.program("command", &service.command.words, at);
            }
        }
    }

    /// The folders of sockets, which the servers behind them may still have to make.
    fn sockets(&mut self, site: &RawSite) {
        let of_routes = site.routes.iter().flat_map(|route| {
            let (key, targets) = match &route.action {
                Some(Action::Upstream(targets)) => ("upstream", &targets[..]),
                Some(Action::Fastcgi(targets)) => ("fastcgi", &targets[..]),
                _ => ("upstream", [].as_slice()),
            };
            let sockets = targets.iter().filter_map(|target| match target {
                Target::Unix(path) => Some(path.as_path()),
                _ => None,
            });
            sockets.map(move |path| (key, path, route.offset))
        });
        let of_data = site.data.iter().filter_map(|data| Some(("server", data.socket()?, data.offset)));
        for (key, path, offset) in of_routes.chain(of_data) {
            match self.find(key, path.parent().unwrap_or(Path::new("/"))) {
                None | Some(Ok(_) | Err(PathFault::Io { .. })) => {}
                Some(Err(fault)) => self.refuse(key, path, offset, &fault),
            }
        }
    }

    fn folder(&mut self, key: &str, at: &At<PathBuf>) {
        let Some(found) = self.look(key, at, "create the folder, or correct the path") else {
            return;
        };
        if !found.is_folder() {
            let message = format!("`{key}` {} is not a folder", show_path(&at.value));
            self.problems.report_help(at.offset, message, "name the folder it is in");
        }
    }

    fn regular(&mut self, key: &str, at: &At<PathBuf>) {
        let help = match key {
            "users" => "make it with `htpasswd -B`, or correct the path",
            _ => "create the file, or correct the path",
        };
        let Some(found) = self.look(key, at, help) else { return };
        if !found.is_file() {
            let message = format!("`{key}` {} is not a file", show_path(&at.value));
            self.problems.report_help(at.offset, message, help);
        } else {
            self.owner(key, at, &found);
        }
    }

    /// A file of certificates, which only the signer looks into; `is_secret` if a private key is in it.
    fn file(&mut self, key: &str, at: &At<PathBuf>, is_secret: bool) {
        let Some(found) = self.look(key, at, "create the file, or correct the path") else {
            return;
        };
        let (path, mode) = (show_path(&at.value), found.stat.st_mode);
        if !found.is_file() {
            let message = format!("`{key}` {path} is not a file");
            self.problems.report_help(at.offset, message, "name the file itself");
        } else if mode & 0o002 != 0 {
            let help = format!("run `chmod o-w {path}`");
            let message = format!("`{key}` {path} can be written by everybody");
            self.problems.report_help(at.offset, message, help);
        } else if self.owner(key, at, &found) && is_secret && mode & 0o004 != 0 {
            let message = format!("`{key}` {path} has a private key, and can be read by everybody");
            self.problems.warn(at.offset, message, format!("run `chmod o-r {path}`"));
        }
    }

    /// Whether a file is one that may be read for whoever has put it there.
    fn owner(&mut self, key: &str, at: &At<PathBuf>, found: &Found) -> bool {
        match found.check_owner() {
            Ok(()) => true,
            Err(fault) => {
                self.refuse(key, &at.value, at.offset, &fault);
                false
            }
        }
    }

    fn program(&mut self, key: &str, command: &[String], at: &At<PathBuf>) {
        let bare = command.first().is_some_and(|word| !word.contains('/'));
        let help =
            if bare { "write its whole path; PATH is not searched" } else { "build it, or correct the path" };
        let Some(found) = self.look(key, at, help) else {
            return;
        };
        let path = show_path(&at.value);
        if !found.is_file() {
            let message = format!("`{key}` {path} is not a file");
            self.problems.report_help(at.offset, message, "name the program itself");
        } else if found.stat.st_mode & 0o111 == 0 {
            let help = format!("run `chmod +x {path}`");
            self.problems.report_help(at.offset, format!("`{key}` {path} is not executable"), help);
        }
    }

    /// What a path leads to; `None` where this process does not look, but one that may wait for it.
    fn find(&self, key: &str, path: &Path) -> Option<Result<Found, PathFault>> {
        match self.neighbours.look_by_key(key, path) {
            Err(PathFault::Remote { .. } | PathFault::Silent { .. } | PathFault::Told { .. }) => None,
            Ok(found) if found.is_remote && !paths::may_wait() => None,
            found => Some(found),
        }
    }

    fn look(&mut self, key: &str, at: &At<PathBuf>, help: &str) -> Option<Found> {
        match self.find(key, &at.value)? {
            Ok(found) => return Some(found),
            Err(fault) if fault.is_not_found() => {
                let message = format!("`{key}` {} does not exist", show_path(&at.value));
                self.problems.report_help(at.offset, message, help);
            }
            Err(PathFault::Io { source, .. }) => {
                let message = format!("`{key}` {} cannot be looked at: {source}", show_path(&at.value));
                self.problems.report_help(at.offset, message, help);
            }
            Err(fault) => self.refuse(key, &at.value, at.offset, &fault),
        }
        None
    }

    fn refuse(&mut self, key: &str, path: &Path, offset: usize, fault: &PathFault) {
        let message = format!("`{key}` {} {}", show_path(path), fault.problem());
        self.problems.report_help(offset, message, fault.remedy());
    }
}

/// The path with its links followed as far as it exists; the rest, which is still to be created, as written.
fn resolved(path: &Path, neighbours: &Neighbours<'_>) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, real(ancestor, neighbours)?)));
    match existing {
        Some((ancestor, real)) => {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            lexical(&real.join(rest))
        }
        None => lexical(path),
    }
}

fn real(path: &Path, neighbours: &Neighbours<'_>) -> Option<PathBuf> {
    match paths::may_wait() {
        true => path.canonicalize().ok(),
        false => Some(neighbours.look(Class::Published, path).ok()?.real),
    }
}
