//! What has happened in the folder of files of sites since they were read, as far as the kernel says so.
//!
//! Runs in: the launcher, as root. Sees: names of files in a folder of the operator's. Never: reads a file; says that
//! nothing has happened where the kernel might not have said so.
//!
//! Nobody waits for this: what the kernel has to say is taken when a reload begins. Where it says nothing, as on a
//! network file system, or could not say all, every file is looked at. A file that is written through a mapping in
//! memory, or in a place where another file is mounted over it, is seen by a reload that looks at every file; see
//! decision 71.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::Config;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

/// LIMIT: files that may have changed; with more, all are looked at, which takes no longer then.
const CHANGED_MAX: usize = 1000;
/// LIMIT: bytes of what the kernel says that are taken at once; more than the longest name needs.
const EVENT_BYTES: usize = 4096;

/// Kinds of file systems that belong to this machine alone, so that whatever changes there is said: ext4, XFS, Btrfs,
/// F2FS, tmpfs, ramfs, ZFS, bcachefs, overlayfs.
const LOCAL: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x8584_58f6,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x794c_7630,
];

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct SiteWatch {
    watched: Option<Watched>,
}

/// A folder that is watched.
#[derive(Debug)]
struct Watched {
    folder: PathBuf,
    /// Which folder it is: device and inode.
    which: (u64, u64),
    inotify: OwnedFd,
    /// Whether the files were read since the watch began, and all was said since then.
    is_whole: bool,
    /// The names of files to which something has happened since they were read.
    changed: BTreeSet<OsString>,
}

impl SiteWatch {
    /// Takes what has happened in the folder that a configuration includes. What happens from here on is for the next
    /// time.
    pub(crate) fn look(&mut self, config: &Path) {
        if let Some(watched) = &mut self.watched {
            watched.take_events();
        }
        self.watched.take_if(|watched| !watched.is_there());
        if self.watched.is_none() {
            let folder = config::site_folder(config).ok().flatten();
            self.watched = folder.and_then(Watched::new);
        }
    }

    /// The files that may have changed since they were read; `None`, if it can be any.
    pub(crate) fn changed(&self) -> Option<&BTreeSet<OsString>> {
        self.watched.as_ref().filter(|watched| watched.is_whole).map(|watched| &watched.changed)
    }

    /// All files were read after the last look, or all those that may have changed; but those of which nothing was
    /// taken in are read again the next time.
    pub(crate) fn all_is_read(&mut self, config: &Config, left_out: impl Iterator<Item = OsString>) {
        let folder = config.include.as_ref().map(|include| include.folder.as_path());
        self.watched.take_if(|watched| Some(watched.folder.as_path()) != folder);
        if let Some(watched) = &mut self.watched {
            watched.is_whole = true;
            watched.changed.clear();
            watched.changed.extend(left_out);
        }
    }

    /// One file alone was read after the last look.
    pub(crate) fn is_read(&mut self, name: &OsStr) {
        if let Some(watched) = &mut self.watched {
            watched.changed.remove(name);
        }
    }
}

impl Watched {
    /// Watches a folder whose file system says what happens there.
    fn new(folder: PathBuf) -> Option<Self> {
        let kind = rustix::fs::statfs(&folder).ok()?.f_type;
        if !LOCAL.iter().any(|local| kind as u64 == u64::from(*local)) {
            return None;
        }
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let all = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        add_watch(&inotify, &folder, all).ok()?;
        // After the watch: if it is another folder by then, that is noticed at the next look.
        let which = which(&folder)?;
        Some(Self { folder, which, inotify, is_whole: false, changed: BTreeSet::new() })
    }

    /// Whether the folder that is watched is still the one of this path.
    fn is_there(&self) -> bool {
        which(&self.folder) == Some(self.which)
    }

    /// Takes what the kernel has to say.
    fn take_events(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => match event.file_name() {
                    Some(name) if !event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                        self.changed.insert(OsStr::from_bytes(name.to_bytes()).to_owned());
                    }
                    // Something about the folder itself, or more than the kernel has kept.
                    _ => self.is_whole = false,
                },
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.is_whole = false;
                    break;
                }
            }
            if self.changed.len() > CHANGED_MAX {
                self.is_whole = false;
                self.changed.clear();
            }
        }
    }
}

fn which(folder: &Path) -> Option<(u64, u64)> {
    let found = folder.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A configuration with a folder of sites, which goes away with the test.
    struct Bench {
        folder: tempfile::TempDir,
        watch: SiteWatch,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("sites")).unwrap();
            let text = "include = 'sites/*.toml'\n[[listen]]\naddress = '127.0.0.1:1'\n";
            fs::write(folder.path().join("b.toml"), text).unwrap();
            Self { folder, watch: SiteWatch::default() }
        }

        fn file(&self, name: &str) -> PathBuf {
            self.folder.path().join("sites").join(name)
        }

        /// What may have changed, as names; `None` if it can be any file.
        fn look(&mut self) -> Option<Vec<String>> {
            self.watch.look(&self.folder.path().join("b.toml"));
            let names = self.watch.changed()?.iter();
            Some(names.map(|name| name.to_str().unwrap().to_owned()).collect())
        }

        fn all_is_read(&mut self) {
            let config = Config::load(&self.folder.path().join("b.toml")).unwrap();
            self.watch.all_is_read(&config, std::iter::empty());
        }
    }

    #[test]
    fn what_has_happened_is_said_until_it_was_read() {
        let mut bench = Bench::new();
        assert_eq!(bench.look(), None);
        bench.all_is_read();
        assert_eq!(bench.look(), Some(vec![]));
        fs::write(bench.file(".a.toml"), "").unwrap();
        fs::hard_link(bench.file(".a.toml"), bench.file("a.toml")).unwrap();
        assert_eq!(bench.look(), Some(vec![".a.toml".into(), "a.toml".into()]));
        fs::rename(bench.file(".a.toml"), bench.file("b.toml")).unwrap();
        let all = vec![".a.toml".into(), "a.toml".into(), "b.toml".into()];
        assert_eq!(bench.look(), Some(all), "it has not been read");
        fs::remove_file(bench.file("a.toml")).unwrap();
        fs::remove_file(bench.file("b.toml")).unwrap();
        bench.all_is_read();
        // What has happened before the files were read is said once more; that does no harm.
        assert_eq!(bench.look(), Some(vec!["a.toml".into(), "b.toml".into()]));
        bench.all_is_read();
        assert_eq!(bench.look(), Some(vec![]));
    }

    #[test]
    fn another_folder_is_another_watch() {
        let mut bench = Bench::new();
        bench.look();
        bench.all_is_read();
        let sites = bench.folder.path().join("sites");
        fs::rename(&sites, bench.folder.path().join("away")).unwrap();
        fs::create_dir(&sites).unwrap();
        assert_eq!(bench.look(), None);
        bench.all_is_read();
        fs::write(bench.file("a.toml.disabled"), "").unwrap();
        assert_eq!(bench.look(), Some(vec!["a.toml.disabled".into()]));
        bench.all_is_read();
        // Its owner or mode may be others.
        fs::set_permissions(&sites, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(bench.look(), None);
        bench.all_is_read();
        fs::rename(&sites, bench.folder.path().join("back")).unwrap();
        fs::rename(bench.folder.path().join("back"), &sites).unwrap();
        assert_eq!(bench.look(), None, "it was away");
        fs::remove_dir_all(&sites).unwrap();
        assert_eq!(bench.look(), None);
    }

    #[test]
    fn a_configuration_with_another_folder_has_another_watch() {
        let mut bench = Bench::new();
        bench.look();
        bench.all_is_read();
        fs::create_dir(bench.folder.path().join("others")).unwrap();
        let text = "include = 'others/*.toml'\n[[listen]]\naddress = '127.0.0.1:1'\n";
        fs::write(bench.folder.path().join("b.toml"), text).unwrap();
        assert_eq!(bench.look(), Some(vec![]), "whoever reads the main file finds another one");
        bench.all_is_read();
        assert_eq!(bench.look(), None);
    }

    #[test]
    fn what_the_kernel_did_not_keep_can_be_any_file() {
        let mut bench = Bench::new();
        bench.look();
        bench.all_is_read();
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let (a, b) = (bench.file("a.toml.new"), bench.file("b.toml.new"));
        fs::write(&a, "").unwrap();
        for _ in 0..=most.trim().parse::<usize>().unwrap() / 2 {
            fs::rename(&a, &b).unwrap();
            fs::rename(&b, &a).unwrap();
        }
        assert_eq!(bench.look(), None);
        bench.all_is_read();
        assert_eq!(bench.look(), Some(vec![]));
        for number in 0..=CHANGED_MAX {
            fs::write(bench.file(&format!("{number}.toml.new")), "").unwrap();
        }
        assert_eq!(bench.look(), None, "there are too many");
    }

    #[test]
    fn a_file_system_that_may_be_another_machines_is_not_watched() {
        assert!(Watched::new("/proc".into()).is_none());
        assert!(Watched::new("/nonexistent".into()).is_none());
    }
}
