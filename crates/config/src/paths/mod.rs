//! Paths that a configuration names: which keys name one, what each may lead through, and the one function that opens
//! them.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the file system below the paths that the operator
//! named, in which tenants may plant links, FIFOs and other names at any time. Must never: follow a link by a call of
//! the kernel's, open for reading what has not been looked at, or look at a name twice: from the walk on there are only
//! descriptors.
//!
//! SECURITY: root opens what a configuration names. Whoever owns a folder on the way decides what its names lead to, so
//! that each key says how much that owner may decide ([`Class`]).

mod beside;
mod fault;
mod found;
mod mounts;
mod neighbours;
mod open;
mod rights;
mod versions;
mod walk;

pub(crate) use beside::may_wait;
pub use beside::{Beside, open_beside, open_here};
pub use fault::{ANSWER_TIME, PathFault, PathOwner};
pub use found::{Found, Held};
pub use neighbours::Neighbours;
pub use open::Opener;
pub use rights::Placement;
pub use versions::Versions;

/// What the path of a key may lead through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Secrets, programs, and what decides over people: links only in folders that only root can write. What lies in a
    /// folder of another user's is that user's, or that user could read it anyway.
    Private,
    /// Folders of a site's: a link in a folder of another user's is followed as far as that user may go.
    Published,
    /// The server's own: nobody but root can change a name on the way.
    Own,
}

/// What the path of a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file that is read.
    File,
    /// A regular file that is executed.
    Program,
    /// A folder.
    Folder,
    /// A file that the launcher makes, in a folder that is there.
    Made,
    /// A socket of somebody else's; its folder is what is opened.
    Socket,
}

/// A key that names a path.
#[derive(Clone, Copy, Debug)]
pub struct PathKey {
    /// The table in which it stands, as its header is written.
    pub table: &'static str,
    /// The key.
    pub key: &'static str,
    /// What the path may lead through.
    pub class: Class,
    /// What it leads to.
    pub kind: Kind,
}

const fn row(table: &'static str, key: &'static str, class: Class, kind: Kind) -> PathKey {
    PathKey { table, key, class, kind }
}

/// Every key that names a path. One that is missing here is found by a test, which compares this with the reference.
pub const PATH_KEYS: &[PathKey] = &[
    row("", "include", Class::Own, Kind::Folder),
    row("[server]", "state_dir", Class::Own, Kind::Folder),
    row("[server]", "run_dir", Class::Own, Kind::Folder),
    row("[server]", "log_dir", Class::Own, Kind::Folder),
    row("[log]", "error_file", Class::Own, Kind::Made),
    row("[conditioning]", "filters", Class::Private, Kind::Program),
    row("[[site]]", "root", Class::Published, Kind::Folder),
    row("[[site]]", "vhosts", Class::Published, Kind::Folder),
    row("[[site]]", "follow_links", Class::Published, Kind::Folder),
    row("[[site]]", "users", Class::Private, Kind::File),
    row("[[site]]", "certificate", Class::Private, Kind::File),
    row("[[site]]", "key", Class::Private, Kind::File),
    row("[[site]]", "certificates", Class::Private, Kind::File),
    row("[[site]]", "client_ca", Class::Private, Kind::File),
    row("[[site]]", "client_crl", Class::Private, Kind::File),
    row("[[site]]", "worker", Class::Private, Kind::Program),
    row("[[site]]", "php", Class::Published, Kind::Socket),
    row("[[site.route]]", "alias", Class::Published, Kind::Folder),
    row("[[site.route]]", "users", Class::Private, Kind::File),
    row("[[site.route]]", "upstream", Class::Published, Kind::Socket),
    row("[[site.route]]", "fastcgi", Class::Published, Kind::Socket),
    row("[[site.data]]", "server", Class::Published, Kind::Socket),
    row("[[site.data]]", "statements", Class::Private, Kind::File),
    row("[[site.data]]", "schema", Class::Private, Kind::File),
    row("[[site.data]]", "password", Class::Private, Kind::File),
    row("[[site.data]]", "server_ca", Class::Private, Kind::File),
    row("[[site.data]]", "certificate", Class::Private, Kind::File),
    row("[[site.data]]", "key", Class::Private, Kind::File),
    row("[site.templates]", "folder", Class::Published, Kind::Folder),
    row("[[site.service]]", "command", Class::Private, Kind::Program),
    row("[[site.service]]", "read", Class::Published, Kind::Folder),
    row("[[site.service]]", "libraries", Class::Private, Kind::Folder),
];

/// What the path of a key may lead through; of one that is not in the table, the least. Keys of one name are of one
/// class.
pub fn class_of(key: &str) -> Class {
    PATH_KEYS.iter().find(|row| row.key == key).map_or(Class::Own, |row| row.class)
}

#[cfg(test)]
mod sweep;
#[cfg(test)]
mod tests;
