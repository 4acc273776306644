//! The running servers of a user, each in a file of its own, so that commands find them without a configuration.
//!
//! Runs in: the launcher and the guard, which write their own file; the `bulkhead` command, which reads all. Sees:
//! files in a folder of the user's own. Never: believes a file that somebody else could have written, takes the process
//! that has got the pid of a dead server for that server, or follows a symbolic link below the folder's base.

mod entry;
mod folder;
mod identity;

pub use entry::{BYTES_MAX, EntryError, InstanceEntry, InstanceKind, InstanceState, NAMES_MAX};
pub use folder::{ENTRIES_MAX, FolderFault, FolderListing, FoundInstance, Registration, candidates, list};
pub use identity::ProcessIdentity;
