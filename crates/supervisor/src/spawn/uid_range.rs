//! The range of uids that this server's processes get, which no other server of this machine has at the same time.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes: files that only root can write, and `/proc`. Never: starts
//! a process under a uid that another server's processes have: they could signal, trace and read each other.
//!
//! Each server holds a lock on a file that is named after its range; the kernel releases it with the launcher, however
//! that ends. Servers that see another `/run` are found by their processes, if these can be seen.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sys::absence::if_there;

use crate::directories::{own_directory, own_file, replace};
use crate::error::{Error, at, range_text};
use crate::spawn::living;

/// Where the locks are. Not in a directory that a service manager could remove with one of the servers.
const FOLDER: &str = "/run/bulkhead-uids";
/// What a server gets that has never had uids and is told no range, if another one has the default: the first of these
/// that is free. Guards have 52001-52999; systemd's own begin at 61184.
const SPARE: [u32; 8] = [53_001, 54_001, 55_001, 56_001, 57_001, 58_001, 59_001, 60_001];
/// LIMIT: how long other servers may look for their ranges first.
const TURN_MAX: Duration = Duration::from_secs(5);
/// LIMIT: the same for a server that serves; a reload can be ordered again.
const TURN_IN_LOOP: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(5);
/// LIMIT: bytes of what another server says of itself: a pid and a path.
const OWNER_BYTES_MAX: u64 = 8192;

type Range = RangeInclusive<u32>;

/// A range that is ours until this is dropped.
#[derive(Debug)]
pub struct UidRange {
    /// The range.
    pub range: Range,
    /// What the operator should know of it.
    pub note: Option<String>,
    lock: Option<File>,
}

impl UidRange {
    /// The range of a launcher that this one has taken the place of, and its lock.
    pub fn known(range: Range, lock: Option<OwnedFd>) -> Self {
        Self { range, note: None, lock: lock.map(File::from) }
    }

    /// The file whose lock keeps others from the range.
    pub fn lock(&self) -> Option<&File> {
        self.lock.as_ref()
    }

    /// Reserves another range for the same server, which keeps this one as well until this is dropped.
    pub fn beside(&self, range: &Range, config_dir: &Path) -> Result<Self, Error> {
        // Where nothing could be locked at the start, nothing can be now.
        if self.lock.is_none() {
            return Ok(Self { range: range.clone(), note: None, lock: None });
        }
        let mut ledger = Ledger::open(folder()?, TURN_IN_LOOP)?;
        ledger.owned.retain(|owned| owned.range != self.range);
        ledger.take(std::slice::from_ref(range), config_dir)
    }
}

/// The range that a server is to have whose table of uids is in `state`: that of its configuration, or the one that it
/// chose.
pub fn wanted(given: Option<&Range>, default: &Range, state: &Path) -> Result<Range, Error> {
    match given {
        Some(given) => Ok(given.clone()),
        None => Ok(kept(state)?.unwrap_or_else(|| default.clone())),
    }
}

/// Does something while no server can take a range, if none has this one.
///
/// # Errors
/// A server has it, or others look for theirs all the time.
pub fn while_unreserved<T>(range: &Range, act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let ledger = Ledger::open(folder()?, TURN_MAX)?;
    match ledger.overlapping(range) {
        Some(other) => Err(Error::UidRange { range: range.clone(), other: other.words() }),
        None => act(),
    }
}

/// Reserves the range of a server whose table of uids is in `state`.
pub fn reserve(config: &config::Config, state: &Path) -> Result<UidRange, Error> {
    let server = &config.server;
    let kept = if server.user_range_given { None } else { kept(state)? };
    let wanted = kept.clone().unwrap_or_else(|| server.user_range.clone());
    let has_uids = kept.is_some() || fs::exists(state.join("uids")).unwrap_or(true);
    let spare = if server.user_range_given || has_uids { &[][..] } else { &SPARE };
    let candidates = std::iter::once(wanted.clone()).chain(spare.iter().map(|&first| first..=first + 998));
    let candidates: Vec<Range> = candidates.collect();
    let reserved = match folder() {
        Ok(folder) => Ledger::open(folder, TURN_MAX)?.take(&candidates, &config.dir)?,
        Err(error @ Error::Path { .. }) => UidRange {
            range: wanted.clone(),
            note: Some(format!(
                "`user_range` is not reserved: {error}; another server on this machine may have the same uids"
            )),
            lock: None,
        },
        Err(error) => return Err(error),
    };
    if reserved.range != wanted {
        keep(state, &reserved.range)?;
    }
    Ok(reserved)
}

/// The ranges that servers have now, for those who must keep away from them.
///
/// # Errors
/// They cannot be found out.
pub fn taken() -> Result<Vec<Range>, Error> {
    let Some(folder) = if_there(fs::metadata(FOLDER)).map_err(at("examine", Path::new(FOLDER)))? else {
        return Ok(Vec::new());
    };
    if folder.uid() != rustix::process::geteuid().as_raw() {
        // Nobody reserves a range for this user.
        return Ok(Vec::new());
    }
    let ledger = Ledger::open(self::folder()?, TURN_MAX)?;
    Ok(ledger.owned.into_iter().map(|owned| owned.range).collect())
}

fn folder() -> Result<&'static Path, Error> {
    own_directory(Path::new(FOLDER), 0o700)?;
    Ok(Path::new(FOLDER))
}

/// What another server has.
#[derive(Debug)]
struct Owned {
    range: Range,
    owner: String,
}

/// All ranges that servers have, while nobody else can take one.
#[derive(Debug)]
struct Ledger<'f> {
    folder: &'f Path,
    owned: Vec<Owned>,
    _turn: File,
}

impl<'f> Ledger<'f> {
    fn open(folder: &'f Path, turn_max: Duration) -> Result<Self, Error> {
        let turn = File::open(folder).map_err(at("open", folder))?;
        let until = Instant::now() + turn_max;
        while turn.try_lock().is_err() {
            if Instant::now() >= until {
                return Err(at("lock", folder)(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(PAUSE);
        }
        let mut owned = Vec::new();
        for entry in fs::read_dir(folder).map_err(at("read", folder))? {
            let path = entry.map_err(at("read", folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(range) = name.and_then(parse)
                && let Some(owner) = owner(&path)?
            {
                owned.push(Owned { range, owner });
            }
        }
        Ok(Self { folder, owned, _turn: turn })
    }

    /// Takes the first of these that nobody has.
    fn take(&self, candidates: &[Range], config_dir: &Path) -> Result<UidRange, Error> {
        // Whoever may choose does not wait for what another server has left, or what sees no lock of ours.
        let chooses = candidates.len() > 1;
        let free = |range: &&Range| {
            self.overlapping(range).is_none()
                && !(chooses && living::all().any(|process| process.uid_in(range).is_some()))
        };
        let wanted = &candidates[0];
        let Some(range) = candidates.iter().find(free) else {
            let other = self.overlapping(wanted).map_or_else(|| "other processes".to_owned(), Owned::words);
            return Err(Error::UidRange { range: wanted.clone(), other });
        };
        let note = (range != wanted).then(|| {
            let other = self.overlapping(wanted).map_or_else(|| "other processes".to_owned(), Owned::words);
            format!(
                "the default `user_range` is in use by {other}; this server has {} from now on",
                range_text(range)
            )
        });
        let path = self.folder.join(range_text(range));
        let mut file = own_file(&path, 0o600, File::options().write(true))?;
        file.try_lock().map_err(at("lock", &path))?;
        file.set_len(0).map_err(at("write", &path))?;
        writeln!(file, "{} {}", std::process::id(), config_dir.display()).map_err(at("write", &path))?;
        Ok(UidRange { range: range.clone(), note, lock: Some(file) })
    }

    fn overlapping(&self, range: &Range) -> Option<&Owned> {
        let overlaps = |other: &Range| other.start() <= range.end() && range.start() <= other.end();
        self.owned.iter().find(|owned| overlaps(&owned.range))
    }
}

impl Owned {
    fn words(&self) -> String {
        let (pid, folder) = self.owner.split_once(' ').unwrap_or(("?", "?"));
        let mut words = format!("{} of the server of ", range_text(&self.range));
        // The folder is an operator's; its name is not to drive the terminal of this one.
        words.extend(folder.chars().filter(|c| !c.is_control()));
        let _ = write!(words, " (pid {pid})");
        words
    }
}

/// What the owner of a range says of itself; `None` if it is gone, and then so is the file.
fn owner(path: &Path) -> Result<Option<String>, Error> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(at("open", path))?;
    if file.try_lock_shared().is_ok() {
        fs::remove_file(path).map_err(at("remove", path))?;
        return Ok(None);
    }
    let mut text = String::new();
    file.take(OWNER_BYTES_MAX).read_to_string(&mut text).map_err(at("read", path))?;
    Ok(Some(text.trim_end().to_owned()))
}

fn parse(text: &str) -> Option<Range> {
    let (first, last) = text.split_once('-')?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// The range that a server without one in its configuration was given earlier.
fn kept(state: &Path) -> Result<Option<Range>, Error> {
    let path = state.join("user_range");
    let Some(text) = if_there(fs::read_to_string(&path)).map_err(at("read", &path))? else { return Ok(None) };
    parse(text.trim_end()).map(Some).ok_or_else(|| {
        let problem = "expected FIRST-LAST; write `user_range` into the configuration, and remove this file";
        Error::identity(path, problem)
    })
}

fn keep(state: &Path, range: &Range) -> Result<(), Error> {
    replace(&state.join("user_range"), &format!("{}\n", range_text(range)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &Path, candidates: &[Range]) -> Result<UidRange, Error> {
        Ledger::open(folder, TURN_MAX)?.take(candidates, Path::new("/etc/x\u{1b}"))
    }

    #[test]
    fn ranges_that_overlap_are_refused_until_their_owner_is_gone() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let first = take(folder, &[100..=199]).unwrap();
        assert_eq!((first.range.clone(), first.note.clone()), (100..=199, None));
        for range in [100..=199, 199..=300, 1..=100, 150..=150, 1..=1000] {
            let error = take(folder, &[range]).unwrap_err().to_string();
            let other = format!("100-199 of the server of /etc/x (pid {})", std::process::id());
            assert!(error.contains(&other), "{error}");
        }
        let beside = take(folder, &[200..=299]).unwrap();
        drop(first);
        assert_eq!(take(folder, &[100..=199]).unwrap().range, 100..=199);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2, "what is stale was removed");
        drop(beside);
    }

    #[test]
    fn another_range_is_taken_where_that_is_allowed() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let all = [100..=199, 150..=250, 300..=399];
        let first = take(folder, &all).unwrap();
        let second = take(folder, &all).unwrap();
        assert_eq!((first.range.clone(), second.range.clone()), (100..=199, 300..=399));
        assert!(second.note.as_ref().unwrap().contains("has 300-399 from now on"));
        assert!(take(folder, &all).is_err());
    }

    #[test]
    fn a_link_in_the_folder_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("100-199")).unwrap();
        assert!(take(folder, &[100..=199]).is_err());
    }

    #[test]
    fn what_was_chosen_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        assert_eq!(kept(folder).unwrap(), None);
        keep(folder, &(53_001..=53_999)).unwrap();
        assert_eq!(kept(folder).unwrap(), Some(53_001..=53_999));
        fs::write(folder.join("user_range"), "nonsense").unwrap();
        assert!(kept(folder).unwrap_err().to_string().contains("expected FIRST-LAST"));
    }
}
