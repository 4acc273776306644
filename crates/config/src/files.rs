//! Reading the file, and looking whether what it names exists.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the file system below the paths the
//! operator named. Must never: change, execute or read anything but the configuration files themselves.
//!
//! SECURITY: this is help for the operator, not a guarantee: what is checked here may be replaced before it
//! is used. The processes that open these paths check again what they opened.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::check;
use crate::diagnostic::{Diagnostics, Problems, show_path};
use crate::place::At;
use crate::raw::RawConfig;
use crate::rules::FILE_BYTES_MAX;
use crate::tls::RawCertificate;

/// The file's text and its absolute folder.
pub(crate) fn read(path: &Path, name: &str) -> Result<(String, PathBuf), Diagnostics> {
    let refused = |why: Unread| match why {
        Unread::NotUtf8(error) => not_utf8(name, error),
        Unread::TooLarge => Diagnostics::of_file(name, why.to_string(), "check that this is the right file"),
        Unread::Io(_) => {
            let help = "give the path of a configuration file that this user may read";
            Diagnostics::of_file(name, why.to_string(), help)
        }
    };
    let absolute = std::path::absolute(path).map_err(Unread::Io).map_err(refused)?;
    let dir = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    Ok((text(path).map_err(refused)?, dir))
}

/// Why a file has no text.
#[derive(Debug)]
pub(crate) enum Unread {
    Io(std::io::Error),
    TooLarge,
    NotUtf8(std::string::FromUtf8Error),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read it: {error}"),
            Self::TooLarge => {
                write!(f, "it is larger than {FILE_BYTES_MAX} bytes, the most a configuration file may have")
            }
            Self::NotUtf8(error) => {
                write!(f, "byte {} is not UTF-8, which TOML is written in", error.utf8_error().valid_up_to())
            }
        }
    }
}

/// The text of a file.
pub(crate) fn text(path: &Path) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Unread::Io)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Unread::Io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Unread::TooLarge);
    }
    String::from_utf8(bytes).map_err(Unread::NotUtf8)
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

/// Every root, read folder and program exists and is what it should be; folders are kept apart, links and
/// all.
pub(crate) fn check(raw: &RawConfig, problems: &mut Problems) {
    check::folders(raw, resolved, problems);
    for filter in &raw.conditioning.filters {
        filter.read.iter().for_each(|read| folder("read", read, problems));
        program("filters", &filter.command, &filter.program, problems);
    }
    for site in raw.sites.iter().filter(|site| site.is_new()) {
        site.opened().for_each(|(key, at)| folder(key, at, problems));
        let templates = site.templates.iter().filter_map(|templates| templates.folder.as_ref());
        templates.for_each(|at| folder("folder", at, problems));
        site.private().for_each(|(key, at)| match key {
            "key" => file(key, at, true, problems),
            _ => regular(key, at, problems),
        });
        if let Some((command, at)) = &site.worker.program {
            program("worker", command, at, problems);
        }
        if let Some(tls) = &site.tls {
            let certificates = tls.certificates.iter().flat_map(RawCertificate::files);
            certificates.for_each(|(key, at, is_secret)| file(key, at, is_secret, problems));
            tls.client_ca.iter().for_each(|at| file("client_ca", at, false, problems));
            tls.client_crl.iter().for_each(|at| file("client_crl", at, false, problems));
        }
        for service in &site.services {
            service.read.iter().for_each(|read| folder("read", read, problems));
            service.libraries.iter().for_each(|at| folder("libraries", at, problems));
            if let Some(at) = &service.program {
                program("command", &service.command, at, problems);
            }
        }
    }
}

fn folder(key: &str, at: &At<PathBuf>, problems: &mut Problems) {
    let Some(found) = metadata(key, at, "create the folder, or correct the path", problems) else {
        return;
    };
    if !found.is_dir() {
        let message = format!("`{key}` {} is not a folder", show_path(&at.value));
        problems.report_help(at.offset, message, "name the folder it is in");
    }
}

fn regular(key: &str, at: &At<PathBuf>, problems: &mut Problems) {
    let help = match key {
        "users" => "make it with `htpasswd -B`, or correct the path",
        _ => "create the file, or correct the path",
    };
    if metadata(key, at, help, problems).is_some_and(|found| !found.is_file()) {
        problems.report_help(at.offset, format!("`{key}` {} is not a file", show_path(&at.value)), help);
    }
}

/// A file of certificates, which only the signer looks into; `is_secret` if a private key is in it.
fn file(key: &str, at: &At<PathBuf>, is_secret: bool, problems: &mut Problems) {
    let Some(found) = metadata(key, at, "create the file, or correct the path", problems) else {
        return;
    };
    let path = show_path(&at.value);
    if !found.is_file() {
        problems.report_help(at.offset, format!("`{key}` {path} is not a file"), "name the file itself");
    } else if found.permissions().mode() & 0o002 != 0 {
        let help = format!("run `chmod o-w {path}`");
        problems.report_help(at.offset, format!("`{key}` {path} can be written by everybody"), help);
    } else if is_secret && found.permissions().mode() & 0o004 != 0 {
        let message = format!("`{key}` {path} has a private key, and can be read by everybody");
        problems.warn(at.offset, message, format!("run `chmod o-r {path}`"));
    }
}

fn program(key: &str, command: &[String], at: &At<PathBuf>, problems: &mut Problems) {
    let bare = command.first().is_some_and(|word| !word.contains('/'));
    let help =
        if bare { "write its whole path; PATH is not searched" } else { "build it, or correct the path" };
    let Some(found) = metadata(key, at, help, problems) else {
        return;
    };
    let path = show_path(&at.value);
    if !found.is_file() {
        problems.report_help(at.offset, format!("`{key}` {path} is not a file"), "name the program itself");
    } else if found.permissions().mode() & 0o111 == 0 {
        let help = format!("run `chmod +x {path}`");
        problems.report_help(at.offset, format!("`{key}` {path} is not executable"), help);
    }
}

fn metadata(key: &str, at: &At<PathBuf>, help: &str, problems: &mut Problems) -> Option<Metadata> {
    match std::fs::metadata(&at.value) {
        Ok(found) => Some(found),
        Err(error) => {
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => format!("`{key}` {} does not exist", show_path(&at.value)),
                _ => format!("`{key}` {} cannot be looked at: {error}", show_path(&at.value)),
            };
            problems.report_help(at.offset, message, help);
            None
        }
    }
}

/// The path with its links followed as far as it exists; the rest, which is still to be created, as written.
fn resolved(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match existing {
        Some((ancestor, real)) => {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            check::lexical(&real.join(rest))
        }
        None => check::lexical(path),
    }
}
