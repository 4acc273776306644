//! `bulkhead serve`: a server without a configuration file; its words become one.
//!
//! Runs in: the `bulkhead` command, as whoever types it; the launcher is its child. Sees: that person's words.
//! Never: uses a directory that was there before, or leaves its own behind, whichever signal ends it.

pub mod options;
pub mod text;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io::Read as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::SystemTime;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::fault::Fault;
use crate::locate;
use crate::serve::options::Serve;
use crate::table::print;

/// Serves the folder until it is told to stop.
pub fn serve(options: &Serve) -> Result<ExitCode, Fault> {
    let written = text::write(options)?;
    written.notes.iter().for_each(|note| eprintln!("note: {note}"));
    if options.all().any(|one| one.print_config) {
        print(written.text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let launcher = locate::launcher()?;
    // Before there is anything to clean up, so that no signal comes too early.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD]).map_err(Fault::io("cannot take signals"))?;
    let runtime = Runtime::make(&runtime_base())?;
    let path = runtime.path.join("bulkhead.toml");
    fs::write(&path, &written.text).map_err(Fault::io(path.display()))?;
    locate::load(&path)?;
    let (mut serving, awaited) = std::io::pipe().map_err(Fault::io("cannot make a pipe"))?;
    let folders =
        options.folders().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.into()));
    let child = Command::new(&launcher)
        .args(folders.flat_map(|folder| [OsString::from("--serves"), folder.into()]))
        .arg("--awaited")
        .arg(&path)
        .stdin(awaited)
        // A group of its own: Ctrl-C comes here only, and is passed on once.
        .process_group(0)
        .spawn()
        .map_err(Fault::io(launcher.display()))?;
    // A launcher that does not come up closes the pipe, and has said why.
    let greeting = greeting(options, &written.listeners);
    std::thread::spawn(move || match serving.read(&mut [0; 16]) {
        Ok(1..) => print(&greeting),
        _ => Ok(()),
    });
    let status = watch(child, &mut signals)?;
    // The launcher has said why; its code is 1 or 2, or it was killed.
    Ok(match status.code() {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

/// Where to look, and at what.
fn greeting(options: &Serve, listeners: &[(SocketAddr, bool)]) -> String {
    let urls: Vec<String> = listeners.iter().map(|(address, tls)| url(*address, *tls)).collect();
    let folder = options.folder().filter(|_| options.more.is_empty() && options.redirect.is_none());
    let what =
        folder.and_then(|dir| fs::canonicalize(dir).ok()).map(|dir| format!("serves {}", dir.display()));
    format!("{} {}; Ctrl-C ends it", urls.join(" "), what.unwrap_or_else(|| "served".to_owned()))
}

fn url(listen: SocketAddr, tls: bool) -> String {
    let mut shown = listen;
    // "Any address" is not one that a browser can go to.
    match listen {
        SocketAddr::V4(_) if listen.ip().is_unspecified() => shown.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) if listen.ip().is_unspecified() => shown.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("{}://{shown}/", if tls { "https" } else { "http" })
}

/// Waits for the launcher to end; passes on what tells it to.
fn watch(mut child: Child, signals: &mut Signals) -> Result<ExitStatus, Fault> {
    loop {
        // Looked for before waiting: SIGCHLD may have come before the first wait, and several count as one.
        if let Some(status) = child.try_wait().map_err(Fault::io("cannot wait for the launcher"))? {
            return Ok(status);
        }
        let told = signals.wait().any(|signal| signal != SIGCHLD);
        // INVARIANT: the child has not been waited for since it was last seen alive, so its pid is its own.
        if told && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// A directory that is removed at the end.
#[derive(Debug)]
struct Runtime {
    path: PathBuf,
}

impl Runtime {
    fn make(base: &Path) -> Result<Self, Fault> {
        let moment = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let moment = moment.map_or(0, |since| since.subsec_nanos());
        let path = base.join(format!("bulkhead-serve-{}-{moment:08x}", std::process::id()));
        // SECURITY: mkdir fails if anything is there, a symbolic link included.
        DirBuilder::new().mode(0o755).create(&path).map_err(Fault::io(path.display()))?;
        let runtime = Self { path };
        // The umask may have taken away what the partitions' uids need to pass through.
        fs::set_permissions(&runtime.path, Permissions::from_mode(0o755))
            .map_err(Fault::io(runtime.path.display()))?;
        Ok(runtime)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} could not be removed: {error}", self.path.display());
        }
    }
}

fn runtime_base() -> PathBuf {
    if geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_dir())
        .unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_to_go_to() {
        assert_eq!(url("0.0.0.0:80".parse().unwrap(), false), "http://127.0.0.1:80/");
        assert_eq!(url("[::]:443".parse().unwrap(), true), "https://[::1]:443/");
        assert_eq!(url("10.0.0.1:8080".parse().unwrap(), false), "http://10.0.0.1:8080/");
    }

    #[test]
    fn the_runtime_directory_is_new_and_goes_away() {
        let runtime = Runtime::make(&std::env::temp_dir()).unwrap();
        let path = runtime.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        fs::write(path.join("x"), "").unwrap();
        drop(runtime);
        assert!(!path.exists());
    }
}
