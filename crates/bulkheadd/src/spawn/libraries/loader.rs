//! The dynamic loaders that are ever executed.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes.

/// Where glibc's loader has written down which library is where.
pub const CACHE: &str = "/etc/ld.so.cache";

/// How a loader is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// An environment variable has it list libraries.
    Glibc,
    /// It is called as a program.
    Musl,
}

/// Every loader that is ever executed, by the path that programs have for it.
pub const LOADERS: [(&str, Loader); 4] = [
    ("/lib64/ld-linux-x86-64.so.2", Loader::Glibc),
    ("/lib/ld-linux-aarch64.so.1", Loader::Glibc),
    ("/lib/ld-musl-x86_64.so.1", Loader::Musl),
    ("/lib/ld-musl-aarch64.so.1", Loader::Musl),
];
