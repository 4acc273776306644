//! Files and folders that a copy of the launcher opens, which may wait for whoever answers for them, and hands over.
//!
//! Runs in: the launcher, as root, and a copy of it that ends when it has opened them. Sees: paths of the
//! configuration; the copy, what is in the files. Never: hands over what the launcher would wait for when it closes it,
//! nor waits for the copy.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use config::{Found, Held, Kind, Opener, PathFault, PathOwner, Placement};
use rustix::fs::{MemfdFlags, SealFlags, Stat, fcntl_add_seals, memfd_create};
use sys::handed;
use sys::process::Child;
use wire::examination::{OPENED_MAX, OpeningToLauncher as Item};
use wire::{Bytes, Message as _, Text};

use crate::error::{Error, during};
use crate::opened_files::{FileKey, NotOpened};
use crate::spawn::context::SpawnContext;

/// LIMIT: files that one copy opens: what is said of them has room in its channel.
pub const FILES_MAX: usize = 16;
/// LIMIT: bytes of a file that is handed over in memory: as many as a list of revoked certificates may have.
const CONTENTS_MAX: u64 = 8 << 20;

/// A file, and what has come of it.
pub(crate) type Opened = (FileKey, Result<Found, NotOpened>);

/// What is being opened.
#[derive(Debug)]
pub struct Opening {
    /// The process that opens.
    pub child: Child,
    channel: OwnedFd,
    files: Vec<FileKey>,
}

impl SpawnContext {
    /// Has a copy of this process open files, not more than [`FILES_MAX`].
    pub(crate) fn begin_opening(&self, files: Vec<(FileKey, Kind)>) -> Result<Opening, Error> {
        let pair = sys::seqpacket::pair_that_takes(true, false).map_err(during("make a channel"))?;
        let (channel, its) = pair;
        let opener = self.opener();
        let work = || {
            config::open_here();
            let numbered = (0u32..).zip(&files);
            numbered
                .into_iter()
                .try_for_each(|(number, (file, kind))| give(&its, number, open(&opener, file, *kind)))
                .map_err(|error| ("open", error))
        };
        let child = self.background.begin(&[its.as_raw_fd()], work)?;
        Ok(Opening { child, channel, files: files.into_iter().map(|(file, _)| file).collect() })
    }
}

impl Opening {
    /// The process, and what was opened so far, or why something was not. A file of which nothing was said has a file
    /// system that does not answer.
    pub(crate) fn take(self) -> (Child, Vec<Opened>) {
        let mut answers: Vec<Result<Found, NotOpened>> =
            self.files.iter().map(|_| Err(NotOpened::Silent)).collect();
        let mut buffer = [0; OPENED_MAX];
        while let Ok(Some(received)) = sys::seqpacket::receive(&self.channel, &mut buffer) {
            let answer = Item::decode(&buffer[..received.len]).ok();
            let answer = answer.and_then(|item| understand(item, received.descriptor, &self.channel));
            if let Some((number, answer)) = answer
                && let Some(place) = answers.get_mut(number as usize)
            {
                *place = answer;
            }
        }
        (self.child, self.files.into_iter().zip(answers).collect())
    }
}

/// Opens a file as its kind is used, in a process that may wait for it.
fn open(opener: &Opener, (class, path): &FileKey, kind: Kind) -> Result<Found, PathFault> {
    let found = opener.look(*class, path)?;
    let (file, held) = match kind {
        Kind::Folder | Kind::Socket => (found.open_folder()?, Held::Folder),
        Kind::File => {
            found.check_owner()?;
            let contents = contents(found.open_file()?);
            (contents.map_err(|source| PathFault::Io { at: path.clone(), source })?, Held::Contents)
        }
        Kind::Program | Kind::Made => return Ok(found),
    };
    Ok(Found { file, held, ..found })
}

/// What is in a file, in memory. Whoever closes a file of FUSE asks its file system; the memory is this machine's.
fn contents(file: File) -> io::Result<OwnedFd> {
    let memory = memfd_create("contents", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut memory = File::from(memory);
    // Whoever reads it says that it is too long.
    io::copy(&mut file.take(CONTENTS_MAX + 1), &mut memory)?;
    memory.flush()?;
    fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(memory.into())
}

fn give(channel: &OwnedFd, number: u32, opened: Result<Found, PathFault>) -> io::Result<()> {
    let (item, file) = match opened {
        Ok(found) => (item_of(number, &found), Some(found.file)),
        Err(fault) => {
            let (problem, remedy) = (Text::new(fault.problem()), Text::new(fault.remedy()));
            (Item::NotOpened { number, problem, remedy }, None)
        }
    };
    let mut bytes = Vec::new();
    item.encode(&mut bytes);
    sys::seqpacket::send(channel, &bytes, file.as_ref().map(|file| file.as_fd()))
}

#[expect(clippy::unnecessary_cast, reason = "the types differ between processors")]
fn item_of(number: u32, found: &Found) -> Item {
    let Found { stat, real, placed, folder, .. } = found;
    let stat = [
        stat.st_dev,
        stat.st_ino,
        u64::from(stat.st_mode),
        stat.st_nlink as u64,
        u64::from(stat.st_uid),
        u64::from(stat.st_gid),
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec as u64,
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec as u64,
    ];
    Item::Opened {
        number,
        found: stat.into_iter().chain([held_number(found.held)]).collect(),
        real: Bytes(real.as_os_str().as_bytes().into()),
        placed: match placed {
            Placement::Root => Vec::new(),
            Placement::By(uid) => vec![u64::from(*uid)],
            Placement::Anyone => vec![u64::MAX],
        },
        folder: Bytes(folder.path.as_os_str().as_bytes().into()),
        owner: vec![u64::from(folder.uid), u64::from(folder.mode)],
    }
}

fn held_number(held: Held) -> u64 {
    match held {
        Held::Named => 0,
        Held::Folder => 1,
        Held::Contents => 2,
    }
}

/// The number of a file, and what has come of it; `None` if what was said makes no sense. `any` is whatever is open.
fn understand(
    item: Item,
    descriptor: Option<OwnedFd>,
    any: &OwnedFd,
) -> Option<(u32, Result<Found, NotOpened>)> {
    match (item, descriptor) {
        (Item::Opened { number, found, real, placed, folder, owner }, Some(file)) => {
            let (stat, held) = stat_of(&found, rustix::fs::fstat(any).ok()?)?;
            let kind = match held {
                Held::Named => handed::HandedKind::Named,
                Held::Folder => handed::HandedKind::Folder,
                Held::Contents => handed::HandedKind::Contents,
            };
            let file = kind.take(file).ok()?;
            let placed = match placed[..] {
                [] => Placement::Root,
                [u64::MAX] => Placement::Anyone,
                [uid] => Placement::By(uid.try_into().ok()?),
                _ => return None,
            };
            let [uid, mode] = owner[..] else { return None };
            let (uid, mode) = (uid.try_into().ok()?, mode.try_into().ok()?);
            let folder = PathOwner { path: path_of(folder), uid, mode };
            let found = Found { file, held, stat, real: path_of(real), placed, folder, is_remote: true };
            Some((number, Ok(found)))
        }
        (Item::NotOpened { number, problem, remedy }, None) => {
            let fault = NotOpened::Fault(problem.as_str().into(), remedy.as_str().into());
            Some((number, Err(fault)))
        }
        _ => None,
    }
}

fn path_of<const MAX: usize>(bytes: Bytes<MAX>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.0))
}

/// What the kernel had said to the other process, in the place of what it says of `any`.
fn stat_of(numbers: &[u64], any: Stat) -> Option<(Stat, Held)> {
    let &[dev, ino, mode, names, uid, gid, size, mtime, mtime_nsec, ctime, ctime_nsec, held] = numbers else {
        return None;
    };
    let held =
        [Held::Named, Held::Folder, Held::Contents].into_iter().find(|one| held_number(*one) == held)?;
    let mut stat = any;
    (stat.st_dev, stat.st_ino, stat.st_nlink) = (dev, ino, names as _);
    (stat.st_mode, stat.st_uid, stat.st_gid) =
        (mode.try_into().ok()?, uid.try_into().ok()?, gid.try_into().ok()?);
    stat.st_size = size.cast_signed();
    (stat.st_mtime, stat.st_mtime_nsec) = (mtime.cast_signed(), mtime_nsec as _);
    (stat.st_ctime, stat.st_ctime_nsec) = (ctime.cast_signed(), ctime_nsec as _);
    Some((stat, held))
}
