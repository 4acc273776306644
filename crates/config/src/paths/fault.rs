//! Why a path that a configuration names is not opened, and what to do about it.
//!
//! Runs in: as the module above. Input: names that tenants may have chosen, which are shown escaped. Must never: say
//! what a link leads to that its reader could not have read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Stat;

use super::Class;
use crate::diagnostic::show_path;

/// LIMIT: how long a file system may take to answer for the files that are opened for one process.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Why a path is not opened.
#[derive(Debug)]
pub enum PathFault {
    /// The kernel says so of this part of the path.
    Io {
        /// The part of the path, links followed.
        at: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A symbolic link that the class of the key does not allow.
    Link {
        /// The link.
        at: PathBuf,
        /// The folder that it lies in, with its owner and its mode.
        folder: PathOwner,
        /// What the key allows.
        class: Class,
    },
    /// A folder that the owner of a link before it may not enter.
    Closed {
        /// The link.
        link: PathBuf,
        /// Who made the link, if one user did.
        uid: Option<u32>,
        /// The folder.
        folder: PathOwner,
    },
    /// A name on the way to what is the server's own, which others can change.
    NotOwn {
        /// The name.
        at: PathBuf,
        /// The folder that it lies in.
        folder: PathOwner,
    },
    /// A file in another user's folder that is not that user's, and that the user could not read.
    Foreign {
        /// The file.
        file: PathOwner,
        /// The folder that it lies in.
        folder: PathOwner,
    },
    /// It lies on a file system that somebody else than the kernel answers for, and this process does not wait for
    /// that.
    Remote {
        /// The part of the path that lies there first.
        at: PathBuf,
        /// The kernel's number of the mount, if it has said it.
        mount: Option<u64>,
    },
    /// The file system on which it lies does not answer.
    Silent {
        /// The path.
        at: PathBuf,
    },
    /// What another process has said that opened it.
    Told {
        /// What is wrong, to follow the path.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// Neither a file nor a folder, where one of the two is needed.
    WrongKind {
        /// The file.
        at: PathBuf,
        /// What is needed.
        wanted: &'static str,
    },
}

/// A file or a folder, with what decides who may do what there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOwner {
    /// Where it is.
    pub path: PathBuf,
    /// Its owner.
    pub uid: u32,
    /// Its mode.
    pub mode: u32,
}

impl fmt::Display for PathOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, uid, mode } = self;
        write!(f, "{} (uid {uid}, mode {mode:04o})", show_path(path))
    }
}

impl PathOwner {
    /// The owner of what is at `path`.
    pub(super) fn of(path: &Path, stat: &Stat) -> Self {
        Self { path: path.to_owned(), uid: stat.st_uid, mode: stat.st_mode & 0o7777 }
    }

    /// What makes a folder root's alone.
    fn as_root(&self) -> String {
        let shown = show_path(&self.path);
        format!("`chown root {shown} && chmod go-w {shown}`")
    }
}

impl PathFault {
    pub(super) fn io(at: &Path, error: rustix::io::Errno) -> Self {
        Self::Io { at: at.to_owned(), source: error.into() }
    }

    /// Whether there is nothing of this name.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether it could not be looked at yet: the file system on which it lies has yet to answer to somebody who waits
    /// for that.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }

    /// What is wrong, to follow the path.
    pub fn problem(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("cannot be opened: {source}"),
            Self::Link { at, folder, class } => {
                let rule = match class {
                    Class::Own => "a folder of bulkhead's own has no link on its way that others can change",
                    _ => {
                        "the path of a program or of a file that is read as root has links only in folders that root alone can write"
                    }
                };
                format!("goes through the symbolic link {}, which lies in {folder}; {rule}", show_path(at))
            }
            Self::Closed { link, uid, folder } => {
                let whose = uid.map_or_else(|| "everybody".to_owned(), |uid| format!("uid {uid}"));
                format!(
                    "goes through the symbolic link {}, which {whose} can have made and who may not enter {folder}; a link is \
                     followed as far as its maker may go, as the owner of a folder or as everybody",
                    show_path(link)
                )
            }
            Self::NotOwn { at, folder } => format!(
                "goes through {}, which lies in {folder}; what is bulkhead's own lies in folders that root alone can write",
                show_path(at)
            ),
            Self::Foreign { file, folder } => format!(
                "leads to {file} in {folder}; what root reads for others from a folder that root does not own alone belongs to \
                 the folder's owner, or everybody can read it"
            ),
            Self::Remote { .. } => "lies on a file system of another machine or of a program (NFS, FUSE), which has yet to answer".into(),
            Self::Silent { .. } => format!(
                "lies on a file system of another machine or of a program (NFS, FUSE), which has not answered within {ANSWER_TIME:?}"
            ),
            Self::Told { problem, .. } => problem.clone(),
            Self::WrongKind { wanted, .. } => format!("is not {wanted}"),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Io { .. } => "correct the path, or let the user who starts bulkhead open it".into(),
            Self::Link { folder, .. } => {
                format!("name what the link leads to, or let root own the folder: {}", folder.as_root())
            }
            Self::Closed { .. } => "name the folder itself that the link leads to".into(),
            Self::NotOwn { folder, .. } => {
                format!("name another folder, or let root own this one: {}", folder.as_root())
            }
            Self::Foreign { file, folder } => format!(
                "run `chown {} {}`, or put it into a folder of root's",
                folder.uid,
                show_path(&file.path)
            ),
            Self::Remote { .. } => "wait for that".into(),
            Self::Silent { at } => format!("see to it that `stat {}` answers, or unmount it", show_path(at)),
            Self::Told { remedy, .. } => remedy.clone(),
            Self::WrongKind { .. } => "name the file or folder itself".into(),
        }
    }
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { source, .. } => write!(f, "{source}"),
            _ => write!(f, "it {}; {}", self.problem(), self.remedy()),
        }
    }
}

impl std::error::Error for PathFault {}

impl From<PathFault> for io::Error {
    fn from(fault: PathFault) -> Self {
        match fault {
            PathFault::Io { source, .. } => source,
            other => io::Error::new(io::ErrorKind::PermissionDenied, other),
        }
    }
}
