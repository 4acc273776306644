//! What a service's program needs of the machine to run at all: its dynamic loader and its libraries.
//!
//! Runs in: the launcher, as root. Sees: what the inspector and the loader say of a program (`listing`), which its
//! owner may have made up. Never: gives a service a file that `library` has not checked, nor lets a program run to find
//! out what it needs.
//!
//! SECURITY: the loader that a program names is executed; so it must be one of `ask::LOADERS`, checked as a library.

pub mod answers;
mod ask;
mod library;
mod listing;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use config::{Opener, Service};
use jail::Access;
use sys::file_version::FileVersion;
use sys::process::Exit;
use wire::Role;

use crate::directories;
use crate::error::Error;
use crate::spawn::context::SpawnContext;
use crate::spawn::failures::Failure;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::{self, Start};

use self::answers::Known;
use self::ask::{CACHE, LOADERS, Loader};

/// What programs that use the network look up names and certificates in.
pub const NETWORK_FILES: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/ssl/certs"];

/// Whether a program may execute what is in a folder that it may read.
///
/// An interpreter of filters loads libraries from its own folder, among those that only root writes. Whoever may
/// execute it has no need of a library to run code of their own; what is in the operator's other folders is data.
pub fn executes(spec: &ProcessSpec, folder: &Path) -> bool {
    // The kernel is asked only where root alone writes: a tenant's file system may not answer.
    let is_really = || library::is_below_a_folder(&folder.canonicalize().unwrap_or_default());
    spec.role == Role::Filter && library::is_below_a_folder(folder) && is_really()
}

/// Whether a folder is one of those in which a machine has its libraries, or in one of them.
pub fn is_the_machines(folder: &Path) -> bool {
    library::FOLDERS.iter().any(|known| folder.starts_with(known))
}

/// Why code is not loaded from a folder of `libraries`, and what to do.
pub fn folder_fault(path: &Path, opener: &Opener) -> Option<(String, String)> {
    library::open_folder(path, opener).err()
}

/// A file or folder that a program is executed with besides itself.
#[derive(Debug)]
pub struct Needed {
    /// The path by which the program's loader finds it.
    pub at: PathBuf,
    /// What was checked.
    pub file: OwnedFd,
    /// What the program may do with it.
    pub access: Access,
}

impl SpawnContext {
    /// What `service`'s program is executed with besides itself.
    ///
    /// In a rootless run, where programs see the machine's own root: all libraries there are.
    pub fn needed(
        &self,
        service: &Service,
        spec: &ProcessSpec,
        program: &OwnedFd,
    ) -> Result<Vec<Needed>, Error> {
        let content = program::readable(program, &service.program)?;
        let start = self.inspect_jailed(&service.program, &content, (spec, service.jit))?;
        if self.empty_root.is_none() {
            let places = library::FOLDERS.iter().chain([&CACHE]).map(Path::new).filter(|path| path.exists());
            return places.map(|path| needed(path, directories::existing(path)?, Access::Execute)).collect();
        }
        let Start::Dynamic { loader: path, .. } = start else { return Ok(Vec::new()) };
        let (path, loader) = known_loader(&path).ok_or_else(|| wrong(service, unknown_loader(&path)))?;
        let file = library::open(Path::new(path)).map_err(|problem| lacks(service, path, problem))?;
        // The kernel maps the loader as it maps the program.
        self.inspect_jailed(
            Path::new(path),
            &program::readable(&file, Path::new(path))?,
            (spec, service.jit),
        )?;
        let version = content.metadata().ok().map(|found| FileVersion::of(&found));
        let known =
            self.answers.0.borrow().get(&service.program).filter(|known| known.holds(version)).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let (content, now) = (&content, Instant::now());
                let known = version.and_then(|version| self.failures.known(&service.program, version, now));
                if let Some(failure) = known {
                    return Err(failure.of(&service.program));
                }
                if !self.may_find_out() {
                    return Err(Error::NotExamined { path: service.program.clone() });
                }
                let question =
                    ask::Question { service, spec, program, content, loader: (loader, path, &file) };
                let files = self.libraries(&question)?.map_err(|failure| {
                    let remember = |version| {
                        self.failures.remember(&service.program, version, failure.clone(), now);
                    };
                    version.into_iter().for_each(remember);
                    failure.of(&service.program)
                })?;
                let known = Known::of(version, files);
                self.answers.0.borrow_mut().insert(service.program.clone(), known.clone());
                known
            }
        };
        let mut all = vec![needed(Path::new(path), file, Access::Execute)?];
        for (file, _) in known.files.iter().filter(|(file, _)| file != Path::new(path)) {
            all.push(checked(service, spec, file)?);
        }
        Ok(all)
    }

    /// Opens a folder from which a service may load code; in a rootless run as it is, since all code is the user's
    /// there.
    pub(super) fn libraries_folder(&self, service: &Service, path: &Path) -> Result<OwnedFd, Error> {
        if self.empty_root.is_none() {
            return self.published(path);
        }
        library::open_folder(path, &self.opener()).map_err(|(fault, remedy)| {
            wrong(
                service,
                format!("has the folder {} in `libraries`, which {fault}; {remedy}", path.display()),
            )
        })
    }

    /// The paths of a program's libraries, and of what else its loader reads.
    fn libraries(&self, question: &ask::Question<'_>) -> Result<Result<Vec<PathBuf>, Failure>, Error> {
        let answer = self.ask(question)?;
        let listing = match listing::parse(&answer.printed) {
            Ok(listing) => listing,
            Err(fault) => return Ok(Err(Failure::Program(fault.to_string()))),
        };
        if !listing.missing.is_empty() {
            let missing = listing.missing.join(", ");
            return Ok(Err(Failure::Library(missing, not_found(listing.missing.len()))));
        }
        let fault = match (listing.remark, answer.exit) {
            (Some(remark), _) => format!("its dynamic loader says: {remark}"),
            (None, None) => {
                "its dynamic loader does not list its libraries in time; link it statically".into()
            }
            (None, Some(Exit::Clean)) if listing.answered => {
                let mut files: Vec<PathBuf> = listing.found.into_iter().map(PathBuf::from).collect();
                if question.loader.0 == Loader::Glibc && Path::new(CACHE).exists() {
                    files.push(CACHE.into());
                }
                files.sort();
                files.dedup();
                return Ok(Ok(files));
            }
            (None, Some(exit)) => format!("its dynamic loader lists no libraries, and ends with {exit}"),
        };
        Ok(Err(Failure::Program(fault)))
    }
}

fn needed(at: &Path, file: OwnedFd, access: Access) -> Result<Needed, Error> {
    Ok(Needed { at: at.into(), file, access })
}

/// Opens and checks a file that a loader has named.
fn checked(service: &Service, spec: &ProcessSpec, path: &Path) -> Result<Needed, Error> {
    let name = path.to_string_lossy().escape_debug().to_string();
    if path == Path::new(CACHE) {
        return needed(path, directories::existing(path)?, Access::Read);
    }
    // It would be hidden by the folder, which is mounted later and for reading only.
    let is_in = |folder: &PathBuf| path.starts_with(config::lexical(folder));
    // Folders of `libraries` are mounted last.
    let is_loaded = service.libraries.iter().any(is_in);
    let hides = |folder: &&PathBuf| is_in(folder) && !executes(spec, folder) && !is_loaded;
    if let Some(folder) = service.read.iter().find(hides) {
        let folder = folder.display();
        return Err(lacks(
            service,
            &name,
            format!(
                "lies in {folder}, of which `read` lets it execute nothing; name narrower folders in `read`"
            ),
        ));
    }
    let file = library::open(path).map_err(|problem| lacks(service, &name, problem))?;
    needed(path, file, Access::Read)
}

/// A loader of the machine's that a program may ask for; no other name of a program's is followed.
pub fn known_loader(path: &str) -> Option<(&'static str, Loader)> {
    LOADERS.into_iter().find(|(known, _)| *known == path)
}

fn unknown_loader(path: &str) -> String {
    let known = LOADERS.map(|(path, _)| path).join(", ");
    format!("asks for the dynamic loader {path}, which is none of {known}; link it statically")
}

fn not_found(count: usize) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!(
        "{verb} in none of the machine's folders of libraries ({}); install what is missing and run `ldconfig`, or \
         link the program statically",
        library::FOLDERS.join(", ")
    )
}

fn wrong(service: &Service, problem: String) -> Error {
    Error::program(&service.program, problem)
}

fn lacks(service: &Service, library: &str, problem: String) -> Error {
    Error::Library { program: service.program.clone(), library: library.into(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_loaders() {
        assert_eq!(known_loader("/lib/ld-musl-aarch64.so.1").map(|(_, loader)| loader), Some(Loader::Musl));
        for path in ["/lib64/ld-linux-x86-64.so.2\\x00x", "/tmp/ld-linux-x86-64.so.2", "ld.so", ""] {
            assert!(known_loader(path).is_none(), "{path}");
        }
    }
}
