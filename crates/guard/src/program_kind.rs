//! Which program a command is, and how it can be guarded.
//!
//! Runs in: the guard. Sees: the head of the program that its user named. Never: runs it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::options::By;
use bulkheadd::error::Error;
use bulkheadd::spawn::libraries::elf;

/// LIMIT: bytes of a script's first line that the kernel reads.
const LINE_MAX: usize = 256;

/// The file that a shell would execute for `name`.
pub fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let failed = |problem: &str| Error::Program { path: name.into(), problem: problem.into() };
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

/// How the program at `path` is to be guarded, if its user leaves it to us.
///
/// # Errors
/// It cannot be guarded in the way that was asked for, or in none.
pub fn way(path: &Path, asked: By) -> Result<By, Error> {
    let failed = |problem: String| Error::Program { path: path.into(), problem };
    let mut file = File::open(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let mut named = path.to_owned();
    if let Some(interpreter) = interpreter_of(&file) {
        // What it starts in its turn cannot be known; `env` and shells are what they are.
        file = File::open(&interpreter)
            .map_err(|error| failed(format!("asks for {}: {error}", interpreter.display())))?;
        named = interpreter;
    }
    let seen = seen(&file).map_err(|fault| failed(reason(&named, fault)))?;
    match (asked, seen) {
        (By::Preload, By::Notify) => Err(failed(
            "is a static or a Go program, which loads no library; leave `--by preload` out".into(),
        )),
        (By::Auto, By::Preload) | (By::Preload, _) => refuse_privileged(&file, &named).map(|()| By::Preload),
        (By::Auto | By::Notify, _) => Ok(By::Notify),
    }
}

/// The way that the program's head asks for.
fn seen(file: &File) -> Result<By, elf::Fault> {
    let read = |at, buffer: &mut [u8]| file.read_exact_at(buffer, at);
    // Go makes its system calls itself, also where it is linked with the C library.
    let own_calls = elf::interpreter(read)?.is_none() || elf::has_note(read, b"Go")?;
    Ok(if own_calls { By::Notify } else { By::Preload })
}

fn reason(named: &Path, fault: elf::Fault) -> String {
    let named = named.display();
    match fault {
        elf::Fault::OtherMachine => {
            format!("cannot be guarded: {named} {fault}, and the guard's library and filter are")
        }
        _ => format!("cannot be guarded: {named} {fault}"),
    }
}

/// The loader ignores preloaded libraries in programs that give rights away to their user.
fn refuse_privileged(file: &File, named: &Path) -> Result<(), Error> {
    let metadata =
        file.metadata().map_err(|source| Error::Path { action: "examine", path: named.into(), source })?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let changes = (metadata.mode() & 0o4000 != 0 && metadata.uid() != own.0)
        || (metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != own.1);
    if !changes {
        return Ok(());
    }
    Err(Error::Program {
        path: named.into(),
        problem: "is setuid or setgid, so that no library can be preloaded into it; start the guard as the user that it \
                  becomes, or use `--by notify` as root"
            .into(),
    })
}

/// The interpreter of a script.
fn interpreter_of(file: &File) -> Option<PathBuf> {
    let mut line = [0; LINE_MAX];
    let length = file.read_at(&mut line, 0).ok()?;
    let line = line[..length].strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let word = line.split(u8::is_ascii_whitespace).next()?;
    Some(OsString::from_vec(word.to_vec()).into())
}

/// The library that is preloaded.
pub fn library(folder: &Path) -> Result<PathBuf, Error> {
    let path = folder.join("libbulkhead-guard.so");
    match fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) => Err(Error::Program { path, problem: "is not a file".into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Program {
            path,
            problem: "is not there; `make build` or an installation puts it there".into(),
        }),
        Err(source) => Err(Error::Path { action: "examine", path, source }),
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
        assert_eq!(way(Path::new("/bin/sh"), By::Auto).unwrap(), By::Preload);
        assert_eq!(way(Path::new("/bin/sh"), By::Notify).unwrap(), By::Notify);
        assert!(way(Path::new("/etc/passwd"), By::Auto).is_err());
    }

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let script = std::env::temp_dir().join(format!("bulkhead-script-{}", std::process::id()));
        fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
        assert_eq!(interpreter_of(&File::open(&script).unwrap()).unwrap(), Path::new("/bin/sh"));
        assert_eq!(way(&script, By::Auto).unwrap(), way(Path::new("/bin/sh"), By::Auto).unwrap());
        fs::write(&script, "#!/no/such\n").unwrap();
        assert!(way(&script, By::Auto).unwrap_err().to_string().contains("/no/such"));
        fs::remove_file(&script).unwrap();
    }
}
