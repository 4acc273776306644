//! Looks for files that uids own: in a copy of this process, which has a deadline.
//!
//! Runs in: the `bulkhead` command, as root: in folders of tenants, which make them as large and as deep as they like.
//! Sees: names, owners and groups. Never: follows a link below a folder that was named, opens a file, or crosses to
//! another file system; takes what it could not read for searched.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use supervisor::spawn::helper::listen_for;
use sys::process::Exit;

use crate::fault::Fault;

/// LIMIT: how long a search may take; some ten million files on a disk. A tenant with more is named, and nothing is
/// given back.
pub const SEARCH_MAX: Duration = Duration::from_secs(300);
/// LIMIT: folders of one search that wait to be looked into, each with a name of at most 255 bytes.
const WAITING_MAX: usize = 1 << 20;
/// LIMIT: folders that are open at a time. Those above are opened again from below, and compared.
const OPEN_MAX: usize = 64;
/// LIMIT: bytes of what a search says: a path for each uid.
const SAID_MAX: usize = 16 << 20;
/// LIMIT: bytes of a path that is said.
const PATH_MAX: usize = 4096;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a search has found.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedFiles {
    /// The first file of each uid that owns one, or whose group does.
    pub owned: BTreeMap<u32, String>,
    /// The first place that could not be searched, and why.
    pub unread: Option<String>,
    /// The folders that are there, of those that were named, where they really are.
    pub searched: Vec<String>,
}

/// Searches these folders for files of these uids.
pub fn search(folders: &[PathBuf], uids: &[u32], time: Duration) -> Result<OwnedFiles, Fault> {
    let failed =
        |what: &str, why: String| Fault::Failed(format!("the folders cannot be searched: {what}: {why}"));
    let (printed, printing) = io::pipe().map_err(|error| failed("a pipe", error.to_string()))?;
    let kept = [printing.as_raw_fd()];
    let work = || {
        let found = Search::new(folders, uids).run();
        let said = serde_json::to_vec(&found).map_err(|error| ("answer", error.into()))?;
        (&printing).write_all(&said).map_err(|error| ("answer", error))
    };
    let child =
        sys::process::begin_work(&kept, work).map_err(|error| failed("a process", error.to_string()))?;
    drop(printing);
    let answer = listen_for(&child, File::from(OwnedFd::from(printed)), SAID_MAX, time);
    let answer = answer.map_err(|error| failed("its answer", error.to_string()))?;
    if answer.exit != Some(Exit::Clean) {
        let why = format!(
            "it has not ended within {} s; a folder is very large, or its file system does not answer",
            time.as_secs()
        );
        return Ok(OwnedFiles { unread: Some(why), ..OwnedFiles::default() });
    }
    serde_json::from_slice(&answer.printed).map_err(|error| failed("its answer", error.to_string()))
}

/// A folder that was looked into.
type Id = (u64, u64);

fn id(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

/// A folder on the way down.
struct Level {
    name: CString,
    id: Id,
    /// `None` if it is too far up to be open.
    opened: Option<OwnedFd>,
    /// Folders in it that were not looked into yet.
    waiting: Vec<CString>,
}

struct Search<'s> {
    folders: &'s [PathBuf],
    left: HashSet<u32>,
    /// The folders that were named: each is searched by itself.
    tops: HashMap<Id, PathBuf>,
    waiting: usize,
    found: OwnedFiles,
}

/// Why a search ends before its end.
struct SearchFault(String);

impl<'s> Search<'s> {
    fn new(folders: &'s [PathBuf], uids: &[u32]) -> Self {
        let left = uids.iter().copied().collect();
        Self { folders, left, tops: HashMap::new(), waiting: 0, found: OwnedFiles::default() }
    }

    fn run(mut self) -> OwnedFiles {
        if let Err(SearchFault(why)) = self.all() {
            self.found.unread = Some(why);
        }
        self.found.searched = self.tops.values().map(|path| path.to_string_lossy().into_owned()).collect();
        self.found.searched.sort();
        self.found
    }

    fn all(&mut self) -> Result<(), SearchFault> {
        let mut tops = Vec::new();
        for folder in self.folders {
            let Some((path, opened)) = self.top(folder)? else { continue };
            let stat = stat(&opened).map_err(|errno| unread(&path, errno))?;
            self.look(&stat, || path.clone());
            if self.tops.insert(id(&stat), path.clone()).is_none() {
                tops.push((path, id(&stat)));
            }
        }
        for (path, id) in tops {
            // Opened anew: there may be more of them than descriptors.
            let Some((path, opened)) = self.top(&path)? else { continue };
            if stat(&opened).map(|stat| self::id(&stat)) != Ok(id) {
                return Err(changed(&path));
            }
            self.below(&path, id, opened)?;
        }
        Ok(())
    }

    /// Opens a folder that was named, where it really is; `None` if it is not there, or is no folder.
    fn top(&mut self, folder: &Path) -> Result<Option<(PathBuf, OwnedFd)>, SearchFault> {
        match folder.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SearchFault(format!("{}: {error}", folder.display()))),
            Ok(_) => {}
        }
        let real = match folder.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            real => real.map_err(|error| SearchFault(format!("{}: {error}", folder.display())))?,
        };
        match rustix::fs::openat2(rustix::fs::CWD, &real, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(opened) => Ok(Some((real, opened))),
            Err(Errno::NOTDIR) => {
                let stat = rustix::fs::lstat(&real).map_err(|errno| unread(&real, errno))?;
                self.look(&stat, || real.clone());
                Ok(None)
            }
            Err(errno) => Err(unread(&real, errno)),
        }
    }

    /// Looks at everything below a folder.
    fn below(&mut self, top: &Path, id: Id, opened: OwnedFd) -> Result<(), SearchFault> {
        let mut levels = Vec::new();
        self.enter(top, &mut levels, (CString::default(), id, opened))?;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.waiting.pop() else {
                let level = levels.pop();
                self.leave(top, &mut levels, level)?;
                continue;
            };
            self.waiting -= 1;
            let at = || place(top, &levels, Some(&name));
            let Some(folder) = levels.last().and_then(|level| level.opened.as_ref()) else {
                return Err(changed(&at()));
            };
            let inner = match inside(folder, &name) {
                Ok(inner) => inner,
                // Folders of sites that run come and go. This one was looked at, and what has moved it is not of these
                // uids.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(Errno::XDEV) if self.is_a_top(folder, &name) => continue,
                Err(Errno::XDEV) => {
                    let at = at();
                    return Err(SearchFault(format!(
                        "another file system is mounted at {0}: search that as well, with `--search {0}`, or unmount it",
                        at.display()
                    )));
                }
                Err(errno) => return Err(unread(&at(), errno)),
            };
            let id = self::id(&stat(&inner).map_err(|errno| unread(&at(), errno))?);
            if !self.tops.contains_key(&id) {
                self.enter(top, &mut levels, (name, id, inner))?;
            }
        }
        Ok(())
    }

    fn is_a_top(&self, folder: &OwnedFd, name: &CStr) -> bool {
        let mounted = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        mounted.is_ok_and(|stat| self.tops.contains_key(&id(&stat)))
    }

    /// Looks at what is in a folder, and notes the folders in it.
    fn enter(
        &mut self,
        top: &Path,
        levels: &mut Vec<Level>,
        (name, id, opened): (CString, Id, OwnedFd),
    ) -> Result<(), SearchFault> {
        let mut waiting = Vec::new();
        let path = || match levels.is_empty() {
            true => top.to_owned(),
            false => place(top, levels, Some(&name)),
        };
        let entries = Dir::read_from(&opened).map_err(|errno| unread(&path(), errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| unread(&path(), errno))?;
            let inner = entry.file_name();
            if matches!(inner.to_bytes(), b"." | b"..") {
                continue;
            }
            let at = || path().join(OsStr::from_bytes(inner.to_bytes()));
            let stat = match rustix::fs::statat(&opened, inner, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat.map_err(|errno| unread(&at(), errno))?,
            };
            self.look(&stat, at);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                waiting.push(inner.to_owned());
                self.waiting += 1;
            }
            if self.waiting > WAITING_MAX {
                return Err(SearchFault(format!(
                    "there are more than {WAITING_MAX} folders in {}",
                    path().display()
                )));
            }
        }
        levels.push(Level { name, id, opened: Some(opened), waiting });
        if let Some(far) = levels.len().checked_sub(OPEN_MAX + 1) {
            levels[far].opened = None;
        }
        Ok(())
    }

    /// Goes back to the folder above, which is opened again if it is not open any more.
    fn leave(&mut self, top: &Path, levels: &mut [Level], level: Option<Level>) -> Result<(), SearchFault> {
        let at = place(top, levels, None);
        let (Some(above), Some(Level { opened: Some(below), .. })) = (levels.last_mut(), level) else {
            return Ok(());
        };
        if above.opened.is_none() {
            let opened = rustix::fs::openat(&below, "..", FOLDER, Mode::empty())
                .map_err(|errno| unread(&at, errno))?;
            if stat(&opened).map(|stat| id(&stat)) != Ok(above.id) {
                return Err(changed(&at));
            }
            above.opened = Some(opened);
        }
        Ok(())
    }

    /// Notes what a uid owns, or its group.
    fn look(&mut self, stat: &Stat, path: impl Fn() -> PathBuf) {
        for uid in [stat.st_uid, stat.st_gid] {
            if self.left.remove(&uid) {
                let mut text = path().to_string_lossy().into_owned();
                if text.len() > PATH_MAX {
                    text = text.chars().take(PATH_MAX / 4).collect::<String>() + "...";
                }
                self.found.owned.insert(uid, text);
            }
        }
    }
}

fn stat(folder: &OwnedFd) -> Result<Stat, Errno> {
    rustix::fs::fstat(folder)
}

/// Opens a folder by its name in another one, of the same file system.
fn inside(folder: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, FOLDER, Mode::empty(), resolve)
}

fn place(top: &Path, levels: &[Level], name: Option<&CStr>) -> PathBuf {
    let names = levels.iter().skip(1).map(|level| level.name.as_c_str()).chain(name);
    names.fold(top.to_owned(), |path, name| path.join(OsStr::from_bytes(name.to_bytes())))
}

fn unread(path: &Path, errno: Errno) -> SearchFault {
    SearchFault(format!("{}: {}", path.display(), io::Error::from(errno)))
}

fn changed(path: &Path) -> SearchFault {
    SearchFault(format!("{} was moved or removed while it was searched; run this again", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn own() -> (u32, u32) {
        (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
    }

    fn found(folders: &[PathBuf], uids: &[u32]) -> OwnedFiles {
        search(folders, uids, SEARCH_MAX).unwrap()
    }

    #[test]
    fn the_first_file_of_each_is_named_and_links_are_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let (uid, _) = own();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "").unwrap();
        symlink("/", at("a/root")).unwrap();
        let named = found(&[at("a")], &[uid, 4_000_000_000]);
        assert_eq!(named.unread, None);
        assert_eq!(named.owned.keys().collect::<Vec<_>>(), [&uid]);
        assert!(named.owned[&uid].starts_with(at("a").to_str().unwrap()), "{named:?}");
        let nothing = found(&[at("a/b/.."), at("none"), at("a")], &[4_000_000_000]);
        let searched = vec![at("a").canonicalize().unwrap().to_str().unwrap().to_owned()];
        assert_eq!(nothing, OwnedFiles { searched, ..OwnedFiles::default() });
    }

    #[test]
    fn folders_deeper_than_descriptors_and_paths_are_searched_to_the_end() {
        let scratch = tempfile::tempdir().unwrap();
        let mut folder = rustix::fs::open(scratch.path(), FOLDER, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&folder, "e", Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
        let nothing = found(&[scratch.path().into()], &[4_000_000_000]);
        assert_eq!((nothing.owned.len(), nothing.unread), (0, None));
    }

    #[test]
    fn what_cannot_be_read_or_takes_too_long_is_not_searched() {
        let scratch = tempfile::tempdir().unwrap();
        let late = search(&[PathBuf::from("/usr")], &[4_000_000_000], Duration::ZERO).unwrap();
        assert!(late.unread.unwrap().contains("not ended within 0 s"));
        fs::write(scratch.path().join("file"), "").unwrap();
        let under_a_file = found(&[scratch.path().join("file/x")], &[4_000_000_000]);
        assert!(under_a_file.unread.unwrap().contains("file/x: Not a directory"));
        // /dev has other file systems below it wherever tests run.
        if fs::metadata("/dev/shm").is_ok() {
            let mounted = found(&[PathBuf::from("/dev")], &[4_000_000_000]).unread;
            assert!(mounted.is_none_or(|unread| unread.contains("another file system is mounted at /dev/")));
        }
    }
}
