//! Which program a command is, and how it can be guarded.
//!
//! Runs in: the guard. Sees: what the inspector says of the program that its user named. Never: reads or runs the
//! program.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::options::By;
use supervisor::error::{Error, at};
use supervisor::spawn::context::SpawnContext;
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::spawn::program::Start;

/// The file that a shell would execute for `name`.
pub fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let failed = |problem: &str| Error::program(name, problem);
    if name.as_bytes().contains(&b'/') {
        return if is_executable(Path::new(name)) {
            Ok(name.into())
        } else {
            Err(failed("cannot be executed"))
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
        .ok_or_else(|| failed("is in no folder of PATH"))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// How the program at `path` is to be guarded, if its user leaves it to us. The inspector runs as `spec` does.
///
/// # Errors
/// It cannot be guarded in the way that was asked for, or in none.
pub fn way(context: &SpawnContext, spec: &ProcessSpec, path: &Path, asked: By) -> Result<By, Error> {
    let failed = |problem: String| Error::program(path, problem);
    let inspect = |named: &Path, file: &File| match context.inspect(named, file, spec) {
        Err(Error::Program { problem, .. }) => {
            Err(failed(format!("cannot be guarded: {} {problem}", named.display())))
        }
        inspected => inspected.map(|inspected| inspected.start),
    };
    let mut file = File::open(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let (mut named, mut start) = (path.to_owned(), inspect(path, &file)?);
    if let Start::Script(interpreter) = start {
        // The programs that an interpreter starts in its turn cannot be known; `env` and shells are judged as they are.
        file = File::open(&interpreter)
            .map_err(|error| failed(format!("asks for {}: {error}", interpreter.display())))?;
        start = inspect(&interpreter, &file)?;
        named = interpreter;
    }
    match (asked, seen(&start)) {
        (By::Preload, By::Notify) => Err(failed(
            "is a static or a Go program, which loads no library; leave `--by preload` out".into(),
        )),
        (By::Auto, By::Preload) | (By::Preload, _) => refuse_privileged(&file, &named).map(|()| By::Preload),
        (By::Auto | By::Notify, _) => Ok(By::Notify),
    }
}

/// The way that a program asks for. Go makes its system calls itself, also where it is linked with the C library.
fn seen(start: &Start) -> By {
    match start {
        Start::Dynamic { is_go: false, .. } => By::Preload,
        Start::Dynamic { is_go: true, .. } | Start::Static | Start::Script(_) => By::Notify,
    }
}

/// The loader ignores preloaded libraries in programs that give rights away to their user.
fn refuse_privileged(file: &File, named: &Path) -> Result<(), Error> {
    let metadata = file.metadata().map_err(at("examine", named))?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let changes = (metadata.mode() & 0o4000 != 0 && metadata.uid() != own.0)
        || (metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != own.1);
    if !changes {
        return Ok(());
    }
    Err(Error::program(
        named,
        "is setuid or setgid, so that no library can be preloaded into it; start the guard as the user that it \
         becomes, or use `--by notify` as root",
    ))
}

/// The library that is preloaded.
pub fn library(folder: &Path) -> Result<PathBuf, Error> {
    let path = folder.join("libbulkhead-guard.so");
    match fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(Error::program(path, "is not a file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::program(path, "is not there; `make build` or an installation puts it there"))
        }
        Err(error) => Err(at("examine", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert!(find(OsStr::new("no-such-command-here")).unwrap_err().to_string().contains("PATH"));
        assert!(find(OsStr::new("/etc/passwd")).is_err());
    }

    #[test]
    fn programs_of_the_c_library_are_preloaded() {
        let dynamic = |is_go| Start::Dynamic { loader: "/lib/ld.so".into(), is_go };
        assert_eq!((seen(&dynamic(false)), seen(&dynamic(true))), (By::Preload, By::Notify));
        assert_eq!(seen(&Start::Static), By::Notify);
    }
}
