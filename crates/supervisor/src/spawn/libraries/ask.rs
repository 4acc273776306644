//! Asking a program's dynamic loader for its libraries: the loader runs once, in a jail, and the program never.
//!
//! Runs in: the launcher, as root, which waits here; the loader under the uid of the service, in a jail like the
//! service's own, except that it sees the machine's files and can open only those in the folders of libraries.
//! Sees: what the loader prints, which a made-up program can choose. Never: waits longer or reads more than its
//! limits, and leaves no process behind.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use config::Service;
use jail::policy::{Grants, Policy};
use jail::{Access, Identity, Jail, Limits};
use sys::process::Program;

use super::library;
use crate::directories;
use crate::error::{Error, during};
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::helper::{self, Answer};
use crate::spawn::process_spec::ProcessSpec;

/// LIMIT: what is read of a loader: 256 libraries with long names.
const PRINTED_BYTES_MAX: usize = 64 << 10;
/// LIMIT: bytes of a program that is copied for its loader; the copy is in memory until the loader has ended.
const PROGRAM_BYTES_MAX: u64 = 256 << 20;
/// LIMIT: private memory of a loader that only lists.
const MEMORY_BYTES: u64 = 256 << 20;
/// Where the loader finds the copy.
const COPY: i32 = 3;

/// Where glibc's loader has written down which library is where.
pub const CACHE: &str = "/etc/ld.so.cache";

/// How a loader is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// An environment variable has it list libraries.
    Glibc,
    /// It is called as a program.
    Musl,
}

/// Every loader that is ever executed, by the path that programs have for it.
pub const LOADERS: [(&str, Loader); 4] = [
    ("/lib64/ld-linux-x86-64.so.2", Loader::Glibc),
    ("/lib/ld-linux-aarch64.so.1", Loader::Glibc),
    ("/lib/ld-musl-x86_64.so.1", Loader::Musl),
    ("/lib/ld-musl-aarch64.so.1", Loader::Musl),
];

/// A program of a service whose loader is to be asked.
pub struct Question<'a> {
    pub service: &'a Service,
    pub spec: &'a ProcessSpec,
    /// The program, as it is executed.
    pub program: &'a OwnedFd,
    /// The same, to be read.
    pub content: &'a File,
    /// Which loader it asks for, where that is, and its file.
    pub loader: (Loader, &'static str, &'a OwnedFd),
}

impl Question<'_> {
    /// What is executed, and what it inherits beside the usual.
    ///
    /// glibc's loader lists instead of starting the program if its environment says so. musl's does not look there:
    /// it has to be called as a program, with the path of one that it can read. The service cannot read its own
    /// program, so that it gets a copy.
    fn execution(&self) -> Result<(Program, Option<OwnedFd>), Error> {
        let (loader, path, file) = self.loader;
        // The service's own words on where libraries are hold here, too.
        let words = self.service.environment.iter();
        let words = words.filter(|(name, _)| *name == "LD_LIBRARY_PATH" || *name == "LD_PRELOAD");
        let mut environment: Vec<String> = words.map(|(name, value)| format!("{name}={value}")).collect();
        let (file, arguments, copy) = match loader {
            Loader::Glibc => {
                environment.push("LD_TRACE_LOADED_OBJECTS=1".into());
                let name = self.service.command.first().cloned().unwrap_or_default();
                (duplicate(self.program)?, vec![name], None)
            }
            Loader::Musl => {
                let copy = copy(self.content).map_err(during("copy a program for its dynamic loader"))?;
                let words = [path.into(), "--list".into(), "--".into(), format!("/proc/self/fd/{COPY}")];
                (duplicate(file)?, words.to_vec(), Some(copy))
            }
        };
        Ok((Program { file, arguments: texts(arguments)?, environment: texts(environment)? }, copy))
    }
}

fn texts(words: Vec<String>) -> Result<Vec<CString>, Error> {
    words.iter().map(|word| text(word)).collect()
}

/// The content of a program as a file in memory, which everybody to whom it is given can read.
fn copy(content: &File) -> io::Result<OwnedFd> {
    if content.metadata()?.len() > PROGRAM_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {PROGRAM_BYTES_MAX} bytes")));
    }
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut copy = File::from(memory);
    io::copy(&mut content.take(PROGRAM_BYTES_MAX), &mut copy)?;
    Ok(copy.into())
}

impl SpawnContext {
    /// Has a loader list the libraries of its program.
    pub(super) fn ask(&self, question: &Question<'_>) -> Result<Answer, Error> {
        let (program, copy) = question.execution()?;
        let (printed, printing) = io::pipe().map_err(during("make a pipe"))?;
        let printing = OwnedFd::from(printing);
        let mut descriptors = vec![(duplicate(&self.null)?, 0), (duplicate(&printing)?, 1), (printing, 2)];
        descriptors.extend(copy.map(|copy| (copy, COPY)));
        let limits = self.limits_of(question.spec);
        let may_run = [question.program, question.loader.2];
        let mut jail = self.jail_of_loader(question.spec.identity, limits, &may_run, descriptors)?;
        jail.label.clone_from(&question.service.program_label);
        let child =
            sys::process::start(&program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)?;
        // The launcher's own copies of the writing end would keep the pipe from ending.
        drop(jail);
        helper::listen(&child, OwnedFd::from(printed).into(), PRINTED_BYTES_MAX)
            .map_err(during("ask a dynamic loader"))
    }

    /// The jail of a loader that may run these files: that of a service with `limits`, without a root of its own,
    /// without network and channels.
    pub fn jail_of_loader(
        &self,
        identity: Option<Identity>,
        limits: Limits,
        may_run: &[&OwnedFd],
        descriptors: Vec<(OwnedFd, i32)>,
    ) -> Result<Jail, Error> {
        let may_run = may_run.iter().map(|file| Ok((duplicate(file)?, Access::Execute)));
        let mut paths = may_run.collect::<Result<Vec<_>, Error>>()?;
        for folder in library::FOLDERS.map(Path::new).into_iter().filter(|folder| folder.exists()) {
            paths.push((directories::existing(folder)?, Access::Execute));
        }
        if Path::new(CACHE).exists() {
            paths.push((directories::existing(Path::new(CACHE))?, Access::Read));
        }
        let limits = Limits {
            core_bytes: 0,
            memory_bytes: Some(MEMORY_BYTES),
            file_bytes: None,
            cpu_seconds: Some(helper::CPU_SECONDS),
            ..limits
        };
        // A loader that lists libraries needs none of what its program may be granted.
        let policy = Policy::Service(Grants::NONE);
        let mut jail = self.helper_jail(identity, policy, limits, descriptors, paths)?;
        jail.directory = Some(duplicate(&self.directory)?);
        jail.without.push("root");
        Ok(jail)
    }
}
