//! The file by which commands find this server, and word to `bulkhead serve` that it serves.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: fails a start: a server that cannot be written down is found
//! by its run directory.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use instances::{InstanceEntry, InstanceKind, InstanceState, ProcessIdentity, Registration};
use supervisor::Supervisor;

use crate::components::Component;

/// What the launcher was started with.
#[derive(Debug, Default)]
pub(crate) struct Started {
    /// The file of the configuration.
    pub config: PathBuf,
    /// The folders that `bulkhead serve` has been told to serve; `None` if the operator has written the configuration.
    pub folders: Option<Vec<PathBuf>>,
    /// Whether descriptor 0 is a pipe to the program that waits until everything serves.
    pub is_awaited: bool,
}

impl Started {
    /// Reads the command line: what `bulkhead serve` adds, and the configuration. `None` if it is another.
    pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut started = Self::default();
        loop {
            let word = words.next()?;
            if word == "--serves" {
                started.folders.get_or_insert_default().push(words.next()?.into());
            } else if word == "--awaited" {
                started.folders.get_or_insert_default();
                started.is_awaited = true;
            } else {
                // A later reload finds the file whatever the working directory is then.
                started.config = std::path::absolute(&word).unwrap_or_else(|_| word.into());
                return words.next().is_none().then_some(started);
            }
        }
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    registration: Option<Registration>,
    is_awaited: bool,
    has_told: bool,
}

impl Component for Registry {
    fn on_time(&mut self, supervisor: &mut Supervisor, _now: Instant) {
        if !self.has_told && supervisor.is_announced() {
            self.has_told = true;
            if self.is_awaited {
                // Nobody reads any more if `bulkhead serve` has been killed.
                let _ = rustix::io::write(io::stdin(), b"serving\n");
            }
            self.update(supervisor, |entry| entry.state = InstanceState::Serving);
        }
    }
}

impl Registry {
    /// Writes down that the server runs.
    pub(crate) fn register(&mut self, supervisor: &mut Supervisor, started: Started) {
        self.is_awaited = started.is_awaited;
        let run_dir = supervisor.directories().run.clone();
        let listeners = supervisor.urls();
        let entry = ProcessIdentity::own().map(|process| entry(process, started, &run_dir, listeners));
        let registered = entry.map_err(|error| error.to_string());
        match registered.and_then(|entry| Registration::new(entry).map_err(|fault| fault.to_string())) {
            Ok(registration) => self.registration = Some(registration),
            Err(reason) => supervisor.warn(format!(
                "commands do not find this server by themselves: {reason}; they do with --run-dir {}",
                run_dir.display()
            )),
        }
    }

    /// Writes down that the server runs which a launcher before has written down: it serves, and nobody waits for that.
    pub(crate) fn resume(&mut self, supervisor: &mut Supervisor, started: Started) {
        self.register(supervisor, started);
        self.has_told = true;
        self.update(supervisor, |entry| entry.state = InstanceState::Serving);
    }

    /// Has the file name the listeners of another configuration.
    pub(crate) fn on_reload(&mut self, supervisor: &mut Supervisor) {
        let listeners = supervisor.urls();
        self.update(supervisor, |entry| entry.listeners = listeners);
    }

    /// Removes the file.
    pub(crate) fn close(&mut self) {
        self.registration = None;
    }

    fn update(&mut self, supervisor: &mut Supervisor, change: impl FnOnce(&mut InstanceEntry)) {
        if let Some(Err(fault)) = self.registration.as_mut().map(|registration| registration.update(change)) {
            supervisor.warn(format!("`bulkhead ps` shows this server as it was: {fault}"));
        }
    }
}

fn entry(
    process: ProcessIdentity,
    started: Started,
    run_dir: &Path,
    listeners: Vec<String>,
) -> InstanceEntry {
    let run_dir = Some(std::path::absolute(run_dir).unwrap_or_else(|_| run_dir.into()));
    let mut entry = match started.folders {
        None => {
            InstanceEntry { config: Some(started.config), ..InstanceEntry::new(process, InstanceKind::Run) }
        }
        Some(folders) => InstanceEntry { folders, ..InstanceEntry::new(process, InstanceKind::Serve) },
    };
    (entry.run_dir, entry.listeners) = (run_dir, listeners);
    entry.add_aliases();
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Option<Started> {
        Started::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn the_command_line() {
        assert!(
            parse(&[]).is_none() && parse(&["a", "b"]).is_none() && parse(&["a", "--other", "b"]).is_none()
        );
        let run = parse(&["/a.toml"]).unwrap();
        assert_eq!((run.config.as_path(), run.folders, run.is_awaited), (Path::new("/a.toml"), None, false));
        let serve = parse(&["--serves", "/x", "--serves", "/y", "--awaited", "/a.toml"]).unwrap();
        assert_eq!(serve.folders, Some(vec!["/x".into(), "/y".into()]));
        assert!(serve.is_awaited);
        // Redirects and upstreams alone have no folder.
        assert_eq!(parse(&["--awaited", "/a.toml"]).unwrap().folders, Some(vec![]));
    }

    #[test]
    fn a_served_configuration_is_nothing_that_anybody_knows() {
        let process = ProcessIdentity { pid: 1, started: 1, boot: "b".into(), namespace: 1 };
        let started = parse(&["--serves", "/srv", "/run/x/bulkhead.toml"]).unwrap();
        let made = entry(process.clone(), started, Path::new("/run/x/run"), vec![]);
        assert_eq!(
            (made.kind, made.config, made.run_dir),
            (InstanceKind::Serve, None, Some("/run/x/run".into()))
        );
        let made = entry(process, parse(&["/a.toml"]).unwrap(), Path::new("/run/x"), vec!["http://h".into()]);
        assert_eq!(
            (made.kind, made.config, made.listeners.len()),
            (InstanceKind::Run, Some("/a.toml".into()), 1)
        );
    }
}
