//! Which running server a command is for: by what it was started with, by its pid, or because it is the only one.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: what that user's servers have written down, and that
//! person's words and files. Never: takes the server of another user, or one of several by a guess.
//!
//! A configuration is read only where no server is known that was started with it: it may have been broken, or removed,
//! since then.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use instances::{FoundInstance, InstanceEntry, InstanceKind, ProcessIdentity};

use crate::admin::printable;
use crate::cli::ServerOptions;
use crate::fault::Fault;
use crate::locate::{self, HERE, SYSTEM};

/// The options by which a server is named; a command line that is proposed has none but `--pid`.
const NAMED_BY: [&str; 4] = ["--config", "--folder", "--pid", "--run-dir"];

/// The server that is meant.
#[derive(Debug)]
pub struct ServerTarget {
    /// The folder with its administration socket; `None` for a guard.
    pub run_dir: Option<PathBuf>,
    /// Its process; `None` if it has not written itself down.
    pub process: Option<ProcessIdentity>,
}

/// What a command needs of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// An answer to a question or an order.
    Commands,
    /// That it can be ended.
    Nothing,
}

/// The run directory of the server that is meant.
pub fn run_dir(server: &ServerOptions) -> Result<PathBuf, Fault> {
    let target = find(server, Needs::Commands)?;
    target.run_dir.ok_or_else(|| Fault::Failed("a guard takes no commands but `stop`".into()))
}

/// The server that is meant, to be stopped: guards can be, too.
pub fn any(server: &ServerOptions) -> Result<ServerTarget, Fault> {
    find(server, Needs::Nothing)
}

fn find(server: &ServerOptions, needs: Needs) -> Result<ServerTarget, Fault> {
    let listing = instances::list();
    for fault in &listing.refused {
        eprintln!("warning: {fault}; it is not looked at");
    }
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let known = KnownServers { servers: &listing.servers, needs, words: &words };
    if let Some(run_dir) = &server.run_dir {
        return Ok(known.at(run_dir));
    }
    if let Some(pid) = server.pid {
        return known.with_pid(pid);
    }
    if let Some(folder) = &server.folder {
        return known.only(&known.about(folder), || {
            Fault::Unreachable(known.none(&format!("no server of this user serves {}", shown(folder))))
        });
    }
    if let Some(config) = &server.config {
        return known.by_config(config);
    }
    known.unnamed()
}

/// The servers that are written down.
struct KnownServers<'a> {
    servers: &'a [FoundInstance],
    needs: Needs,
    /// The command line, without the program's name.
    words: &'a [std::ffi::OsString],
}

impl<'a> KnownServers<'a> {
    /// Those that run and can do what is needed.
    fn running(&self) -> impl Iterator<Item = &'a InstanceEntry> {
        let fits = |entry: &&InstanceEntry| self.needs == Needs::Nothing || entry.run_dir.is_some();
        self.servers.iter().filter(|found| found.lives).map(|found| &found.entry).filter(fits)
    }

    /// Those that were started with a configuration or a folder, by whatever name.
    fn about(&self, named: &Path) -> Vec<&'a InstanceEntry> {
        let names = names_of(named);
        self.running().filter(|entry| names.iter().any(|name| entry.is_about(name))).collect()
    }

    fn at(&self, run_dir: &Path) -> ServerTarget {
        let names = names_of(run_dir);
        let is_there = |entry: &&InstanceEntry| entry.run_dir.as_ref().is_some_and(|own| names.contains(own));
        let process = self.running().find(is_there).map(|entry| entry.process.clone());
        ServerTarget { run_dir: Some(run_dir.into()), process }
    }

    fn with_pid(&self, pid: u32) -> Result<ServerTarget, Fault> {
        // Of `bulkhead serve`, the shell knows the process that waits for the launcher.
        let waits =
            |entry: &InstanceEntry| entry.kind == InstanceKind::Serve && entry.process.parent() == Some(pid);
        let found = self.running().find(|entry| entry.process.pid == pid || waits(entry));
        if let Some(entry) = found {
            return Ok(ServerTarget::of(entry));
        }
        let is_it = |found: &&FoundInstance| found.entry.process.pid == pid;
        Err(match self.servers.iter().find(is_it) {
            Some(FoundInstance { lives: true, .. }) => Fault::Failed(format!(
                "{pid} is a guard, which takes no commands; `bulkhead stop --pid {pid}` ends it and its server"
            )),
            Some(FoundInstance { entry, .. }) => {
                Fault::Unreachable(self.none(&format!(
                    "the server with pid {pid} ({}) has died without saying so",
                    about(entry)
                )))
            }
            None => Fault::Unreachable(self.none(&format!("no server of this user has pid {pid}"))),
        })
    }

    fn by_config(&self, config: &Path) -> Result<ServerTarget, Fault> {
        let found = self.about(config);
        if !found.is_empty() {
            return self.only(&found, || Fault::Failed(String::new()));
        }
        // A server of another user, or one that could not write itself down, is where its configuration says.
        let path = shown(config);
        match locate::load_good(config) {
            Ok(judged) => Ok(self.at(&judged.config.server.run_dir)),
            Err(mistakes) => {
                let why = format!("no server of this user was started with {path}, which cannot be read now");
                Err(Fault::Usage(format!("{mistakes}\n\n{}", self.none(&why))))
            }
        }
    }

    /// None was named: the one of the configuration that is here, or of the machine's, or the only one.
    fn unnamed(&self) -> Result<ServerTarget, Fault> {
        let here = Path::new(HERE);
        let found = self.about(here);
        if !found.is_empty() || here.exists() {
            // SECURITY: whoever stands beside a configuration means its server, and not another that happens to run.
            let target = self.by_config(here)?;
            let is_there = target.run_dir.as_ref().is_some_and(|run_dir| run_dir.join("admin.sock").exists());
            if target.process.is_none() && !is_there && self.running().next().is_some() {
                return Err(Fault::Unreachable(self.none(&format!("no server runs with {HERE}"))));
            }
            return Ok(target);
        }
        let system = self.about(Path::new(SYSTEM));
        if let [entry] = system[..] {
            return Ok(ServerTarget::of(entry));
        }
        let all: Vec<&InstanceEntry> = self.running().collect();
        if all.is_empty() && Path::new(SYSTEM).exists() {
            return self.by_config(Path::new(SYSTEM));
        }
        self.only(&all, || Fault::Unreachable("no server of this user is running".into()))
    }

    /// The one of these, if it is one.
    fn only(&self, found: &[&InstanceEntry], none: impl FnOnce() -> Fault) -> Result<ServerTarget, Fault> {
        match found {
            [] => Err(none()),
            [entry] => Ok(ServerTarget::of(entry)),
            several => Err(Fault::Usage(format!(
                "there are {} such servers; choose one:\n{}",
                several.len(),
                self.choices(several.iter().copied())
            ))),
        }
    }

    /// What is to be said if none was found, with those that there are.
    fn none(&self, what: &str) -> String {
        let choices = self.choices(self.running());
        if choices.is_empty() { what.to_owned() } else { format!("{what}; these are running:\n{choices}") }
    }

    /// A command line for each.
    fn choices<'b>(&self, entries: impl Iterator<Item = &'b InstanceEntry>) -> String {
        let lines = entries.map(|entry| {
            let pid = entry.process.pid;
            format!("  {}    {}", with_pid(self.words, pid), about(entry))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl ServerTarget {
    fn of(entry: &InstanceEntry) -> Self {
        Self { run_dir: entry.run_dir.clone(), process: Some(entry.process.clone()) }
    }
}

/// What a path may be called where a server has written it down: as it was named, or without symbolic links. The file
/// may be gone, but hardly the folder that it was in.
fn names_of(path: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let in_folder = absolute.parent().and_then(|folder| folder.canonicalize().ok());
    let in_folder = in_folder.zip(absolute.file_name()).map(|(folder, name)| folder.join(name));
    let real = absolute.canonicalize().ok();
    [Some(absolute), in_folder, real].into_iter().flatten().collect()
}

/// What a server serves, as a person knows it.
pub fn about(entry: &InstanceEntry) -> String {
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(" ");
    let what = match entry.kind {
        InstanceKind::Run => entry.config.as_deref().map(shown).unwrap_or_default(),
        InstanceKind::Serve => paths(&entry.folders),
        InstanceKind::Guard => {
            entry.command.as_deref().map(|command| shown(Path::new(command))).unwrap_or_default()
        }
    };
    format!("{} {what}", entry.kind.word()).trim_end().to_owned()
}

/// A path fit for a terminal.
pub fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// The command line that was typed, for the server with this pid.
fn with_pid(words: &[std::ffi::OsString], pid: u32) -> String {
    let mut line = String::from("bulkhead");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if NAMED_BY.iter().any(|option| word == option) {
            words.next();
        } else if !NAMED_BY.iter().any(|option| word.to_string_lossy().starts_with(&format!("{option}="))) {
            line += &format!(" {}", quoted(word));
        }
    }
    format!("{line} --pid {pid}")
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let text = printable(&word.to_string_lossy());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn entry(pid: u32, kind: InstanceKind) -> InstanceEntry {
        let process = ProcessIdentity { pid, started: u64::from(pid), boot: "b".into(), namespace: 1 };
        let run_dir = (kind != InstanceKind::Guard).then(|| PathBuf::from(format!("/run/{pid}")));
        InstanceEntry { run_dir, ..InstanceEntry::new(process, kind) }
    }

    fn servers() -> Vec<FoundInstance> {
        let run = InstanceEntry {
            config: Some("/srv/a.toml".into()),
            aliases: vec!["/real/a.toml".into()],
            ..entry(10, InstanceKind::Run)
        };
        let serve = InstanceEntry {
            folders: vec!["/srv/x".into(), "/srv/y".into()],
            ..entry(20, InstanceKind::Serve)
        };
        let guard = InstanceEntry { command: Some("apache2".into()), ..entry(30, InstanceKind::Guard) };
        let dead = InstanceEntry { config: Some("/srv/dead.toml".into()), ..entry(40, InstanceKind::Run) };
        let found = |entry, lives| FoundInstance { entry, lives };
        vec![found(run, true), found(serve, true), found(guard, true), found(dead, false)]
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_server_is_found_by_each_of_its_names() {
        let (servers, words) = (servers(), words("status"));
        let known = KnownServers { servers: &servers, needs: Needs::Commands, words: &words };
        let pid =
            |target: Result<ServerTarget, Fault>| target.ok().and_then(|target| Some(target.process?.pid));
        assert_eq!(pid(known.by_config(Path::new("/srv/a.toml"))), Some(10));
        assert_eq!(pid(known.by_config(Path::new("/real/a.toml"))), Some(10));
        assert_eq!(known.about(Path::new("/srv/y"))[0].process.pid, 20);
        assert_eq!(pid(known.with_pid(20)), Some(20));
        assert_eq!(pid(Ok(known.at(Path::new("/run/10")))), Some(10));
        assert!(known.at(Path::new("/elsewhere")).process.is_none());
        let ends = KnownServers { needs: Needs::Nothing, ..known };
        assert_eq!(pid(ends.with_pid(30)), Some(30));
    }

    #[test]
    fn what_is_not_found_is_said_with_what_there_is() {
        let (servers, words) = (servers(), words("stop --config=/x --pid 5"));
        let known = KnownServers { servers: &servers, needs: Needs::Commands, words: &words };
        let text = |target: Result<ServerTarget, Fault>| target.unwrap_err().to_string();
        assert!(text(known.with_pid(30)).contains("a guard, which takes no commands"));
        assert!(text(known.with_pid(40)).starts_with("the server with pid 40 (run /srv/dead.toml) has died"));
        let none = text(known.with_pid(99));
        assert!(none.starts_with("no server of this user has pid 99; these are running:\n"), "{none}");
        assert!(none.contains("  bulkhead stop --pid 10    run /srv/a.toml\n"), "{none}");
        assert!(none.ends_with("  bulkhead stop --pid 20    serve /srv/x /srv/y"), "{none}");
        let several: Vec<&InstanceEntry> = known.running().collect();
        let fault = known.only(&several, || unreachable!()).unwrap_err();
        assert!(
            matches!(&fault, Fault::Usage(text) if text.starts_with("there are 2 such servers; choose one:\n"))
        );
    }

    #[test]
    fn a_proposed_command_line_is_the_one_that_was_typed() {
        let line = words("relaunch --run-dir /run/x packages/search --json");
        assert_eq!(with_pid(&line, 7), "bulkhead relaunch packages/search --json --pid 7");
        let odd = [OsString::from("probe"), OsString::from("it's\u{1b} odd")];
        assert_eq!(with_pid(&odd, 7), r"bulkhead probe 'it'\''s\u{1b} odd' --pid 7");
    }
}
