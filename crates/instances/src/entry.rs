//! The file of a running server: lines of a key and a value.
//!
//! ```text
//! bulkhead instance 1
//! pid 4711
//! started 1234567
//! boot 6c1d2c0e-6c3f-4c4b-9c4e-2f0b6a0f2a11
//! namespace 4026531836
//! kind run
//! state serving
//! run-dir /run/bulkhead
//! config /etc/bulkhead/bulkhead.toml
//! listen http://0.0.0.0:80
//! ```
//!
//! Sees: the bytes of a file; pure. Never: gives a path that is not absolute, or more names than the limit.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::identity::ProcessIdentity;

/// LIMIT: bytes of a file; a server with two hundred listeners and folders needs a quarter of them.
pub const BYTES_MAX: usize = 64 << 10;
/// LIMIT: folders, other names and listeners of a server, of each kind. Those beyond are not written down: the server
/// is found by what is there.
pub const NAMES_MAX: usize = 256;
/// LIMIT: bytes of the boot's name, which has 36.
const BOOT_BYTES_MAX: usize = 64;

const HEAD: &str = "bulkhead instance 1";

/// How a server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceKind {
    /// `bulkhead run`: by a configuration.
    Run,
    /// `bulkhead serve`: by the folders that are served.
    Serve,
    /// `bulkhead guard`: before a server of somebody else's.
    Guard,
}

/// How far a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Not all listeners accept yet.
    Starting,
    /// All listeners have accepted.
    Serving,
}

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceEntry {
    /// Its process: the launcher, or the guard.
    pub process: ProcessIdentity,
    /// How it was started.
    pub kind: InstanceKind,
    /// How far it has come.
    pub state: InstanceState,
    /// The folder with its administration socket; a guard has none.
    pub run_dir: Option<PathBuf>,
    /// The file of its configuration, as it was named.
    pub config: Option<PathBuf>,
    /// The program that is guarded, as it was named.
    pub command: Option<OsString>,
    /// The folders that it serves, as they were named.
    pub folders: Vec<PathBuf>,
    /// The paths of its configuration and its folders without symbolic links, where they differ.
    pub aliases: Vec<PathBuf>,
    /// Where it listens, as `http://127.0.0.1:80`.
    pub listeners: Vec<String>,
}

/// Bytes that are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EntryError(&'static str);

impl InstanceKind {
    const ALL: [(Self, &str); 3] = [(Self::Run, "run"), (Self::Serve, "serve"), (Self::Guard, "guard")];

    /// Its word, which is that of the command.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

impl InstanceState {
    const ALL: [(Self, &str); 2] = [(Self::Starting, "starting"), (Self::Serving, "serving")];

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }
}

impl InstanceEntry {
    /// A server that has just been started as `process`, and of which nothing else is known.
    pub fn new(process: ProcessIdentity, kind: InstanceKind) -> Self {
        let (run_dir, config, command) = (None, None, None);
        let (folders, aliases, listeners) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            process,
            kind,
            state: InstanceState::Starting,
            run_dir,
            config,
            command,
            folders,
            aliases,
            listeners,
        }
    }

    /// Whether the server runs with this configuration, or serves this folder.
    pub fn is_about(&self, path: &Path) -> bool {
        self.config.iter().chain(&self.folders).chain(&self.aliases).any(|own| own == path)
    }

    /// Adds the names without symbolic links of the configuration and of the folders, as they are now.
    pub fn add_aliases(&mut self) {
        let named: Vec<&PathBuf> = self.config.iter().chain(&self.folders).collect();
        let real = named.iter().filter_map(|path| path.canonicalize().ok());
        self.aliases = real.filter(|real| !named.contains(&real)).collect();
        self.aliases.dedup();
    }

    /// The bytes of the file, at most [`BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let ProcessIdentity { pid, started, boot, namespace } = &self.process;
        let (kind, state) = (self.kind.word(), self.state.word());
        let mut text = format!(
            "{HEAD}\npid {pid}\nstarted {started}\nboot {boot}\nnamespace {namespace}\nkind {kind}\nstate {state}\n"
        );
        let path = |path: &PathBuf| path.as_os_str().to_owned();
        let one = |key, value: Option<OsString>| value.map(|value| (key, value));
        let single = [
            one("run-dir", self.run_dir.as_ref().map(path)),
            one("config", self.config.as_ref().map(path)),
            one("command", self.command.clone()),
        ];
        let listeners = self.listeners.iter().take(NAMES_MAX).map(|one| ("listen", OsString::from(one)));
        let folders = self.folders.iter().take(NAMES_MAX).map(|one| ("folder", path(one)));
        let aliases = self.aliases.iter().take(NAMES_MAX).map(|one| ("alias", path(one)));
        for (key, value) in single.into_iter().flatten().chain(listeners).chain(folders).chain(aliases) {
            let line = format!("{key} {}\n", escape(value.as_bytes()));
            if text.len() + line.len() <= BYTES_MAX {
                text += &line;
            }
        }
        text.into_bytes()
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They are none that a server writes. Keys that are not known are those of a newer server, and skipped.
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() > BYTES_MAX {
            return Err(EntryError("it is larger than any"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| EntryError("it is not UTF-8"))?;
        let text = text.strip_suffix('\n').ok_or(EntryError("it is cut off"))?;
        let mut lines = text.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(EntryError("it is not of this version"));
        }
        let mut fields = EntryFields::default();
        for line in lines {
            let (key, value) = line.split_once(' ').ok_or(EntryError("a line has no value"))?;
            fields.take(key, value)?;
        }
        fields.finish()
    }
}

/// The values of the lines so far.
#[derive(Default)]
struct EntryFields {
    pid: Option<u32>,
    started: Option<u64>,
    boot: Option<String>,
    namespace: Option<u64>,
    kind: Option<InstanceKind>,
    state: Option<InstanceState>,
    run_dir: Option<PathBuf>,
    config: Option<PathBuf>,
    command: Option<OsString>,
    folders: Vec<PathBuf>,
    aliases: Vec<PathBuf>,
    listeners: Vec<String>,
}

impl EntryFields {
    fn take(&mut self, key: &str, value: &str) -> Result<(), EntryError> {
        match key {
            "pid" => once(&mut self.pid, number(value).filter(|pid| *pid > 0)),
            "started" => once(&mut self.started, number(value)),
            "boot" => {
                let fits = (1..=BOOT_BYTES_MAX).contains(&value.len())
                    && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
                once(&mut self.boot, fits.then(|| value.to_owned()))
            }
            "namespace" => once(&mut self.namespace, number(value)),
            "kind" => once(&mut self.kind, word(&InstanceKind::ALL, value)),
            "state" => once(&mut self.state, word(&InstanceState::ALL, value)),
            "run-dir" => once(&mut self.run_dir, path(value)),
            "config" => once(&mut self.config, path(value)),
            "command" => once(&mut self.command, unescape(value).map(OsString::from_vec)),
            "folder" => more(&mut self.folders, path(value)),
            "alias" => more(&mut self.aliases, path(value)),
            "listen" => {
                more(&mut self.listeners, unescape(value).and_then(|text| String::from_utf8(text).ok()))
            }
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<InstanceEntry, EntryError> {
        const MISSING: EntryError = EntryError("a line is missing");
        let process = ProcessIdentity {
            pid: self.pid.ok_or(MISSING)?,
            started: self.started.ok_or(MISSING)?,
            boot: self.boot.ok_or(MISSING)?,
            namespace: self.namespace.ok_or(MISSING)?,
        };
        let (kind, state) = (self.kind.ok_or(MISSING)?, self.state.ok_or(MISSING)?);
        if kind != InstanceKind::Guard && self.run_dir.is_none() {
            return Err(MISSING);
        }
        let Self { run_dir, config, command, folders, aliases, listeners, .. } = self;
        Ok(InstanceEntry { process, kind, state, run_dir, config, command, folders, aliases, listeners })
    }
}

fn once<T>(field: &mut Option<T>, value: Option<T>) -> Result<(), EntryError> {
    let value = value.ok_or(EntryError("a value is none"))?;
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(EntryError("a line is there twice")),
    }
}

fn more<T>(field: &mut Vec<T>, value: Option<T>) -> Result<(), EntryError> {
    if field.len() >= NAMES_MAX {
        return Err(EntryError("there are too many names"));
    }
    field.push(value.ok_or(EntryError("a value is none"))?);
    Ok(())
}

/// Digits alone: `parse` would take a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn word<T: Copy>(all: &[(T, &str)], wanted: &str) -> Option<T> {
    all.iter().find(|(_, word)| *word == wanted).map(|(value, _)| *value)
}

fn path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(unescape(text)?));
    path.is_absolute().then_some(path)
}

/// Printable ASCII as it is, anything else and `%` as `%1B`.
fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut text, &byte| {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            // INVARIANT: a String takes what it is given.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

fn is_plain(byte: u8) -> bool {
    byte != b'%' && (byte.is_ascii_graphic() || byte == b' ')
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::with_capacity(text.len()));
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if is_plain(byte) {
            bytes.push(byte);
            continue;
        }
        if byte != b'%' {
            return None;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0)?);
        rest = after;
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> InstanceEntry {
        let process =
            ProcessIdentity { pid: 7, started: 99, boot: "6c1d-2c".into(), namespace: 4_026_531_836 };
        InstanceEntry {
            run_dir: Some("/run/bulkhead".into()),
            config: Some(PathBuf::from(OsString::from_vec(b"/a b/\n\xff%41.toml".to_vec()))),
            folders: vec!["/srv/a".into(), "/srv/b".into()],
            aliases: vec!["/real".into()],
            listeners: vec!["http://[::1]:80".into()],
            command: Some("./my server".into()),
            ..InstanceEntry::new(process, InstanceKind::Serve)
        }
    }

    #[test]
    fn there_and_back() {
        let entry = entry();
        assert_eq!(InstanceEntry::parse(&entry.encode()), Ok(entry.clone()));
        assert!(entry.is_about(Path::new("/srv/b")) && entry.is_about(Path::new("/real")));
        assert!(!entry.is_about(Path::new("/srv")));
        let more = [&entry.encode()[..], b"new-key of a newer server\n"].concat();
        assert_eq!(InstanceEntry::parse(&more), Ok(entry));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let good = String::from_utf8(entry().encode()).unwrap();
        let without = |key: &str| -> String {
            good.split_inclusive('\n').filter(|line| !line.starts_with(&format!("{key} "))).collect()
        };
        for key in ["pid", "started", "boot", "namespace", "kind", "state", "run-dir"] {
            assert_eq!(
                InstanceEntry::parse(without(key).as_bytes()),
                Err(EntryError("a line is missing")),
                "{key}"
            );
        }
        let bad = [
            ("pid 7", "pid 0"),
            ("pid 7", "pid +7"),
            ("pid 7", "pid 4294967296"),
            ("kind serve", "kind other"),
            ("run-dir /run", "run-dir run"),
            ("folder /srv/a", "folder /srv/%0"),
            ("folder /srv/a", "folder /srv/%00"),
            ("folder /srv/a", "folder /srv/\0"),
            ("folder /srv/a", "folder /srv/ä"),
            ("folder /srv/a", "folder "),
            ("folder /srv/a", "folder"),
            ("boot 6c1d", "boot \u{1b}6c1d"),
            ("instance 1", "instance 2"),
        ];
        for (from, to) in bad {
            assert!(InstanceEntry::parse(good.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
        }
        for text in ["", "\n", good.trim_end(), &format!("{good}pid 8\n"), &format!("{good}\n")] {
            assert!(InstanceEntry::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn however_much_there_is_to_say_the_file_can_be_read() {
        let long = format!("/{}", "x".repeat(4000));
        let mut entry = entry();
        entry.folders = (0..1000).map(|number| format!("{long}{number}").into()).collect();
        entry.listeners = (0..1000).map(|number| format!("http://127.0.0.1:{number}")).collect();
        let bytes = entry.encode();
        assert!(bytes.len() <= BYTES_MAX);
        let read = InstanceEntry::parse(&bytes).unwrap();
        assert_eq!((read.listeners.len(), &read.config), (NAMES_MAX, &entry.config));
        assert!(!read.folders.is_empty());
        // Longer than any, and shorter again: only its length is wrong.
        let padded =
            |count: usize| [&entry.encode()[..], b"new-key ", &vec![b'x'; count - 1][..], b"\n"].concat();
        let room = BYTES_MAX - padded(1).len() + 1;
        assert_eq!(InstanceEntry::parse(&padded(room)).map(|read| read.process), Ok(read.process));
        assert_eq!(InstanceEntry::parse(&padded(room + 1)), Err(EntryError("it is larger than any")));
        let many = format!(
            "{}{}",
            String::from_utf8(super::tests::entry().encode()).unwrap(),
            "listen a\n".repeat(NAMES_MAX)
        );
        assert_eq!(InstanceEntry::parse(many.as_bytes()), Err(EntryError("there are too many names")));
    }
}
